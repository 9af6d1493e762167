"""The recipe `envfactory` from sources to packs that an MCP client plays, with hand-written replies."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters, stdio_client

from simia.cli import build_app
from simia.config import parse_config, read_config_file
from simia.errors import UserError
from simia.importers.openapi import read_document
from simia.pack import Pack
from simia.synthesis.recheck import recheck_synthesis
from simia.synthesis.recipes.envfactory import EnvFactoryConfig, EnvFactoryRecipe
from simia.synthesis.sources.proposal import ProposalSettings
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.proposals import ProposalRound
from tests.command import invoke
from tests.synthesis.build_fixtures import read_files
from tests.synthesis.source_fixtures import DOCUMENTS, GOOD, PROPOSALS, SERVER, add_proposals, make_packs

HOSTILE = ("invented_quotes", "quotes_too_short", "unknown_source", "of_the_pool", "of_little_use")
ROUND1 = {PROPOSALS: add_proposals(GOOD[PROPOSALS], *HOSTILE[:4])}
ROUND2 = {"proposals2/all.proposals-0": add_proposals(GOOD["proposals2/all.proposals-0"], "same_again", HOSTILE[4])}


async def call_over_mcp(pack: Path, name: str, arguments: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Serve a pack by `simia serve --mcp`, and make one call. Returns tool → schema, and the result."""
    words = ["-m", "simia", "serve", str(pack), "--mcp", "--out", str(pack.parent / "played.jsonl")]
    parameters = StdioServerParameters(command=sys.executable, args=words, cwd=pack.parent)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        listed = await client.list_tools()
        done = await client.call_tool(name, arguments)
        assert not done.is_error, done.content
        ended = json.loads((await client.call_tool("finish_episode", {"answer": "Done."})).content[0].text)
        assert ended["reward"] is None  # there is no task that could be scored
        return {tool.name: tool.input_schema for tool in listed.tools}, json.loads(done.content[0].text)


def test_documents_become_a_pack_with_their_tools_and_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies = GOOD | ROUND1 | ROUND2
    done, backend = make_packs(tmp_path / "one", monkeypatch, [DOCUMENTS], replies)
    assert done.stop.kind == "complete", done.stop
    assert done.packs == [tmp_path / "one" / "packs"]
    assert {key: refusal.reason for key, refusal in done.outputs.refused["proposals"].items()} == {
        "round1/1": "quote_not_found", "round1/2": "quote_not_found", "round1/3": "quote_not_found", "round1/4": "pool_has_it",
        "round2/1": "quote_not_found",  # the server is not among the sources here
        "round2/2": "low_usefulness", "round2/3": "duplicate_proposal",
    }  # fmt: skip
    assert list(done.outputs.made["proposals"]) == ["parcel_lockers"]
    assert len(backend.asked) == 13  # 2 of proposals, 2 of the design, the example, 2 for each of 4 tools
    assert "Parcel lockers: Lockers with compartments" in backend.prompts["proposals2/all.proposals-0"]
    assert "Toll roads: refused, quote_not_found" in backend.prompts["proposals2/all.proposals-0"]
    assert "customer service" in backend.prompts[PROPOSALS]

    pack = Pack.load(done.packs[0])
    provenance = pack.file.provenance if pack.file else None
    assert provenance is not None
    assert [(each.name, each.licence, len(each.quotes)) for each in provenance.sources] == [
        ("locker-rules.md", "unknown", 2), ("lockers.yaml", "Apache-2.0", 1),
    ]  # fmt: skip
    for each in provenance.sources:
        content = (DOCUMENTS / each.name).read_bytes()
        assert each.content_hash == hashlib.sha256(content).hexdigest()
        text = " ".join(content.decode().split())
        assert all(quote in text for quote in each.quotes)

    tools = {tool.name: tool for tool in pack.tools}
    assert list(tools) == ["listCompartments", "storeParcel", "collectParcel", "take_back_parcel"]
    body = read_document(str(DOCUMENTS / "lockers.yaml"))["paths"]["/parcels"]["post"]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert tools["storeParcel"].parameters["properties"] == schema["properties"]
    assert tools["storeParcel"].parameters["required"] == schema["required"]
    assert tools["collectParcel"].parameters["properties"]["code"]["pattern"] == "^[0-9]{6}$"
    assert tools["storeParcel"].description.startswith("Store a parcel in a free compartment")

    invoke("pack", "validate", str(done.packs[0]))
    schemas, result = asyncio.run(call_over_mcp(done.packs[0], "listCompartments", {"lockerId": "LK-02"}))
    assert schemas["storeParcel"]["properties"]["recipient"]["maxLength"] == 60
    assert result == [{"compartment_id": "CP-004", "size": "medium", "free": False}]

    rechecked = recheck_synthesis(tmp_path / "one" / "runs", "run", lambda _: None)
    assert (rechecked.complete, rechecked.missing) == (True, [])
    assert all(before == after for before, after in rechecked.figures.values()), rechecked.figures

    again, _ = make_packs(tmp_path / "two", monkeypatch, [DOCUMENTS], replies, slow=True)
    assert again.outputs.made == done.outputs.made
    assert read_files(tmp_path / "two" / "packs") == read_files(done.packs[0])


