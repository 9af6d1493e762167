"""Goals judged by what their calls return, tools that run before they are listed, and code that judges arguments itself."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from simia.authoring.scaffold import scaffold_pack
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.errors import Code
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message
from tests.envs.test_new_tasks import ADD, Steps, call, make_task, play_with, say, value_of

LIST = {"name": "list_todos", "arguments": {"open_only": True}}
BOTH: list[dict[str, Any]] = [{"kind": "state"}, {"kind": "results"}]
TURNS: list[dict[str, Any]] = [
    {"query": "What is open?", "calls": [LIST], "parts": BOTH},
    {"query": "Put milk on my list, and tell me what is open then.", "calls": [ADD, LIST], "parts": BOTH},
    {"query": "Thank you.", "parts": [{"kind": "results"}]},
]
OPEN, MILK, DONE = call("list_todos", open_only=True), call("add_todo", text="Buy milk"), say("Done.")
WRONG, BREAD = call("finish_todo", todo_id="T-9999"), call("add_todo", text="Buy bread")


@pytest.fixture
def todo(tmp_path: Path) -> Path:
    scaffold_pack(tmp_path / "todo")
    return tmp_path / "todo"


@pytest.mark.parametrize(
    ("messages", "expected", "reason"),
    [
        ([OPEN, DONE, MILK, OPEN, DONE], 1.0, "3 of 3 goals"),
        ([OPEN, DONE, MILK, OPEN, OPEN, DONE, OPEN, DONE], 1.0, "3 of 3 goals"),  # more calls that read do no harm
        ([DONE, OPEN, MILK, OPEN, DONE], 0.0, "goal 1: .*no call was made in this turn"),
        ([OPEN, DONE, MILK, DONE], 0.0, "goal 2: .*1 of 2 results returned; missing: "),
        ([WRONG, DONE, MILK, OPEN, DONE], 0.0, "goal 1: .*0 of 1 result returned"),
        ([OPEN, DONE, MILK, OPEN, DONE, BREAD, DONE], 1.0, "3 of 3 goals"),  # the last turn is not judged
    ],
)
async def test_results_are_compared_after_each_turn(
    todo: Path, messages: list[Message], expected: float, reason: str
) -> None:
    played = await play_with(todo, make_task(goals=TURNS), Steps(*messages))
    assert value_of(played) == expected
    assert played.reward is not None
    assert re.search(reason, played.reward.rationale)


async def test_a_result_of_an_earlier_turn_counts_but_each_only_once(todo: Path) -> None:
    twice = [{"query": "What is open?", "calls": [LIST, LIST], "parts": [{"kind": "results"}]}]
    assert value_of(await play_with(todo, make_task(goals=twice), Steps(OPEN, DONE))) == 0.0
    assert value_of(await play_with(todo, make_task(goals=twice), Steps(OPEN, OPEN, DONE))) == 1.0
    later = [
        {"query": "Look at the list.", "parts": [{"kind": "results"}]},
        {"query": "What is open?", "calls": [LIST], "parts": [{"kind": "results"}]},
    ]
    assert value_of(await play_with(todo, make_task(goals=later), Steps(OPEN, DONE, WRONG, DONE))) == 1.0
    assert value_of(await play_with(todo, make_task(goals=later), Steps(OPEN, DONE, DONE))) == 0.0


async def test_the_reference_scores_one_and_doing_nothing_zero(todo: Path) -> None:
    task = make_task(goals=TURNS)
    assert value_of(await play_with(todo, task, ReferenceAgent(task))) == 1.0
    assert value_of(await play_with(todo, task, NothingAgent(task))) == 0.0


def test_results_belong_to_a_goal() -> None:
    with pytest.raises(ValidationError, match="a part of kind results belongs to a goal"):
        make_task(instruction="Hello", reward={"parts": [{"kind": "results"}]})


async def test_a_tool_may_run_before_it_is_listed(todo: Path) -> None:
    fields: dict[str, Any] = {"goals": [{"query": "Put milk on my list.", "calls": [ADD]}, {"query": "And now?"}]}
    reveal: dict[str, Any] = {"turn": 2, "tools": ["add_todo"]}
    task = make_task(**fields, reveals=[{**reveal, "runs": True}])
    async with await open_environment(Pack.load(todo), user="none") as environment:
        episode = await environment.reset(task)
        assert "add_todo" not in [tool.name for tool in episode.view.all_tools]
        assert (await episode.step(MILK)).messages[0].error is None
        await episode.close()
    # Tasks that do not use it keep their hashes.
    plain = make_task(**fields, reveals=[reveal])
    assert plain.identity["reveals"] == [reveal]
    assert task.identity["reveals"] == [{**reveal, "runs": True}]
    assert Task.model_validate(task.model_dump()) == task


async def test_code_may_judge_arguments_itself(todo: Path) -> None:
    wrong = call("list_todos", open_only="yes")
    head = yaml.safe_load((todo / "pack.yaml").read_text(encoding="utf-8"))
    found = []
    for checks in (True, False):
        head["executable"]["checks_arguments"] = checks
        (todo / "pack.yaml").write_text(yaml.safe_dump(head), encoding="utf-8")
        async with await open_environment(Pack.load(todo), user="none") as environment:
            episode = await environment.reset(environment.tasks[0])
            found.append((await episode.step(wrong)).messages[0].error)
            await episode.close()
    assert found == [Code.BAD_ARGUMENTS, None]
