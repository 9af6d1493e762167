"""Tasks of format 2, played in the executable world: goals, revealed tools, withheld facts, limits, penalties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.authoring.scaffold import scaffold_pack
from simia.envs.environment import Step
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.envs.rewards import score_trajectory
from simia.envs.users import UserStop
from simia.errors import Code
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory


def call(name: str, **arguments: Any) -> Message:
    return Message(role="assistant", calls=[ToolCall(id="1", name=name, arguments=arguments)])


def say(text: str) -> Message:
    return Message(role="assistant", content=text)


def value_of(played: Trajectory | Step) -> float | None:
    assert played.reward is not None
    return played.reward.value


@pytest.fixture(scope="module")
def todo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packs") / "todo"
    scaffold_pack(folder)
    return folder


def make_task(**fields: Any) -> Task:
    return Task.model_validate({"id": "new-1", **fields})


async def play_with(folder: Path, task: Task, agent: Any, user: str = "none", **settings: Any) -> Trajectory:
    async with await open_environment(Pack.load(folder), user=user, **settings) as environment:
        return await play(await environment.reset(task), agent)


class Steps:
    """Sends these messages, then says that it is done."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)

    async def act(self, view: Any) -> tuple[Message, None]:
        return (self.messages.pop(0) if self.messages else say("Done.")), None


ADD = {"name": "add_todo", "arguments": {"text": "Buy milk"}}
THREE_GOALS: list[dict[str, Any]] = [
    {"query": "Put milk on my list.", "calls": [ADD]},
    {"query": "What is open?", "calls": [{"name": "list_todos", "mask": ["open_only"]}], "parts": [{"kind": "trace"}]},
    {"query": "The plants are watered.", "calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}]},
]


async def test_three_goals_are_judged_each_after_its_turn(todo: Path) -> None:
    task = make_task(goals=THREE_GOALS)
    reference = await play_with(todo, task, ReferenceAgent(task))
    assert value_of(reference) == 1.0
    assert [m.text for m in reference.messages if m.role == "user"] == [goal["query"] for goal in THREE_GOALS]
    assert reference.evidence is not None
    assert [len(turn["changes"]) for turn in reference.evidence["turns"]] == [1, 1, 2]
    scripted = await play_with(todo, task, ReferenceAgent(task), user="scripted")
    assert value_of(scripted) == 1.0
    nothing = await play_with(todo, task, NothingAgent(task))
    assert value_of(nothing) == 0.0
    # The same final state, but the first goal is reached only in the second turn.
    late = Steps(
        say("Later."),
        call("add_todo", text="Buy milk"),
        call("list_todos"),
        say("1"),
        call("finish_todo", todo_id="T-1001"),
    )
    found = await play_with(todo, task, late)
    assert value_of(found) == 0.0
    assert found.reward is not None
    assert "goal 1" in found.reward.rationale
    half = task.model_copy(
        update={"reward": task.reward.model_validate({"parts": [{"kind": "goals", "partial": True}]})}
    )
    part = await play_with(
        todo, half, Steps(call("add_todo", text="Buy milk"), say("Done."), call("list_todos", open_only=True))
    )
    assert value_of(part) == pytest.approx(2 / 3)


async def test_a_goal_that_is_never_reached_is_not_done(todo: Path) -> None:
    task = make_task(goals=THREE_GOALS)
    cut = await play_with(todo, task, Steps(call("add_todo", text="Buy milk")), episode={"turns": 2})
    assert cut.end.code is Code.MAX_TURNS
    assert value_of(cut) == 0.0
    assert cut.reward is not None
    assert "1 of 3 goals reached" in cut.reward.rationale


TWO_GOALS: list[dict[str, Any]] = [
    {"query": "Put something on my list.", "calls": [ADD]},
    {"query": "The plants are watered.", "calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}]},
]
ADDED, WATERED = call("add_todo", text="Buy milk"), call("finish_todo", todo_id="T-1001")


@pytest.mark.parametrize("user", ["none", "scripted"])
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([say("What should I add?"), ADDED, say("Done."), WATERED], 1.0),
        ([say("What should I add?"), say("No."), ADDED, say("Done."), WATERED], 0.0),
        ([ADDED, say("Done."), WATERED], 1.0),
    ],
)
@pytest.mark.parametrize("scoring", ["rules", "trace_state"])
async def test_an_answer_of_the_user_opens_no_goal(
    todo: Path, user: str, messages: list[Message], expected: float, scoring: str
) -> None:
    task = make_task(goals=TWO_GOALS, withheld=[{"fact": "'Buy milk', please.", "asked": "what|which"}])
    found = await play_with(todo, task, Steps(*messages), user=user, reward=scoring)
    assert value_of(found) == expected
    assert not any(message.extra for message in found.messages)
    if scoring == "rules":
        stored = Trajectory.from_row(orjson.loads(orjson.dumps(found.to_row())))
        assert score_trajectory(stored, task.reward, goals=task.goals).value == expected


