"""One tool from wrong and hostile replies: each ends in its reason, or is repaired, by execution in the sandbox."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.example_states import write_tool_data
from simia.synthesis.reasons import Reason
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.tools import ToolStage
from tests.synthesis.build_fixtures import FixtureEngine, list_library_replies, load_library, read_reply, run_stages

KEY = "library/get_member"
ITEM = f"tools/{KEY}"


def build_tool(replies: dict[str, str], **settings: Any) -> tuple[StageOutputs, FixtureEngine]:
    """Run the stage for one tool of the library; other replies are right."""
    built = load_library()
    one = built.design.model_copy(update={"tools": [each for each in built.design.tools if each.name == "get_member"]})
    outputs = StageOutputs(made={"design": {"library": dump(one)}, "examples": {"library": built.example}})
    engine = FixtureEngine(list_library_replies() | {f"{ITEM}.{label}": text for label, text in replies.items()})
    return run_stages(engine, [ToolStage(BuildingSettings(**settings))], outputs), engine


LINTED = [
    "uses_network", "uses_clock", "uses_processes", "uses_randomness", "uses_files", "uses_dynamic_code", "uses_private_names",
    "uses_globals", "read_tool_writes", "wrong_method", "signature_differs",
]  # fmt: skip


@pytest.mark.parametrize("fault", LINTED)
def test_the_lint_refuses_with_its_reason(fault: str) -> None:
    """The fixture is named after the reason. Nothing is executed: the method is refused at each of three tries."""
    outputs, engine = build_tool({"method": read_reply(f"wrong/{fault}")})
    refusal = outputs.refused["tools"][KEY]
    assert refusal.reason == Reason(fault)
    assert list(engine.asked) == [f"{ITEM}.method", f"{ITEM}.method.again1", f"{ITEM}.method.again2"]


def test_a_fault_is_shown_and_the_next_reply_is_used() -> None:
    outputs, engine = build_tool(
        {"method": read_reply("wrong/signature_differs"), "method.again1": read_reply("library/tool-get_member")}
    )
    assert outputs.of("tools")[KEY]["tool"]["source"] == load_library().tools["get_member"].source
    shown = engine.asked[f"{ITEM}.method.again1"].messages[-1]["content"]
    assert "the design has no argument verbose" in shown
    assert "member_id is string in the design, integer here" in shown


def test_a_question_shows_the_rows_of_the_tools_tables_and_ids_of_those_that_they_reference() -> None:
    built = load_library()
    tool = next(each for each in built.design.tools if each.name == "return_book")
    shown = write_tool_data(built.design, tool, built.example)
    assert set(orjson.loads(shown[: shown.rindex("}") + 1])) == {"loans", "members"}
    assert shown.splitlines()[-1] == f"books has rows with the ids {', '.join(built.example['books'])}"
    every = write_tool_data(built.design, tool.model_copy(update={"tables": []}), built.example)
    assert orjson.loads(every) == built.example


EXECUTED = {
    "hidden_write": Reason.READ_TOOL_WRITES,
    "endless_loop": Reason.UNEXPECTED_FAILURE,
    "much_memory": Reason.UNEXPECTED_FAILURE,
    "no_refusal": Reason.UNEXPECTED_FAILURE,
    "counts_all_loans": Reason.TESTS_FAIL,
}


@pytest.mark.parametrize("fault", EXECUTED)
def test_execution_refuses_with_its_reason(fault: str) -> None:
    outputs, engine = build_tool({"method": read_reply(f"wrong/{fault}")}, debug_rounds=0)
    assert outputs.refused["tools"][KEY].reason == EXECUTED[fault]
    assert not any("repair" in draw for draw in engine.asked)
    outcomes = outputs.notes["tools"][KEY]["outcomes"]
    assert ("failure" in outcomes) is (EXECUTED[fault] is Reason.UNEXPECTED_FAILURE)


def test_the_tool_is_repaired() -> None:
    good = read_reply("library/tool-get_member")
    outputs, engine = build_tool({"method": read_reply("wrong/no_refusal"), "repair1": good})
    made = outputs.of("tools")[KEY]["tool"]
    assert made["source"] == load_library().tools["get_member"].source
    assert made["repairs"] == 1
    assert outputs.notes["tools"][KEY]["repaired"] == {"tool": 1}
    shown = engine.asked[f"{ITEM}.repair1"].messages[0]["content"]
    assert "- an unknown member: get_member: KeyError" in shown


def test_a_test_that_contradicts_the_design_is_repaired_and_executed() -> None:
    replies = {
        "tests": read_reply("wrong/tests_contradict_design"),
        "repair1": read_reply("wrong/tests_repaired"),
    }
    outputs, _ = build_tool(replies)
    tests = outputs.of("tools")[KEY]["tests"]
    assert [test["expect"].get("result") for test in tests] == [{"tier": "premium", "open_loans": 0}, None]
    figures = outputs.notes["tools"][KEY]
    assert (figures["repaired"], figures["outcomes"]) == ({"test": 1}, {"success": 1, "refusal": 1})


def test_the_state_of_a_test_is_repaired_and_executed() -> None:
    replies = {"tests": read_reply("wrong/tests_lack_state"), "repair1": read_reply("wrong/state_repaired")}
    outputs, _ = build_tool(replies)
    first = outputs.of("tools")[KEY]["tests"][0]
    assert first["initial"]["patch"]["loans"]["LN-0006"]["member_id"] == "MB-03"
    assert outputs.notes["tools"][KEY]["repaired"] == {"state": 1}


def test_the_debug_loop_ends() -> None:
    """Each round changes something, and nothing gets better: the tool is dropped after as many rounds as the settings allow."""
    replies = {"method": read_reply("wrong/no_refusal"), "repair1": read_reply("wrong/counts_all_loans")}
    replies |= {"repair2": read_reply("wrong/no_refusal")}
    outputs, engine = build_tool(replies, debug_rounds=2)
    assert outputs.refused["tools"][KEY].reason == Reason.UNEXPECTED_FAILURE
    assert [draw for draw in engine.asked if "repair" in draw] == [f"{ITEM}.repair1", f"{ITEM}.repair2"]


def test_a_repair_that_changes_nothing_is_not_taken() -> None:
    same = read_reply("wrong/counts_all_loans")
    outputs, engine = build_tool({"method": same, "repair1": same})
    assert outputs.refused["tools"][KEY].reason == Reason.TESTS_FAIL
    assert outputs.refused["tools"][KEY].detail == "repair1: the method is the same as before"
    assert f"{ITEM}.repair1.again2" in engine.asked


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tests_that_cannot_fail", "`result` is missing, so the test cannot fail"),
        ("tests_of_wrong_types", "a call that the schema refuses tests nothing"),
    ],
)
def test_tests_that_test_nothing_are_refused(name: str, words: str) -> None:
    outputs, _ = build_tool({"tests": read_reply(f"wrong/{name}")})
    refusal = outputs.refused["tools"][KEY]
    assert refusal.reason == Reason.INVALID_TESTS
    assert words in refusal.detail


def test_without_execution_wrong_tools_are_accepted() -> None:
    outputs, _ = build_tool({"method": read_reply("wrong/no_refusal")}, execution=False)
    assert outputs.of("tools")[KEY]["tool"]["source"].startswith("@read\ndef get_member")


def test_more_tools_than_operations_are_refused() -> None:
    with pytest.raises(ValueError, match=r"kept is 8, more than operations \(6\)"):
        BuildingSettings(operations=6, kept=8)
