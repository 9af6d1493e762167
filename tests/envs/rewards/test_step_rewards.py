"""Rewards of single turns, each against numbers worked by hand: by the judge, by the reference's calls, by a number of the state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Episode
from simia.envs.opening import open_environment
from simia.envs.rewards.step_rewards import score_calls, score_values
from simia.errors import Code, UserError
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.pack import Pack
from simia.reward import Reward
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.envs.worlds.test_simulated import Scripted, replies
from tests.trainers import lamps

about = pytest.approx


def call(lamp: str, on: bool = True) -> Message:
    return Message(role="assistant", calls=[ToolCall(id="1", name="switch", arguments={"lamp": lamp, "on": on})])


def says(text: str) -> Message:
    return Message(role="assistant", content=text)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference of lamps-0 switches the kitchen lamp on and the hall lamp off; the state counts 4 lamps, of which one value part
    watches the kitchen's."""
    return lamps.write(tmp_path_factory.mktemp("packs") / "lamps", lamps.conversations())


async def play(house: Path, actions: list[Message], engine: Engine | None = None, **settings: Any) -> Episode:
    config = {"pack": str(house), "user": "scripted", **settings}
    async with await open_environment(config, engine=engine, say=lambda _: None) as environment:
        episode = await environment.reset("lamps-0")
        for action in actions:
            await episode.step(action)
        if episode.end is None:
            await episode.stop(Code.MAX_TURNS)
        return episode


async def test_a_reference_call_is_rewarded_once_in_the_turn_that_makes_it(house: Path) -> None:
    actions = [call("attic"), call("kitchen"), call("kitchen"), says("Done."), call("hall", on=False), says("Done.")]
    reward = (await play(house, actions, step_rewards={"by": "calls", "weight": 0.4})).reward
    assert reward is not None
    # two reference calls of 0.4 / 2 each, in the second and the fifth of six turns
    assert reward.steps == about([0.0, 0.2, 0.0, 0.0, 0.2, 0.0])
    # the attic lamp is one of three changes, which the reference does not make
    assert reward.value == about(2 / 3)
    assert reward.total == about(2 / 3 + 0.4)
    nothing = (await play(house, [says("Done."), says("Done.")], step_rewards={"by": "calls"})).reward
    assert nothing is not None
    assert (nothing.steps, nothing.total) == ([0.0, 0.0], nothing.value)


async def test_a_failed_call_and_one_by_another_name_earn_nothing(house: Path) -> None:
    refused = [call("cellar"), call("kitchen", on=False), says("Done."), says("Done.")]
    reward = (await play(house, refused, step_rewards={"by": "calls"})).reward
    assert reward is not None
    assert reward.steps == [0.0] * 4


async def test_a_call_that_the_token_limit_cut_earns_nothing(house: Path) -> None:
    config = {"pack": str(house), "user": "scripted", "step_rewards": {"by": "calls"}}
    async with await open_environment(config, say=lambda _: None) as environment:
        episode = await environment.reset("lamps-0")
        step = await episode.stop(Code.MAX_TOKENS, message=call("kitchen"))
        assert step.reward is not None
        assert step.reward.steps == [0.0]


VALUES = [
    {"kind": "value", "path": "points", "low": 0, "high": 10, "weight": 3},
    {"kind": "value", "path": "lives", "low": 0, "high": 4},
]


def test_the_value_is_credited_to_the_turn_that_moves_it() -> None:
    task = Task.model_validate({"id": "t", "reward": {"parts": VALUES, "combine": "mean"}})
    rows = [
        {"points": 0, "lives": 4},
        {"points": 5, "lives": 4},
        {"points": 5, "lives": 2},
        {"points": 20, "lives": 2},
    ]
    said = [says("a"), says("b"), says("c")]
    # levels: (3 * 0 + 1) / 4 = .25; (3 * .5 + 1) / 4 = .625; (1.5 + .5) / 4 = .5; points are clipped at 1: (3 + .5) / 4 = .875
    assert score_values(Trajectory(messages=said, evidence={"value_steps": rows}), task) == about(
        [0.375, -0.125, 0.375]
    )
    for broken in (rows[:3], [{}, *rows[1:]], [{"points": {"kind": "str"}, "lives": 1}, *rows[1:]]):
        assert score_values(Trajectory(messages=said, evidence={"value_steps": broken}), task) is None
    assert score_values(Trajectory(messages=said), Task(id="t")) == [0.0] * 3


async def test_a_state_is_read_after_each_turn(tmp_path: Path) -> None:
    rows = lamps.errands()
    for row in rows:
        row["reward"] = {"parts": [{"kind": "value", "path": "count", "high": 4}]}
    root = lamps.write(tmp_path / "counted", rows)
    world = (
        (root / "tools.py").read_text().replace("lamps: dict[str, bool]", "lamps: dict[str, bool]\n    count: int = 0")
    )
    switched = "        self.state.lamps[lamp] = on\n"
    world = world.replace(switched, f"{switched}        self.state.count = sum(self.state.lamps.values())\n")
    (root / "tools.py").write_text(world)
    config = {"pack": str(root), "step_rewards": {"by": "value", "weight": 1}}
    async with await open_environment(config, say=lambda _: None) as environment:
        episode = await environment.reset("errand-0")
        await episode.step(call("hall"))
        twin = await episode.fork()
        await episode.step(call("attic"))
        await episode.step(call("hall", on=False))
        await episode.stop(Code.MAX_TOKENS, message=says("cut"))
        assert episode.reward is not None
        assert (episode.reward.value, episode.reward.steps) == (0.25, [0.25, 0.25, -0.25, 0.0])
        assert episode.evidence is not None
        assert [row["count"] for row in episode.evidence["value_steps"]] == [0, 1, 2, 1, 1]
        await twin.step(says("Done."))
        assert twin.reward is not None
        assert twin.reward.steps == [0.25, 0.0]
    row = {"id": "x", "instruction": "x", "reward": rows[0]["reward"]}
    (root / "tasks.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(
        UserError, match=r"by is calls, but no task has a reference solution: set step_rewards.by to judge or value"
    ):
        await open_environment({**config, "step_rewards": {"by": "calls"}}, say=lambda _: None)


