"""Sources: what is read of each kind, which quotes are found in them, which tools a design keeps, and a search function."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from simia.config import parse_config
from simia.errors import UserError
from simia.pack import Pack
from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.building.tool_runs import open_sandbox, run_tool_tests
from simia.synthesis.context import ItemContext
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.recipes.envfactory import EnvFactoryConfig, EnvFactoryRecipe
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.sources.given_tools import fill_given_tools
from simia.synthesis.sources.html_text import extract_text
from simia.synthesis.sources.pool_packs import read_pool
from simia.synthesis.sources.proposal import Proposal, ProposalSettings, ground_proposal, read_proposals
from simia.synthesis.sources.source_document import GivenTool, SourceDocument, group_documents
from simia.synthesis.sources.source_reading import find_sources, read_source
from simia.synthesis.sources.source_tools import convert_tool
from simia.synthesis.stages.design import DesignStage
from simia.tool import ToolSpec
from tests.synthesis.build_fixtures import FixtureEngine, load_library, run_stages
from tests.synthesis.source_fixtures import BAD, DOCUMENTS, GOOD, PROPOSALS, make_packs

PAGE = """<html><head><title>No text</title><style>p {color: red}</style></head><body><h1>Fees</h1>
<p>Each day that has <b>begun</b>
costs 1.50&nbsp;euros.</p><script>alert("hidden")</script><ul><li>Cards are free.</li></ul></body></html>"""


def read_all(*sources: Path | str) -> dict[str, SourceDocument]:
    return {place.name: read_source(place) for place in find_sources(list(map(str, sources)))}


def test_each_kind_of_source_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "fees.html").write_text(PAGE)
    (tmp_path / "notes.txt").write_bytes(b"\xef\xbb\xbfPlots are free at once.")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "rows.json").write_text('{"rows": []}')
    (tmp_path / ".hidden.md").write_text("hidden")
    found = read_all(tmp_path, tmp_path / "notes.txt", DOCUMENTS)
    assert list(found) == ["a/fees.html", "notes.txt", "locker-rules.md", "lockers.yaml"]
    assert found["a/fees.html"].passages == ["Fees\n\nEach day that has begun costs 1.50 euros.\n\nCards are free."]
    assert found["notes.txt"].passages == ["Plots are free at once."]
    assert [tool.writes for tool in found["lockers.yaml"].tools] == [False, None, None]
    assert "hidden" not in extract_text(PAGE)


def test_a_pack_is_a_source_with_its_tools(tmp_path: Path) -> None:
    write_environment(tmp_path / "library", load_library())
    found = read_all(tmp_path / "library")["library"]
    assert found.find_quote("A member who owes fines borrows nothing and renews nothing until the fines are paid.")
    assert {tool.name: tool.writes for tool in found.tools}["lend_book"] is True
    assert {tool.name: tool.writes for tool in found.tools}["search_books"] is False


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("empty.md", b" \n", "is empty"),
        ("latin.txt", b"Stra\xdfe", "not UTF-8 text"),
        ("api.yaml", b"openapi: 3.1.0\npaths: {}\n", "no operation"),
        ("old.json", b'{"swagger": "2.0", "x": "openapi"}', "convert it to OpenAPI 3"),
    ],
)
def test_what_cannot_be_read_gets_a_line(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=fault):
        read_all(tmp_path / name)


def test_a_source_that_cannot_be_read_is_refused_and_the_others_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"Stra\xdfe")
    sources = [tmp_path / "latin.txt", DOCUMENTS, "mcp:/nowhere/server --stdio"]
    replies = {PROPOSALS: "```json\n[]\n```"}
    done, _ = make_packs(tmp_path, monkeypatch, sources, replies)
    assert done.stop.kind == "complete"
    reasons = {key: refusal.reason for key, refusal in done.outputs.refused["sources"].items()}
    assert reasons == {"latin_txt": "source_unreadable", "server_stdio": "source_unreadable"}
    assert (list(done.outputs.made["sources"]), done.packs) == (["locker_rules_md", "lockers_yaml"], [])
    assert "proposals2" not in done.outputs.made, "a round after one that found nothing in the same sources"


def test_quotes_are_found_to_the_letter_within_one_passage() -> None:
    found = read_all(DOCUMENTS)
    rules, api = found["locker-rules.md"], found["lockers.yaml"]
    assert rules.find_quote("A courier takes back what is left after that; the recipient then")  # over a line's end
    assert rules.find_quote("A wrong code is refused, and the door stays closed.")
    assert not rules.find_quote("A wrong code is accepted, and the door stays closed.")
    assert not rules.find_quote("a wrong code IS REFUSED, and the door stays closed.")
    assert not rules.find_quote("72 hours")
    assert not api.find_quote("Store a parcel in a free compartment A courier stores a parcel")
    assert not api.find_quote("listCompartments(lockerId, size?)")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("invented_quotes", Reason.QUOTE_NOT_FOUND),
        ("quotes_too_short", Reason.QUOTE_NOT_FOUND),
        ("unknown_source", Reason.QUOTE_NOT_FOUND),
        ("of_little_use", Reason.LOW_USEFULNESS),
    ],
)
def test_bad_proposals_are_refused(name: str, reason: Reason) -> None:
    with pytest.raises(Refused) as refused:
        ground_proposal(Proposal.model_validate(BAD[name]), read_all(DOCUMENTS), ProposalSettings(), 4)
    assert refused.value.reason is reason


def test_invented_tools_and_quotes_are_left_out_of_a_grounded_proposal() -> None:
    proposal = read_proposals(GOOD[PROPOSALS], 4)[0]
    more = {"source": "lockers.yaml", "name": "openEveryDoor"}
    row = proposal.model_dump() | {
        "tools": [more, *proposal.model_dump()["tools"]],
        "quotes": [
            *proposal.model_dump()["quotes"],
            {"source": "locker-rules.md", "text": "Doors open by themselves at night."},
        ],
    }
    found = ground_proposal(Proposal.model_validate(row), read_all(DOCUMENTS), ProposalSettings(), 2)
    assert [tool.name for tool in found.tools] == ["listCompartments", "storeParcel"]
    assert sum(len(each.quotes) for each in found.sources) == 3
    assert found.refused == [
        "locker-rules.md does not say 'Doors open by themselves at night.'",
        "lockers.yaml has no tool openEveryDoor",
        "lockers.yaml: collectParcel is left out: 2 tools are kept already",
    ]
    with pytest.raises(Unreadable, match="`quotes` is empty"):
        read_proposals(json.dumps([{**row, "quotes": []}]), 4)


def test_long_sources_are_divided_and_lose_nothing() -> None:
    documents = list(read_all(DOCUMENTS).values())
    groups = group_documents(documents, 300)
    assert all(sum(len(each["text"]) + sum(map(len, each["tools"])) for each in group) <= 300 + 60 for group in groups)
    shown = " ".join(each["text"] for group in groups for each in group)
    assert all(" ".join(word.split()) in " ".join(shown.split()) for word in documents[1].passages)
    assert [line.partition("(")[0] for group in groups for each in group for line in each["tools"]] == [
        tool.name for tool in documents[1].tools
    ]


def test_names_that_python_cannot_have_are_changed_as_little_as_possible() -> None:
    properties = {
        name: {"type": "string"} for name in ("from", "X-Request-ID", "self", "2nd", "camelCase", "x.request.id")
    }
    spec = ToolSpec(
        name="mail/send-message", parameters={"type": "object", "properties": properties, "required": ["from", "2nd"]}
    )
    tool = convert_tool(spec, None, ["mail_send_message"])
    assert tool.name == "mail_send_message_2"
    assert list(tool.parameters["properties"]) == [
        "from_",
        "X_Request_ID",
        "self_",
        "a_2nd",
        "camelCase",
        "x_request_id",
    ]
    assert tool.parameters["required"] == ["from_", "a_2nd"]


def test_a_design_keeps_given_tools_whatever_the_reply_says() -> None:
    given = [
        GivenTool(name="storeParcel", description="Store", parameters={"type": "object", "properties": {}}, writes=True)
    ]
    row = {
        "name": "storeParcel",
        "description": "Other words",
        "parameters": {"type": "array"},
        "writes": False,
        "tables": ["t"],
    }
    own = {"name": "other", "description": "Own", "writes": True, "given": True, "tables": ["t"]}
    kept, free = fill_given_tools([row, own], given)
    assert (kept["description"], kept["parameters"], kept["writes"], kept["given"]) == (
        "Store", given[0].parameters, True, True,
    )  # fmt: skip
    assert "given" not in free
    with pytest.raises(Unreadable, match="storeParcel is missing"):
        fill_given_tools([own], given)
    stage = DesignStage(
        BuildingSettings(operations=2, kept=2), [{"domain": "lockers", "tools": [given[0].model_dump()]}]
    )
    engine = FixtureEngine({
        "design/lockers.tables": GOOD["design/parcel_lockers.tables"],
        "design/lockers.operations": json.dumps([own | {"tables": ["lockers"]}, own | {"name": "others", "writes": False, "tables": ["lockers"]}]),
    })  # fmt: skip
    refused = run_stages(engine, [stage]).refused["design"]["lockers"]
    assert (refused.reason, "storeParcel is missing" in refused.detail) == ("invalid_design", True)


def test_the_pool_is_read_from_names_and_folders(tmp_path: Path) -> None:
    write_environment(tmp_path / "packs" / "library", load_library())
    pool = read_pool(["customer_service", str(tmp_path / "packs")])
    assert [entry.name for entry in pool] == ["customer_service", "library"]
    assert "lend_book" in pool[1].tools
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no pack"):
        read_pool([str(tmp_path / "empty")])


SEARCH = """
ASKED = []