def test_a_server_is_a_source_beside_documents(
    environments: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for parent in [tmp_path, *tmp_path.parents]:  # the sandbox reads the server as another user
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    script = tmp_path / SERVER.name
    script.write_bytes(SERVER.read_bytes())
    script.chmod(0o644)
    interpreter = environments("mcp")
    sources = [DOCUMENTS / "lockers.yaml", DOCUMENTS / "locker-rules.md", f"mcp:{interpreter} {script}"]
    done, _ = make_packs(tmp_path / "one", monkeypatch, sources, GOOD)
    assert done.stop.kind == "complete", done.stop
    assert not any(done.outputs.refused.values()), done.outputs.refused
    assert [pack.name for pack in done.packs] == ["parcel_lockers", "community_garden"]
    garden = Pack.load(done.packs[1])
    assert [tool.name for tool in garden.tools] == ["list_plots", "assign_plot", "release_plot", "join_garden"]
    assert garden.file is not None
    assert garden.file.provenance is not None
    [source] = garden.file.provenance.sources
    assert source.quotes[0] == "Each member of the community garden has one plot at most."
    assert len(source.content_hash) == 64
    for pack, name, arguments in (
        (done.packs[0], "storeParcel", {"compartmentId": "CP-002", "recipient": "Mara Weiss"}),
        (done.packs[1], "assign_plot", {"plot_id": "P-02", "member": "Leo Brandt"}),
    ):
        invoke("pack", "validate", str(pack))
        assert asyncio.run(call_over_mcp(pack, name, arguments))[1]


def test_shipped_configs_have_the_values_of_the_paper() -> None:
    paper, small = (
        parse_config(EnvFactoryConfig, read_config_file(f"synth/{name}"), where=name)
        for name in ("envfactory", "envfactory_small")
    )
    assert (paper.environments, paper.building.tests, paper.building.debug_rounds) == (85, 3, 3)
    assert small.environments == 2


def test_the_command_takes_several_sources_and_names_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["synth", "envfactory", "--dry-run", "--set", "proposals.rounds=1"]
    shown = invoke(
        *words, "--sources", str(DOCUMENTS / "lockers.yaml"), "--sources", str(DOCUMENTS / "locker-rules.md")
    )
    assert "storeParcel(compartmentId, recipient): Store a parcel in a free compartment" in shown
    assert "Storage is free for the first 24 hours." in shown
    for arguments, fault in (
        ([], "no sources are given"),
        (["--sources", str(tmp_path / "missing.md")], "does not exist"),
        (["--sources", str(tmp_path)], "has no text, Markdown, HTML or OpenAPI file"),
        (["--sources", "https://example.org/api.yaml"], "download it first"),
        (["--sources", str(DOCUMENTS), "--set", "pool=[./nowhere]"], "does not exist"),
        (["--set", "search.function=./nowhere.py:find"], "cannot be imported"),
    ):
        result = CliRunner().invoke(build_app(), [*words, *arguments])
        assert result.exit_code != 0
        assert isinstance(result.exception, UserError)
        assert fault in str(result.exception)
    refused = CliRunner().invoke(build_app(), ["synth", "codegym", "--dry-run", "--sources", str(DOCUMENTS)])
    assert "takes no --sources" in str(refused.exception)


def test_files_are_named_fully_for_a_resume_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "notes.md").write_text("Plots are free at once after they were given up.")
    (tmp_path / "find.py").write_text("def find(query):\n    return []\n")
    monkeypatch.chdir(tmp_path)
    given = {"sources": ["notes.md", "mcp:python find.py"], "search": {"function": "find.py:find"}, "pool": ["."]}
    config = parse_config(EnvFactoryConfig, given, where="the test")
    assert config.sources == [str(tmp_path / "notes.md"), f"mcp:python {tmp_path / 'find.py'}"]
    assert config.search.function == f"{tmp_path / 'find.py'}:find"
    assert config.pool == [str(tmp_path)]
    assert yaml.safe_load(config.model_dump_json())["sources"] == config.sources
    names = [stage.name for stage in EnvFactoryRecipe(config).list_stages()]
    assert names[:6] == ["sources", "search1", "proposals1", "search2", "proposals2", "proposals"]


def test_a_round_that_could_see_nothing_new_is_skipped() -> None:
    document = {"name": "a", "kind": "text", "content_hash": "0" * 64, "passages": ["words"]}
    outputs = StageOutputs(
        {"sources": {"a": document}, "proposals1": {"all": {"whole": True, "kept": [], "refused": []}}}
    )
    later = [ProposalRound(number, ProposalSettings(), "", list, 4) for number in (2, 3, 4)]
    assert [len(each.list_inputs(outputs)) for each in later] == [0, 0, 0]
    outputs.made["search3"] = {"all": []}
    assert [len(each.list_inputs(outputs)) for each in later] == [0, 1, 1]
    outputs.made["proposals3"] = {"all": {"whole": False, "kept": [], "refused": []}}
    assert [len(each.list_inputs(outputs)) for each in later] == [0, 1, 1], "other parts of the sources come next"