async def judged(house: Path, answers: Any, **settings: Any) -> tuple[Any, Scripted]:
    """The kitchen lamp is switched on and the hall lamp stays: the state is half right."""
    model = Scripted(answers)
    config = {"step_rewards": {"by": "judge", "weight": 0.6}, **settings}
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        actions = [call("kitchen"), says("Done."), says("Done.")]
        return (await play(house, actions, engine, **config)).reward, model


async def test_a_judge_rewards_turns_while_the_rules_judge_the_outcome(house: Path) -> None:
    answer = '{"why": "x", "steps": [true, false, true], "solved": true}'
    reward, model = await judged(house, replies(answer))
    assert (reward.value, reward.parts) == (0.5, {"state": 0.5})
    assert reward.steps == about([0.2, 0.0, 0.2])  # 0.6 / 3 for each good turn
    assert reward.total == about(0.9)
    assert len(model.asked) == 1
    assert '"steps" has 3 entries, one for each turn by the assistant' in str(model.asked[0].messages[-1]["content"])


async def test_a_judge_of_both_is_asked_once_and_votes_are_averaged(house: Path) -> None:
    answers = [
        '{"why": "x", "steps": [true, false, true], "solved": true}',
        '{"why": "x", "steps": [true, false, false], "solved": true}',
        '{"why": "x", "steps": [true, true, false], "solved": false}',
    ]
    reward, model = await judged(house, replies(*answers), reward="oracle", oracle={"votes": 3})
    assert len(model.asked) == 3
    assert (reward.value, reward.parts["oracle"]) == (1.0, 1.0)
    # good votes 3, 1, 1 of 3; 0.6 / 3 for each turn
    assert reward.steps == about([0.2, 0.2 / 3, 0.2 / 3])


async def test_a_verdict_without_one_for_each_turn_is_asked_again_and_never_a_zero(house: Path) -> None:
    short, right = (f'{{"why": "x", "steps": {steps}, "solved": true}}' for steps in ("[true]", "[true, true, true]"))
    reward, model = await judged(house, replies(short, right))
    assert reward.steps == about([0.2] * 3)
    assert "steps must hold 3 times true or false" in str(model.asked[1].messages[-1]["content"])
    lost, _ = await judged(house, replies(short, short))
    assert (lost.value, lost.total, lost.error) == (None, None, Code.UNPARSABLE)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"by": "value"},
            "step_rewards.by is value, but no task has a reward part of kind value: set step_rewards.by to judge or calls",
        ),
        ({"by": "turns"}, "step_rewards.by: expected 'judge', 'calls' or 'value', got 'turns'"),
        ({"by": "calls", "weight": 0}, "step_rewards.weight"),
    ],
)
async def test_settings_that_reward_no_turn_are_refused(house: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words):
        await play(house, [], step_rewards=settings)


async def test_a_scorer_of_the_callers_leaves_no_judge_of_turns(house: Path) -> None:
    class Full:
        async def score(self, trajectory: Trajectory, task: Task) -> Reward:
            return Reward(value=1.0)

    config = {"pack": str(house), "user": "scripted", "step_rewards": {"by": "judge"}}
    with pytest.raises(UserError, match="scorer= replaces the judging model: leave out scorer="):
        await open_environment(config, llm="no-model", scorer=Full(), say=lambda _: None)
    config["step_rewards"] = {"by": "calls", "weight": 1}
    async with await open_environment(config, scorer=Full(), say=lambda _: None) as environment:
        episode = await environment.reset("lamps-0")
        await episode.step(call("kitchen"))
        step = await episode.stop(Code.MAX_TURNS)
        assert step.reward is not None
        assert (step.reward.value, step.reward.steps) == (1.0, [0.5])


async def test_a_simulated_world_keeps_no_number() -> None:
    config = parse_config(
        EnvironmentConfig,
        {"pack": "customer_service", "backend": "simulated", "step_rewards": {"by": "value"}},
        where="x",
    )
    with pytest.raises(
        UserError, match=r"does not hold the state with the value: set step_rewards.by to judge or calls"
    ):
        await open_environment(config, say=lambda _: None)


def test_a_recorded_solution_of_a_bundled_pack_earns_all_of_it() -> None:
    """Less only what the reference itself is refused."""
    pack = Pack.load("customer_service")
    tasks = {task.id: task for task in pack.tasks if any(action.by == "agent" for action in task.actions)}
    seeds = [seed for seed in pack.seeds if seed.task_id in tasks]
    assert len(seeds) >= 20
    for seed in seeds:
        task = tasks[str(seed.task_id)]
        refused = sum(message.role == "tool" and message.error is not None for message in seed.messages)
        assert sum(score_calls(seed, task)) == about(1 - refused / len(task.actions)), task.id