def find(query):
    ASKED.append(query)
    return [{"name": "Rules of lockers", "text": open(r"%s").read(), "licence": "CC0-1.0", "rank": 1}]


def fails(query):
    raise RuntimeError("no network")


def other(query):
    return [{"title": "no text"}]
"""


@pytest.mark.parametrize(("function", "fault"), [("find", ""), ("fails", "no network"), ("other", "is not a document")])
def test_a_search_function_finds_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, fault: str
) -> None:
    (tmp_path / "search.py").write_text(SEARCH % (DOCUMENTS / "locker-rules.md"))
    search = {"function": f"{tmp_path / 'search.py'}:{function}", "queries": 1}
    replies = GOOD | {
        "search1/all.queries": '```json\n["rules of parcel lockers", "a second one"]\n```',
        PROPOSALS: GOOD[PROPOSALS].replace("locker-rules.md", "Rules of lockers"),
    }
    done, backend = make_packs(
        tmp_path, monkeypatch, [DOCUMENTS / "lockers.yaml"], replies, search=search, proposals={"rounds": 1}
    )
    assert done.stop.kind == "complete", done.stop
    assert "Customer service of a small online shop" in backend.prompts["search1/all.queries"]
    if fault:
        assert done.outputs.refused["search1"]["all"].reason == "search_fails"
        assert fault in done.outputs.refused["search1"]["all"].detail
        assert done.outputs.refused["proposals"]["round1/1"].reason == "quote_not_found"
        return
    head = Pack.load(done.packs[0]).file
    assert head is not None
    assert head.provenance is not None
    assert [(each.name, each.licence) for each in head.provenance.sources] == [
        ("Rules of lockers", "CC0-1.0"), ("lockers.yaml", "Apache-2.0"),
    ]  # fmt: skip


async def test_a_state_that_is_not_read_as_it_was_written_fails_its_test() -> None:
    row: dict[str, Any] = load_library().model_dump(mode="json")
    row["tools"]["lend_book"]["source"] = row["tools"]["lend_book"]["source"].replace("= Loan(", "= dict(")
    test = next(each for each in row["tests"] if each["name"] == "lend_book: a free copy")
    test["expect"]["changes"] = {"loans.*": {"book_id": "BK-003"}}
    reasons = []
    for given in (row, load_library().model_dump(mode="json")):
        built = BuiltEnvironment.model_validate({**given, "tests": [test]})
        context = ItemContext("tools/library/lend_book", {}, SamplingSettings(), asyncio.Semaphore(1))
        async with open_sandbox(context, built) as backend:
            reasons += [run.reason for run in await run_tool_tests(backend, built.design, built.tests)]
    assert reasons == [Reason.STATE_NOT_ROUND, None]


def test_bad_names_in_a_config_are_refused() -> None:
    config = parse_config(
        EnvFactoryConfig, {"sources": [str(DOCUMENTS)], "search": {"function": "nothing"}}, where="the test"
    )
    with pytest.raises(UserError, match="write it as FILE"):
        EnvFactoryRecipe(config).list_stages()[0].list_inputs(None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="names no command"):
        parse_config(EnvFactoryConfig, {"sources": ["mcp:"]}, where="the test")
