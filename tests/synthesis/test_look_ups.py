"""Look-ups that a reference solution gets: an agent that follows it names no key that it was not told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.sandbox.limits import WorkerLimits
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.look_ups import KnownKeys, add_look_ups, list_amounts, list_arguments
from simia.synthesis.scenarios.solution_runs import play_solution
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.gated import Gated, ScenarioTasks, Verdicts
from simia.synthesis.stages.scenarios import Scenarios, ScenarioSettings
from simia.task import Action
from simia.tool import ToolSpec
from tests.synthesis.build_fixtures import FixtureEngine, load_library, run_stages
from tests.synthesis.scenario_fixtures import GOOD
from tests.synthesis.test_assessment import break_tool

SOLUTION = [
    Action(name="return_book", arguments={"loan_id": "LN-0002"}),
    Action(name="pay_fine", arguments={"member_id": "MB-04", "amount": "$1.fine"}),
    Action(name="lend_book", arguments={"member_id": "MB-04", "book_id": "BK-005"}),
]


def look_up(folder: Path, *said: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls of the solution with look-ups, for a user who says these texts."""
    built = load_library()
    write_environment(folder / "pack", built)
    tools = [tool.spec for tool in built.tools.values() if not tool.writes]

    async def go() -> list[Action]:
        backend = ExecutableBackend(Pack.load(folder / "pack"), limits=WorkerLimits(cpu=4))
        try:
            played = await play_solution(backend, built.example, SOLUTION)
            assert played.fault is None
            calls = await add_look_ups(backend, built.example, played, said, tools)
            again = await play_solution(backend, built.example, calls)
            assert again.fault is None
            return calls
        finally:
            await backend.close()

    return [(call.name, call.arguments) for call in asyncio.run(go())]


def test_a_key_is_looked_up_by_what_the_user_says(tmp_path: Path) -> None:
    assert look_up(tmp_path, "MB-04 here, I return 'The Salt Road' and take 'Glass Harbour'.") == [
        ("list_loans", {"member_id": "MB-04"}),
        ("return_book", {"loan_id": "LN-0002"}),
        ("pay_fine", {"member_id": "MB-04", "amount": "$2.fine"}),
        ("search_books", {"word": "Glass Harbour"}),
        ("lend_book", {"member_id": "MB-04", "book_id": "BK-005"}),
    ]


def test_what_the_user_says_is_not_looked_up(tmp_path: Path) -> None:
    assert look_up(tmp_path, "LN-0002 and then BK-005 for mb-04") == [(call.name, call.arguments) for call in SOLUTION]


def test_a_key_counts_as_said_only_if_every_mode_says_it(tmp_path: Path) -> None:
    names = [name for name, _ in look_up(tmp_path, "MB-04, LN-0002, BK-005", "MB-04, LN-0002, Glass Harbour")]
    assert names == ["return_book", "pay_fine", "lend_book"], "the title is not said in every mode"
    names = [
        name
        for name, _ in look_up(
            tmp_path / "b", "MB-04, LN-0002, BK-005 or Glass Harbour", "MB-04, LN-0002, Glass Harbour"
        )
    ]
    assert names == ["return_book", "pay_fine", "search_books", "lend_book"]


def test_a_key_that_nothing_finds_has_no_look_up(tmp_path: Path) -> None:
    assert [name for name, _ in look_up(tmp_path, "Please do what I want.")] == [call.name for call in SOLUTION]


def test_arguments_are_the_required_ones_from_known_values() -> None:
    def spec(**properties: Any) -> ToolSpec:
        return ToolSpec(name="t", parameters={"type": "object", "properties": properties, "required": list(properties)})

    genre = {"type": "string", "enum": ["a", "b"]}
    assert list(list_arguments(spec(word={"type": "string"}, genre=genre), ["x"])) == [
        {"word": "x", "genre": "a"},
        {"word": "x", "genre": "b"},
    ]
    assert list(list_arguments(spec(number={"type": "integer"}), ["x"])) == []
    assert list(list_arguments(spec(), ["x"])) == [{}]


def test_a_filter_is_an_optional_text_that_is_known() -> None:
    properties = {
        "member_id": {"type": ["string", "null"]},
        "open": {"type": "boolean"},
        "tier": {"type": "string", "enum": ["a"]},
    }
    spec = ToolSpec(name="t", parameters={"type": "object", "properties": properties})
    assert list(list_arguments(spec, ["MB-01", "x"], ["MB-01"])) == [{}, {"member_id": "MB-01"}]


STATE = {
    "guests": {"GU-01": {"name": "Anna Berg"}, "GU-02": {"name": "Anna Bergh"}},
    "stays": {"RS-01": {"guest_id": "GU-01", "room_id": "RM-01"}, "RS-02": {"guest_id": "GU-02", "room_id": "RM-02"}},
    "rooms": {"RM-01": {"number": "101"}, "RM-02": {"number": "102"}},
}


def test_a_key_is_known_if_a_record_links_it_to_what_the_user_says() -> None:
    known = KnownKeys(STATE, ["Anna Berg leaves."])
    known.add_result({}, '[{"stay": "RS-01", "guest": "GU-01"}, {"stay": "RS-02", "guest": "GU-02"}]')
    assert known.keys == set(), "a list of all stays does not say which guest is meant"
    known.add_result({}, '[{"guest": "GU-01", "name": "Anna Berg"}, {"guest": "GU-02", "name": "Anna Bergh"}]')
    assert known.keys == {"GU-01", "RS-01"}, "Anna Bergh is another guest"


def test_a_key_that_the_user_names_is_not_known_by_another_record() -> None:
    known = KnownKeys(STATE, ["Anna Berg moves to 102."])
    known.add_result({"stay": "RS-01"}, '{"guest": "GU-01", "rooms": [{"room": "RM-02"}]}')
    assert known.keys == set()
    known.add_result({}, '{"RM-02": {"number": "102"}}')
    assert "RM-02" in known.keys


def test_amounts_are_large_numbers_at_any_depth() -> None:
    assert list(list_amounts({"a": [120, 3, True, {"b": -450.5}], "c": "700"})) == [120, -450.5]


@pytest.mark.parametrize("fault", ["list_loans ends the process", "get_member writes"])
def test_a_wrong_reading_tool_costs_the_look_ups_at_most(fault: str) -> None:
    """A tool that ends the process leaves the solution as it was written; one that writes is not part of a solution that changes more."""
    built, modes = break_tool(fault), ScenarioSettings().modes
    state = {"environment": "library", "state": built.example}
    outputs = StageOutputs(made={"environments": {"library": dump(built)}, "states": {"library/0": state}})
    replies = {f"scenarios/library/0/0.{label}": text for label, text in GOOD["scenarios/library/0/1"].items()}
    stages = [
        Scenarios(ScenarioSettings(number=1), 0),
        Verdicts(ScenarioTasks(modes)),
        Gated(ScenarioTasks(modes), TaskDifficultySettings()),
    ]
    found = run_stages(FixtureEngine(replies), stages, outputs)
    assert not any(found.refused.values()), found.refused
    (made,) = found.of("scenarios").values()
    written = [call["name"] for call in made["solution"] if call["name"] not in ("list_loans", "search_books")]
    assert written == ["return_book", "pay_fine", "lend_book"]
    assert ("list_loans" in [call["name"] for call in made["solution"]]) is (fault == "get_member writes")
