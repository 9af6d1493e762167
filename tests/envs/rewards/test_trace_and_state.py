"""EnvFactory's reward: trace and state by turn, masks, needless and malformed calls, the schedule of τ."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import open_environment
from simia.envs.rewards.compose import score_trajectory
from simia.envs.rewards.trace_and_state import TraceStateScorer, TraceStateSettings, score_trace_and_state
from simia.envs.scoring import check_reward_settings, make_scorer
from simia.errors import Code, UserError
from simia.pack import Pack
from simia.reward import Reward
from simia.reward_spec import StateSpec, TraceSpec
from simia.task import Goal, GoalCall, Task
from simia.trajectory import End, Message, ToolCall, Trajectory

CHANGE = {"path": ["rooms", "1", "guest"], "old": None, "new": "Ada"}
OTHER = {"path": ["cars", "9", "renter"], "old": None, "new": "Ada"}
WRONG = {"path": ["rooms", "2", "guest"], "old": None, "new": "Ada"}
BOOK = GoalCall(name="book", arguments={"room": "1", "price": 10.5, "note": "quiet"}, mask=["note"])
RENT = GoalCall(name="rent", arguments={"car": "9"})
LOOK = GoalCall(name="look_up", arguments={"room": "1"})
EXTRA = {"environments": {"hotel": ["rooms"], "garage": ["cars"]}}


def make_task(*goals: Goal, **extra: Any) -> Task:
    return Task(id="t", goals=list(goals), extra={**EXTRA, **extra})


def play(*turns: tuple[list[tuple[str, dict[str, Any], Code | None]], list[Any], list[Any]]) -> Trajectory:
    """An episode: for each turn its calls (name, arguments, error), and the changes of agent and reference since the start."""
    messages, evidence, number = [], [], 0
    for calls, changes, expected in turns:
        messages.append(Message(role="user", content="?"))
        for name, arguments, error in calls:
            number += 1
            messages += [
                Message(role="assistant", calls=[ToolCall(id=f"c{number}", name=name, arguments=arguments)]),
                Message(role="tool", call_id=f"c{number}", name=name, content="{}", error=error),
            ]
        messages.append(Message(role="assistant", content="Done."))
        evidence.append({"changes": changes, "expected": expected, "writes": ["book", "rent"]})
    last = evidence[-1] if evidence else {}
    return Trajectory(messages=messages, evidence={**last, "turns": evidence})


def score(trajectory: Trajectory, task: Task, tau: float = 0.5) -> Reward:
    return score_trace_and_state(trajectory, task, tau, {})


BOOKING, READING = Goal(query="book", calls=[BOOK]), Goal(query="look", calls=[LOOK], parts=[StateSpec(), TraceSpec()])
RIGHT = ("book", {"room": "1", "price": 10.5 + 5e-7, "note": "anything"}, None)


def test_the_solution_earns_one_for_every_tau() -> None:
    task = make_task(BOOKING, READING)
    played = play(([RIGHT], [CHANGE], [CHANGE]), ([("look_up", {"room": "1"}, None)], [CHANGE], [CHANGE]))
    assert [score(played, task, tau).value for tau in (0.0, 0.1, 0.5, 0.9, 1.0)] == [1.0] * 5


@pytest.mark.parametrize("tau", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_doing_nothing_earns_nothing(tau: float) -> None:
    assert score(play(([], [], [])), make_task(READING), tau).value == 0.0
    assert score(play(([], [], [CHANGE])), make_task(BOOKING), tau).value == 0.0
    both = make_task(BOOKING, READING)
    assert score(play(([], [], [CHANGE]), ([], [], [CHANGE])), both, tau).value == 0.0
    done = play(([RIGHT], [CHANGE], [CHANGE]), ([], [CHANGE], [CHANGE]))
    assert score(done, both, tau).value == 0.5
    assert score(play(([RIGHT], [CHANGE], [CHANGE])), both, tau).value == 0.5


def test_masks_and_tolerance() -> None:
    task = make_task(BOOKING)
    for arguments, trace in (
        ({"room": "1", "price": 10.5}, 1.0),
        ({"room": "1", "price": 10.500002}, 0.0),
        ({"room": "2", "price": 10.5, "note": "quiet"}, 0.0),
    ):
        reward = score(play(([("book", arguments, None)], [CHANGE], [CHANGE])), task)
        assert reward.parts["trace"] == trace, arguments
        assert reward.parts["state"] == 1.0


def test_each_reference_call_needs_a_call_of_its_own() -> None:
    task = make_task(Goal(query="twice", calls=[LOOK, LOOK], parts=[StateSpec(), TraceSpec()]))
    once, twice = ([("look_up", {"room": "1"}, None)] * n for n in (1, 2))
    assert score(play((once, [], [])), task).value == 0.0
    assert score(play((twice, [], [])), task).value == 1.0
    failed = [("look_up", {"room": "1"}, Code.TOOL_ERROR), *once]
    assert score(play((failed, [], [])), task).parts["trace"] == 0.0


def test_state_is_the_share_of_environments_that_had_to_change_or_are_wrong() -> None:
    task = make_task(Goal(query="both", calls=[BOOK, RENT]))
    half = score(play(([RIGHT], [CHANGE], [CHANGE, OTHER])), task)
    assert (half.parts["trace"], half.parts["state"], half.value) == (0.0, 0.5, 0.25)
    only_hotel = make_task(BOOKING)
    spoiled = score(play(([RIGHT, ("rent", {"car": "9"}, None)], [CHANGE, OTHER], [CHANGE])), only_hotel)
    assert (spoiled.parts["state"], spoiled.value) == (0.5, 0.7)
    wrong = score(play(([RIGHT], [CHANGE, WRONG], [CHANGE])), only_hotel)
    assert wrong.parts["state"] == 0.0


def test_a_turn_that_changes_only_exempt_values_counts_as_one_that_only_reads() -> None:
    seen = {"path": ["seen"], "old": "", "new": "10:30"}
    idle = play(([], [], [seen]))
    assert score_trace_and_state(idle, make_task(READING), 0.5, {"seen": "exempt"}).value == 0.0
    looked = play(([("look_up", {"room": "1"}, None)], [seen], [seen]))
    assert score_trace_and_state(looked, make_task(READING), 0.5, {"seen": "exempt"}).value == 1.0


def test_a_change_in_a_turn_that_only_reads_costs_its_state() -> None:
    look = ("look_up", {"room": "1"}, None)
    reward = score(play(([look, ("book", {}, None)], [CHANGE], [])), make_task(READING), 0.4)
    assert (reward.parts["trace"], reward.parts["state"], reward.value) == (1.0, 0.0, 0.35)


def test_needless_and_malformed_calls_cost_a_twentieth_each_and_half_at_most() -> None:
    look = ("look_up", {"room": "2"}, None)
    malformed = ("look_up", {"rooom": 1}, Code.BAD_ARGUMENTS)

    def value(added: list[Any], **extra: Any) -> Any:
        return score(play(([RIGHT, *added], [CHANGE], [CHANGE])), make_task(BOOKING, **extra)).value

    assert [value([look] * n) for n in (0, 1, 3, 10, 40)] == [1.0, 0.95, 0.85, 0.5, 0.5]
    assert [value([malformed] * n) for n in (1, 3, 10, 40)] == [0.95, 0.85, 0.5, 0.5]
    assert value([look] * 40 + [malformed] * 40) == 0.0
    assert [value([look] * n, calls=3) for n in (1, 2, 3)] == [1.0, 1.0, 0.95]
    assert value([look], calls="hostile") == 0.95


def test_a_task_without_goals_is_one_turn() -> None:
    task = Task(id="t", reference=[BOOK])
    assert score(play(([("book", BOOK.arguments, None)], [CHANGE], [CHANGE])), task).value == 1.0
    assert score(play(([], [], [CHANGE])), task).value == 0.0


def test_what_cannot_be_judged_has_no_value() -> None:
    task = make_task(BOOKING)
    aborted = play(([], [], [])).model_copy(update={"end": End(kind="aborted", code=Code.WORKER_LOST)})
    assert score(aborted, task).error is Code.WORKER_LOST
    assert score(play(([], None, None)), task).error is Code.UNSCORED  # type: ignore[arg-type]
    assert score(play(([], [], [])), Task(id="t")).error is Code.UNSCORED


def test_tau_follows_the_steps_of_the_training() -> None:
    settings = TraceStateSettings(tau=0.9, final_tau=0.1, steps=100)
    assert [round(settings.compute_tau(step), 6) for step in (-1, 0, 50, 100, 900)] == [0.9, 0.9, 0.5, 0.1, 0.1]
    with pytest.raises(ValidationError, match="set both or neither"):
        TraceStateSettings(final_tau=0.1)


def test_an_environment_tells_its_scorer_the_step() -> None:
    given = {"reward": "trace_state", "trace_state": {"tau": 0.9, "final_tau": 0.1, "steps": 10}}

    async def run() -> None:
        async with await open_environment("customer_service", user="scripted", **given) as environment:
            environment.note_training_step(5)
            assert isinstance(environment.scorer, TraceStateScorer)
            episode = await environment.reset(environment.tasks[0])
            await episode.stop(Code.MAX_TURNS)
            assert episode.reward is not None
            assert "tau 0.5" in episode.reward.rationale
            assert episode.reward.value == 0.0

    asyncio.run(run())


def test_it_needs_reference_calls() -> None:
    config = parse_config(EnvironmentConfig, {"reward": "trace_state"}, where="test")
    assert isinstance(make_scorer(config, Pack(name="p"), None, None), TraceStateScorer)
    with pytest.raises(UserError, match="no task has a reference solution"):
        check_reward_settings(config, [Task(id="t")])


def test_a_key_of_an_earlier_turn_is_not_the_agents_own() -> None:
    """The id that a tool made up in turn 1 and that the agent names in turn 2 is paired with the reference's."""
    goals = [
        Goal(query="book", calls=[GoalCall(name="book", arguments={})]),
        Goal(query="drop", calls=[GoalCall(name="drop", arguments={"id": "B-1"}, mask=["id"])]),
    ]

    def row(key: str, status: str) -> dict[str, Any]:
        return {"path": ["bookings", key], "new": {"room": "1", "status": status}}

    played = play(
        ([("book", {}, None)], [row("B-7", "booked")], [row("B-1", "booked")]),
        ([("drop", {"id": "B-7"}, None)], [row("B-7", "dropped")], [row("B-1", "dropped")]),
    )
    shown = [
        message.model_copy(update={"content": '{"id": "B-7"}'}) if message.role == "tool" else message
        for message in played.messages
    ]
    played = played.model_copy(update={"messages": shown})
    task = Task(id="t", goals=goals)
    assert score_trajectory(played, task.reward, goals=task.goals).value == 1.0
    assert score(played, task).value == 1.0