async def test_a_user_who_ends_in_the_first_goal_leaves_the_second_unreached(todo: Path) -> None:
    class Leaving:
        def __init__(self, words: str) -> None:
            self.replies = iter([Message(role="user", content="Put milk on my list."), UserStop(words=words)])

        async def reply(self, view: Any) -> Any:
            return next(self.replies)

        def fork(self) -> Any:
            raise NotImplementedError

    for words in ("", "This is useless, goodbye."):
        async with await open_environment(Pack.load(todo), user=lambda _, words=words: Leaving(words)) as environment:
            played = await play(await environment.reset(make_task(goals=TWO_GOALS)), Steps(say("I will not.")))
        assert value_of(played) == 0.0, words


async def test_a_revealed_tool_is_refused_first_and_announced_later(todo: Path) -> None:
    fields: dict[str, Any] = {
        "reveals": [{"turn": 2, "tools": ["add_todo"]}],
        "goals": [
            {"query": "Put milk on my list.", "parts": [{"kind": "state"}]},
            {"query": "You have a further tool now.", "calls": [ADD]},
        ],
    }
    task = make_task(**fields)
    early = call("add_todo", text="Buy milk")
    async with await open_environment(Pack.load(todo), user="none") as environment:
        episode = await environment.reset(task)
        assert [tool.name for tool in episode.view.all_tools] == ["list_todos", "finish_todo"]
        step = await episode.step(early)
        assert step.messages[0].error is Code.UNKNOWN_TOOL
        step = await episode.step(say("I have no tool for that."))
        shown = step.messages[0].text.splitlines()
        assert shown[0] == "You have a further tool now."
        assert orjson.loads(shown[-1])["name"] == "add_todo"
        assert [tool.name for tool in episode.view.tools] == ["list_todos", "finish_todo"]
        assert [tool.name for tool in episode.view.revealed] == ["add_todo"]
        copy = await episode.fork()
        for each in (episode, copy):
            (heard,) = each.user_view.messages[2:]
            assert (heard.text, heard.extra) == ("You have a further tool now.", {})
            step = await each.step(early)
            assert step.messages[0].error is None
            step = await each.step(say("Done."))
            assert value_of(step) == 1.0
    row = episode.trajectory
    assert [tool.name for tool in row.tools] == ["list_todos", "finish_todo"]
    assert [tool.name for tool in row.all_tools] == ["list_todos", "finish_todo", "add_todo"]
    assert Trajectory.from_row(orjson.loads(orjson.dumps(row.to_row()))).all_tools == row.all_tools


async def test_a_withheld_fact_is_told_when_asked(todo: Path) -> None:
    task = make_task(
        instruction="Something new belongs on my list.",
        withheld=[{"fact": "Buy milk, please.", "asked": "what (exactly )?(should|shall)"}],
        reference=[ADD],
    )
    asked = Steps(say("What should I add?"), call("add_todo", text="Buy milk"))
    found = await play_with(todo, task, asked)
    assert [m.text for m in found.messages if m.role == "user"] == [
        "Something new belongs on my list.",
        "Buy milk, please.",
    ]
    assert value_of(found) == 1.0
    silent = await play_with(todo, task, Steps(say("Fine.")))
    assert [m.role for m in silent.messages] == ["user", "assistant"]


async def test_limits_on_calls_of_task_and_pack(todo: Path) -> None:
    task = make_task(instruction="Milk.", reference=[ADD], limits={"calls": 2})
    found = await play_with(todo, task, Steps(*[call("list_todos")] * 5))
    assert (found.end.kind, found.end.code) == ("truncated", Code.MAX_CALLS)
    assert [m.error for m in found.messages if m.role == "tool"] == [None, None, Code.MAX_CALLS]
    task = make_task(instruction="Milk.", reference=[ADD], limits={"calls_per_turn": 1})
    found = await play_with(todo, task, Steps(call("list_todos"), call("list_todos")))
    assert [m.error for m in found.messages if m.role == "tool"] == [None, Code.MAX_CALLS]


async def test_a_limit_on_calls_holds_within_a_message(todo: Path) -> None:
    task = make_task(instruction="Milk.", reference=[ADD], limits={"calls": 2})
    calls = [ToolCall(id=f"c{n}", name="add_todo", arguments={"text": f"Buy {n}"}) for n in range(5)]
    found = await play_with(todo, task, Steps(Message(role="assistant", calls=calls)))
    assert (found.end.kind, found.end.code) == ("truncated", Code.MAX_CALLS)
    results = [m for m in found.messages if m.role == "tool"]
    assert [m.call_id for m in results] == [each.id for each in calls]
    assert [m.error for m in results] == [None, None, *[Code.MAX_CALLS] * 3]
    assert found.evidence is not None
    assert len(found.evidence["changes"]) == 2, "the other calls were not run"


async def test_a_solution_as_long_as_the_limit_can_still_be_answered(todo: Path) -> None:
    task = make_task(instruction="Milk.", reference=[ADD], limits={"calls": 1})
    found = await play_with(todo, task, ReferenceAgent(task))
    assert found.end.kind == "terminated"
    assert value_of(found) == 1.0
    assert found.messages[-1].role == "assistant"


