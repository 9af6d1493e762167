"""Stage `gyms`: a good reply becomes a gym; wrong and hostile ones are refused with their reason, or repaired."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from simia.synthesis.design import GymEnvironment
from simia.synthesis.gyms.function_runs import FunctionLimits
from simia.synthesis.gyms.problem_files import read_problems
from simia.synthesis.reasons import Refused, Unreadable
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageInput, StageOutputs
from simia.synthesis.stages.gyms import GymStage
from simia.synthesis.stages.problems import ProblemStage
from tests.synthesis.closest_gym import ReplyContext, make_closest_problem, read_reply

LABELS = ("draft", "repair1", "repair2", "repair3")


def make(context: ReplyContext, repairs: int = 3) -> dict[str, Any]:
    given = StageInput("closest", dump(make_closest_problem()))
    made: dict[str, Any] = asyncio.run(GymStage(repairs=repairs).make(given, context))
    return made


def refuse(name: str) -> Refused:
    with pytest.raises(Refused) as found:
        make(ReplyContext({"draft": read_reply(name)}), repairs=0)
    return found.value


def test_a_good_reply_becomes_a_gym_with_executed_examples() -> None:
    context = ReplyContext({"draft": read_reply("closest_number")})
    gym = GymEnvironment.model_validate(make(context))
    assert [tool.name for tool in gym.tools] == ["observe", "look_up", "measure_distance", "compare", "mark", "done"]
    assert gym.tool_writes == ["mark", "done"]
    assert gym.tools[1].parameters["properties"] == {
        "index": {"type": "integer", "description": "The place, counted from 0"}
    }
    assert gym.examples["compare"] == "compare(first=0, second=1) -> first"
    assert gym.examples["done"] == 'done(answer=3) -> {"submitted":true}'
    assert {test.call.name for test in gym.tests} == {tool.name for tool in gym.tools}
    assert "TASK" not in gym.code
    assert "EXAMPLE_CALLS" not in gym.code
    assert gym.task.startswith("A sorted list of integers is hidden.")
    assert context.notes["repairs"] == 0
    assert context.notes["calls"] > 60
    assert '{"numbers": [3, 9], "target": 5} -> 3' in context.prompts["draft"]


def test_a_gym_of_a_shipped_problem_with_work_in_progress_in_its_state() -> None:
    (source,) = [each for each in read_problems("problems/problems.jsonl") if each.id == "ferry-trip"]
    stage = ProblemStage([source], FunctionLimits())
    problem = asyncio.run(stage.make(stage.list_inputs(StageOutputs())[0], ReplyContext({})))
    context = ReplyContext({"draft": read_reply("ferry_trip")})
    made = asyncio.run(GymStage(repairs=0).make(StageInput("ferry-trip", problem), context))
    assert made["tool_writes"] == ["record_arrival", "close_next", "done"]
    assert made["examples"]["close_next"] == 'close_next() -> {"island":0,"minutes":0}'
    assert context.notes["calls"] > 200


@pytest.mark.parametrize(
    ("reply", "reason", "words"),
    [
        ("hostile_observe_returns_list", "observe_reveals", "whole input `numbers`"),
        ("hostile_observe_returns_text", "observe_reveals", "whole input `numbers`"),
        ("hostile_tool_returns_list", "observe_reveals", "returns the whole input"),
        ("hostile_done_prints_answer", "answer_revealed", "`done` uses state.numbers, state.target"),
        ("hostile_done_says_whether_right", "answer_revealed", "depends on the inputs"),
        ("hostile_error_names_answer", "answer_revealed", "name the answer"),
        ("hostile_tool_solves_task", "answer_revealed", "`find_best` returns the answer"),
        ("hostile_network", "gym_unsafe", "import urllib.request"),
        ("hostile_clock_and_shell", "gym_unsafe", "import of os"),
        ("hostile_endless_loop", "gym_fails", "measure_distance(index=0) fails"),
        ("hostile_schema_lies", "gym_fails", 'look_up(index="1") fails: TypeError'),
        ("wrong_index_error", "gym_fails", "IndexError"),
        ("wrong_no_docstring_line", "gym_malformed", "no line for index under `Args:`"),
        ("wrong_example_call", "gym_fails", "example call look_up(index=7) is refused"),
        ("wrong_state_changes_input", "gym_malformed", "does not keep the inputs"),
        ("wrong_second_answer", "gym_malformed", "`mark` uses self.state.answer"),
    ],
)
def test_a_faulty_gym_is_refused_with_what_is_wrong(reply: str, reason: str, words: str) -> None:
    refused = refuse(reply)
    assert (str(refused.reason), words in refused.detail) == (reason, True), refused


def test_a_refusal_of_a_reading_tool_that_has_written_is_no_fault() -> None:
    """The sandbox restores the state, so the trial sees no change."""
    made = make(ReplyContext({"draft": read_reply("hostile_read_mutates_then_raises")}))
    assert made["tool_writes"] == ["mark", "done"]


def test_a_reply_without_code_is_unreadable() -> None:
    with pytest.raises(Unreadable, match="is not Python"):
        make(ReplyContext({"draft": read_reply("wrong_no_block")}))


def test_a_fault_is_shown_and_repaired() -> None:
    replies = ("wrong_index_error", "hostile_observe_returns_list", "closest_number")
    context = ReplyContext(dict(zip(LABELS, map(read_reply, replies), strict=False)))
    made = make(context)
    assert made["tool_writes"] == ["mark", "done"]
    assert "IndexError" in context.prompts["repair1"]
    assert "def look_up" in context.prompts["repair1"].partition("Your last version")[2]
    assert "whole input `numbers`" in context.prompts["repair2"]
    assert context.notes["repairs"] == 2
    assert context.notes["faults"] == ["gym_fails", "observe_reveals"]


def test_repairs_end_after_three_rounds() -> None:
    context = ReplyContext(dict.fromkeys(LABELS, read_reply("hostile_tool_solves_task")))
    with pytest.raises(Refused, match="answer_revealed"):
        make(context)
    assert list(context.prompts) == list(LABELS)


def test_the_same_replies_make_the_same_gym() -> None:
    assert make(ReplyContext({"draft": read_reply("closest_number")})) == make(
        ReplyContext({"draft": read_reply("closest_number")})
    )


def test_a_gym_is_made_for_each_unified_problem() -> None:
    outputs = StageOutputs(made={"problems": {"closest": dump(make_closest_problem())}})
    assert [each.key for each in GymStage().list_inputs(outputs)] == ["closest"]
