"""The recipe `envscaler` from a domain in words to a pack, with hand-written replies."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from simia.config import parse_config, read_config_file
from simia.errors import UserError
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.synthesis import session
from simia.synthesis.recipes.envscaler import EnvScalerConfig, EnvScalerRecipe
from tests.command import invoke
from tests.synthesis.assessment_agents import check_carefully, write_test_call
from tests.synthesis.build_fixtures import list_library_replies, read_files
from tests.synthesis.scenario_fixtures import ServingBackend, list_good_replies

SMALL = {
    "source": "library",
    "building": {"operations": 7, "kept": 6, "random_calls": 20},
    "assessment": {"rounds": 6, "chains": 2, "controls": 2},
    "states": {"number": 1},
    "scenarios": {"number": 2},
}


class LibraryBackend(ServingBackend):
    """Serves the replies of all stages; those of the assessment's agents are made from fixtures."""

    async def complete(self, request: Request, *, draw: str) -> Reply:
        if not draw.startswith("assessment/"):
            return await super().complete(request, draw=draw)
        self.asked.append(draw)
        prompt = str(request.messages[0]["content"])
        answer = write_test_call if ".call" in draw else check_carefully
        return Reply(text=answer(prompt, draw))


def synthesize(folder: Path, monkeypatch: pytest.MonkeyPatch, *, slow: bool = False) -> session.Synthesized:
    backend = LibraryBackend(list_library_replies() | list_good_replies(), slow=slow)
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
    config = parse_config(EnvScalerConfig, SMALL, where="the test")
    return asyncio.run(
        session.start_synthesis(config, folder / "library", runs=folder / "runs", name="run", say=lambda _: None)
    )


def test_a_domain_becomes_a_pack_that_the_gate_passes_and_an_agent_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = synthesize(tmp_path / "one", monkeypatch)
    assert done.stop.kind == "complete", done.stop
    assert not any(done.outputs.refused.values()), done.outputs.refused
    folder = tmp_path / "one" / "library"
    assert done.packs == [folder]
    pack = Pack.load(folder)
    assert (pack.name, len(pack.tools), [task.tags for task in pack.tasks]) == (
        "library", 7, [
            ["conversation"], ["non_conversation"], ["conversation", "missing_parameter"], ["conversation", "missing_function"],
        ] * 2,
    )  # fmt: skip
    provenance = pack.file.provenance if pack.file else None
    assert provenance is not None
    assert (provenance.recipe, provenance.sources[0].name) == ("envscaler", "library")
    assert all(re.fullmatch(r"[0-9a-f]{8,}", hashed) for hashed in provenance.prompts.values())
    assert {"synthesis/scenario_check.j2", "synthesis/tables.j2"} <= provenance.prompts.keys()

    invoke("pack", "validate", str(folder))
    gate = json.loads(invoke("pack", "gate", str(folder), "--json"))
    assert (gate["tasks"], gate["passed"]) == (8, 8)
    assert {gate["floors"][name] for name in ("nothing", "canned", "echo", "policy")} == {0.0}
    monkeypatch.chdir(tmp_path)
    assert re.search(r"mean reward\D+1\.000\D", invoke("rollout", str(folder), "--agent", "reference"))
    assert re.search(r"mean reward\D+0\.000\D", invoke("rollout", str(folder), "--agent", "nothing"))

    again = synthesize(tmp_path / "two", monkeypatch, slow=True)
    assert again.outputs.made == done.outputs.made
    assert read_files(tmp_path / "two" / "library") == read_files(folder)


def test_shipped_configs_are_those_of_the_recipe() -> None:
    paper, small = (
        parse_config(EnvScalerConfig, read_config_file(f"synth/{name}"), where=name)
        for name in ("envscaler", "envscaler_small")
    )
    assert (paper.environments, paper.assessment.rounds, paper.assessment.threshold) == (191, 100, 0.85)
    assert paper.states.number * paper.scenarios.number == 36
    assert (small.assessment.rounds, small.scenarios.execution) == (12, True)
    assert paper.variants == small.variants == ["missing_parameter", "missing_function"]