async def test_penalties_are_subtracted_after_combining(todo: Path) -> None:
    spec = {"parts": [{"kind": "state"}], "penalties": [{"kind": "calls", "free": 1, "each": 0.25}]}
    task = make_task(instruction="Milk.", reference=[ADD], reward=spec)
    reference = await play_with(todo, task, ReferenceAgent(task))
    assert value_of(reference) == 1.0
    more = await play_with(todo, task, Steps(call("list_todos"), call("list_todos"), call("add_todo", text="Buy milk")))
    assert value_of(more) == 0.5
    errors = {"parts": [{"kind": "state"}], "penalties": [{"kind": "errors", "each": 0.5, "most": 0.5}]}
    task = make_task(instruction="Milk.", reference=[ADD], reward=errors)
    wrong = [call("finish_todo", todo_id="T-9999")] * 3
    found = await play_with(todo, task, Steps(*wrong, call("add_todo", text="Buy milk")))
    assert value_of(found) == 0.5


@pytest.mark.parametrize(("kind", "free"), [("errors", 0), ("calls", 1)])
async def test_calls_that_an_event_refuses_do_not_count_for_penalties(todo: Path, kind: str, free: int) -> None:
    spec = {"parts": [{"kind": "state"}], "penalties": [{"kind": kind, "free": free, "each": 0.25}]}
    task = make_task(instruction="Milk.", reference=[ADD], reward=spec)
    add, wrong = call("add_todo", text="Buy milk"), call("finish_todo", todo_id="T-9999")
    perturb = {"schedule": [{"kind": "rate_limit"}]}
    played = await play_with(todo, task, Steps(add, add, add), perturb=perturb)
    assert [m.error for m in played.messages if m.role == "tool"] == [Code.TOOL_ERROR, Code.TOOL_ERROR, None]
    assert value_of(played) == 1.0
    found = await play_with(todo, task, Steps(add, add, wrong, add), perturb=perturb)
    assert value_of(found) == 0.75, "the agent's own errors and calls count"


@pytest.mark.parametrize("kind", ["slow_result", "transient_error", "rate_limit", "changed_policy"])
@pytest.mark.parametrize("scoring", ["rules", "trace_state"])
async def test_calls_that_an_event_makes_the_agent_repeat_cost_nothing(todo: Path, kind: str, scoring: str) -> None:
    parts: list[dict[str, Any]] = [{"kind": "trace", "extra": 0.1}]
    task = make_task(instruction="Milk.", reference=[ADD], reward={"parts": parts})
    calls = [ADDED] * (3 if kind == "rate_limit" else 2)
    perturb = {"schedule": [{"kind": kind}]}
    assert value_of(await play_with(todo, task, Steps(*calls), perturb=perturb, reward=scoring)) == 1.0
    found = await play_with(todo, task, Steps(*calls, call("list_todos")), perturb=perturb, reward=scoring)
    assert value_of(found) in (0.9, 0.95), "the agent's own call costs"


async def test_calls_that_an_event_makes_the_agent_repeat_cost_nothing_in_a_later_goal(todo: Path) -> None:
    goals = [dict(TWO_GOALS[0]), {**TWO_GOALS[1], "parts": [{"kind": "trace", "extra": 0.1}]}]
    perturb = {"schedule": [{"kind": "rate_limit", "at": 2}]}
    steps = Steps(ADDED, say("Done."), WATERED, WATERED, WATERED)
    assert value_of(await play_with(todo, make_task(goals=goals), steps, perturb=perturb)) == 1.0


async def test_an_unneeded_change_makes_the_trace_nothing(todo: Path) -> None:
    task = make_task(instruction="Milk.", reference=[ADD], reward={"parts": [{"kind": "trace"}]})
    looked = await play_with(todo, task, Steps(call("list_todos"), call("add_todo", text="Buy milk")))
    assert value_of(looked) == 1.0
    everything = Steps(call("add_todo", text="Buy milk"), call("finish_todo", todo_id="T-1001"))
    found = await play_with(todo, task, everything)
    assert value_of(found) == 0.0
    assert found.reward is not None
    assert "finish_todo" in found.reward.rationale


@pytest.mark.parametrize("user", ["scripted", "none"])
async def test_a_withheld_fact_is_not_told_unasked(todo: Path, user: str) -> None:
    fact = "Buy milk, please."
    task = make_task(
        instruction="Something new belongs on my list.",
        withheld=[{"fact": fact, "asked": "what"}],
        script=[{"user": "Something new belongs on my list."}, {"agent": "What is it?"}, {"user": fact}, {"calls": [ADD]}, {"agent": "Done."}],
    )  # fmt: skip
    for words, told in (("Fine, bye.", 0), ("What is it?", 1)):
        found = await play_with(
            todo, task, Steps(say(words), call("add_todo", text="Buy milk"), say("Done.")), user=user
        )
        assert [m.text for m in found.messages if m.role == "user"].count(fact) == told, (user, words)
    solved = await play_with(todo, task, ReferenceAgent(task), user=user)
    assert value_of(solved) == 1.0
