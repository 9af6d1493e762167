"""Of an episode that a model judged, the verdict by the task's rules is kept too."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment, Episode
from simia.envs.opening import open_environment
from simia.jobs import Run
from simia.report.training_statistics import collect_training
from simia.trainers.kept_episodes import EpisodeKeeper, KeptSettings, compare_judge
from simia.trajectory import Message, ToolCall
from tests.fake_endpoint import FakeEndpoint


async def play(environment: Environment, task: str, *lamps: tuple[str, bool]) -> Episode:
    """Switch these lamps, one in each turn of the user."""
    episode = await environment.reset(task, group=f"0/{task}")
    for lamp, on in lamps:
        call = ToolCall(id="c", name="switch", arguments={"lamp": lamp, "on": on})
        await episode.step(Message(role="assistant", calls=[call]))
        await episode.step(Message(role="assistant", content="Done."))
    assert episode.end is not None
    return episode


async def test_the_judge_is_compared_with_the_rules(lamps: Path, tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.trainers.lamps:respond")  # its judge looks for any lamp that is on
    llm = {"kind": "openai", "base_url": endpoint.url, "model": "m"}
    config = EnvironmentConfig.model_validate({"pack": str(lamps), "user": "scripted", "reward": "oracle", "llm": llm})
    try:
        async with await open_environment(config) as environment:
            right = await play(environment, "lamps-0", ("kitchen", True), ("hall", False))
            wrong = await play(environment, "lamps-0", ("attic", True), ("hall", False))
            dark = await play(environment, "lamps-0", ("attic", False), ("hall", True))
            assert compare_judge(right) == (1.0, 1.0)
            assert compare_judge(wrong) == (1.0, pytest.approx(1 / 3)), "one of three changes to the state is right"
    finally:
        endpoint.stop()
    settings = KeptSettings(run=str(tmp_path / "runs" / "judged"))
    keeper = EpisodeKeeper.open(settings, tmp_path / "checkpoints", trainer="mine", start="one", process="0")
    with contextlib.closing(keeper):
        keeper.keep(1, [right, wrong])
        keeper.keep(2, [dark])
    with contextlib.closing(Run.read_only(tmp_path / "runs", "judged")) as run:
        training = collect_training(run)
        body = run.ledger.result("1.0.1")
    assert body is not None
    assert body["trajectory"]["reward"]["rationale"].endswith("looked at the lamp"), "the judge's reason"
    assert [(step.judged, step.agreed) for step in training.steps] == [(2, 1), (1, 0)]
    assert training.total is not None
    assert training.total.agreement == pytest.approx(1 / 3)


@pytest.mark.parametrize("by", ["step_rewards", "reward_function"])
async def test_the_judge_is_compared_under_a_reward_of_the_user(lamps: Path, tmp_path: Path, by: str) -> None:
    """The verdict itself is compared, not the value that a function makes of it."""
    (tmp_path / "halves.py").write_text("def half(episode):\n    return episode.reward.value / 2\n")
    more = {"step_rewards": {"by": "calls"}, "reward_function": f"{tmp_path / 'halves.py'}:half"}
    endpoint = FakeEndpoint("--respond", "tests.trainers.lamps:respond")
    llm = {"kind": "openai", "base_url": endpoint.url, "model": "m"}
    stage = {"pack": str(lamps), "user": "scripted", "reward": "oracle", "llm": llm, by: more[by]}
    try:
        async with await open_environment(EnvironmentConfig.model_validate(stage)) as environment:
            wrong = await play(environment, "lamps-0", ("attic", True), ("hall", False))
            assert compare_judge(wrong) == (1.0, pytest.approx(1 / 3))
    finally:
        endpoint.stop()


async def test_an_episode_that_rules_judged_has_no_second_verdict(lamps: Path) -> None:
    async with await open_environment(str(lamps), user="scripted") as environment:
        assert compare_judge(await play(environment, "lamps-0", ("kitchen", True), ("hall", False))) == (None, None)