VERDICTS = [
    {"task": 1, "reason": "It changes loans and fines of a library.", "stateful": True},
    {"task": 2, "reason": "Language knowledge needs no records.", "stateful": False},
    {"task": 3, "reason": "It changes a loan.", "stateful": True},
]
THEMES = [
    {"name": "library", "title": "Lending library", "domain": "a small lending library", "usefulness": 7, "modelability": 9,
     "description": "A lending library. Members borrow books, return them and pay fines."},
    {"name": "book_loans", "title": "Library loans", "domain": "a lending library", "usefulness": 7, "modelability": 8,
     "description": "A lending library. Members borrow books, renew and return them and pay fines."},
]  # fmt: skip


def test_a_file_of_tasks_becomes_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One task needs no state, one row has no text, and the environment of the third is that of the first."""
    replies = {
        "screening/1-3.verdicts": f"```json\n{json.dumps(VERDICTS)}\n```",
        "descriptions/1.theme": f"```json\n{json.dumps(THEMES[0])}\n```",
        "descriptions/3.theme": f"```json\n{json.dumps(THEMES[1])}\n```",
    }
    backend = LibraryBackend(list_library_replies() | list_good_replies() | replies)
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: backend)
    source = Path(__file__).parent / "fixtures" / "discover" / "library_tasks.jsonl"
    config = parse_config(EnvScalerConfig, {**SMALL, "source": str(source), "variants": []}, where="the test")
    folder = tmp_path / "made"
    done = asyncio.run(session.start_synthesis(config, folder, runs=tmp_path / "runs", name="r", say=lambda _: None))
    assert done.stop.kind == "complete", done.stop
    refused = {
        f"{stage}/{key}": str(each.reason)
        for stage, found in done.outputs.refused.items()
        for key, each in found.items()
    }
    assert refused == {"stateful/2": "stateless_task", "themes/library/3": "duplicate_theme"}
    assert all("Glass Harbour" not in backend.prompts[f"design/library.{label}"] for label in ("tables", "operations"))
    assert "A lending library. Members borrow books, return them" in backend.prompts["design/library.tables"]
    assert done.packs == [folder]
    pack = Pack.load(folder)
    assert (pack.name, len(pack.tools), len(pack.tasks)) == ("library", 7, 4)
    assert pack.file is not None
    assert pack.file.provenance is not None
    assert [each.name for each in pack.file.provenance.sources] == ["library_tasks.jsonl"]
    invoke("pack", "validate", str(folder))
    gate = json.loads(invoke("pack", "gate", str(folder), "--json"))
    assert (gate["tasks"], gate["passed"], gate["floors"]["nothing"]) == (4, 4, 0.0)


def test_a_file_of_tasks_has_the_discovery_stages(tmp_path: Path) -> None:
    source = tmp_path / "tasks.txt"
    source.write_text("Move my booking to Friday.\nWhat is the capital of Peru?\n")
    config = EnvScalerConfig(source=str(source))
    recipe = EnvScalerRecipe(config)
    assert [stage.name for stage in recipe.list_stages()] == [
        "screening", "stateful", "descriptions", "clusters", "themes", "design", "examples", "tools", "environments",
        "assessment", "states", "scenarios", "verdicts", "gated", "variants",
    ]  # fmt: skip
    assert recipe.expected()["screening"] == 1


def test_bad_settings_get_one_line() -> None:
    with pytest.raises(UserError, match="the source is missing"):
        EnvScalerRecipe(EnvScalerConfig()).list_stages()
    with pytest.raises(UserError, match="variants"):
        parse_config(EnvScalerConfig, {"variants": ["missing_user"]}, where="the test")
    with pytest.raises(UserError, match="no role is named 'small'"):
        parse_config(EnvScalerConfig, {"difficulty": {"agent": "small"}}, where="the test")
