"""A late environment costs an episode, never a reward of 0 and never a rank; limits that cannot hold are refused in a line."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia.config import parse_config, read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.users import EpisodeView, ScriptedUser
from simia.errors import Code, UserError
from simia.search_path import data_root
from simia.task import Task
from simia.trainers.concurrency import fit_concurrency
from simia.trainers.ragen.start import fit_stages
from simia.trainers.time_limits import list_endpoints, settle_time_limits
from simia.trainers.trl.rollout import rollout_func
from simia.trainers.trl.settings import TrlConfig, find_collective_timeout
from simia.trainers.trl.tool_methods import ENDED, environment_factory
from simia.trainers.verl.start import count_worker_episodes
from tests.trainers.ragen_standin import config as ragen_config
from tests.trainers.test_tokens import END, Letters, ids_of

TRAINER = SimpleNamespace(
    args=SimpleNamespace(max_completion_length=10**6),
    processing_class=Letters(),
    eos_token_ids=[END],
    state=SimpleNamespace(global_step=0),
    accelerator=SimpleNamespace(process_index=0),
    model=SimpleNamespace(training=True),
    use_vllm=False,
)
OPENAI = {"kind": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m"}


def stage(**settings: Any) -> EnvironmentConfig:
    return parse_config(EnvironmentConfig, {"backend": "simulated", "llm": OPENAI, **settings}, where="stage")


def test_one_rank_waits_for_no_other() -> None:
    found = stage()
    assert settle_time_limits(found, None, None) == 1800
    assert settle_time_limits(found, 7000, None) == 7000
    assert [each.timeout for _, each in list_endpoints(found)] == [500]


@pytest.mark.parametrize(
    ("settings", "timeouts", "retries"),
    [
        ({}, [205], 6),  # 0.8 × 1800 s in seven attempts
        ({"llm": {**OPENAI, "timeout": 30}}, [30], 6),
        ({"llm": {**OPENAI, "timeout": 500}}, [500], 1),
        ({"limits": {"retries": 1}}, [500], 1),
        ({"limits": {"retries": 2}}, [480], 2),
        ({"llm": {**OPENAI, "timeout": 20}, "judge": {**OPENAI, "timeout": 600}}, [20, 600], 1),
        ({"llm": {"kind": "pool", "endpoints": [OPENAI, {**OPENAI, "timeout": 700}]}}, [500, 700], 1),
    ],
)
def test_what_the_config_leaves_open_is_fitted(settings: dict[str, Any], timeouts: list[float], retries: int) -> None:
    found = stage(**settings)
    within = settle_time_limits(found, None, 1800)
    assert within == 1440
    assert [each.timeout for _, each in list_endpoints(found)] == timeouts
    assert found.limits.retries == retries
    assert all(each.timeout * (retries + 1) <= within for _, each in list_endpoints(found))


@pytest.mark.parametrize(
    ("settings", "world_seconds", "line"),
    [
        ({}, 1800.0, r"^world_seconds is 1800 and grpo.ddp_timeout 1800: .* at most 1440, or grpo.ddp_timeout to 2250"),
        (
            {"llm": {**OPENAI, "timeout": 500}, "limits": {"retries": 6}},
            None,
            r"^stage.llm.timeout is 500 s and stage.limits.retries 6, 3500 s in all, and an answer may take 1440 s: lower",
        ),
        ({"judge": {**OPENAI, "timeout": 1500}}, None, r"^stage.judge.timeout is 1500 s and stage.limits.retries 0"),
        ({"llm": {**OPENAI, "timeout": 500}}, 400.0, r"stage.llm.timeout is 500 s .* may take 400 s"),
    ],
)
def test_limits_that_cannot_hold_are_refused(settings: dict[str, Any], world_seconds: float | None, line: str) -> None:
    with pytest.raises(UserError, match=line) as refused:
        settle_time_limits(stage(**settings), world_seconds, 1800)
    assert "\n" not in str(refused.value)


def test_the_collective_timeout_is_that_of_several_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert find_collective_timeout(TrlConfig(model="m")) is None
    assert find_collective_timeout(TrlConfig(model="m", processes=2)) == 1800
    assert find_collective_timeout(TrlConfig(model="m", processes=2, grpo={"ddp_timeout": 600})) == 600
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert find_collective_timeout(TrlConfig(model="m")) == 1800


def test_our_configs_hold_on_several_ranks() -> None:
    names = [f"trl/{path.stem}" for path in (data_root() / "configs" / "trl").glob("*.yaml")]
    assert names
    for name in names:
        config = parse_config(TrlConfig, {"model": "m", **read_config_file(name), "processes": 8}, where=name)
        assert settle_time_limits(config.stage, config.world_seconds, find_collective_timeout(config)) < 1800


def test_requests_in_flight_follow_the_episodes() -> None:
    found = stage()
    assert fit_concurrency(found, 100) == []
    assert found.limits.concurrency == 256
    assert fit_concurrency(found, 1024) == []
    assert found.limits.concurrency == 1024
    kept = stage(limits={"concurrency": 64})
    (line,) = fit_concurrency(kept, 512, "simia.stage")
    assert line.startswith("simia.stage.limits.concurrency is 64, but 512 episodes run at once")
    assert kept.limits.concurrency == 64
    lines = fit_concurrency(stage(), 10**8)
    assert all("ulimit -n" in line for line in lines)


class Slow(ScriptedUser):
    """A user who keeps the episodes of one task waiting, in the first turn or in the second."""

    def __init__(self, task: Task, late: str, turn: int) -> None:
        super().__init__(task)
        self.waits, self.turn = task.id == late, turn

    async def reply(self, view: EpisodeView) -> Any:
        if self.waits and len([m for m in view.messages if m.role == "user"]) == self.turn:
            await asyncio.sleep(60)
        return await super().reply(view)


def say_done(trainer: Any, contexts: list[list[int]], most: int) -> list[tuple[list[int], list[float]]]:
    return [(ids_of("Done."), [0.0] * len(ids_of("Done."))) for _ in contexts]


async def open_slow(lamps: Path, turn: int) -> tuple[Environment, list[str]]:
    environment = await open_environment(str(lamps), user=lambda task: Slow(task, "lamps-1", turn), say=lambda _: None)
    return environment, [task.id for task in environment.tasks]


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize("limit", [{"world_seconds": 0.5}, {"wait_seconds": 0.5}])
async def test_a_late_environment_costs_its_episode_and_no_other(
    lamps: Path, turn: int, limit: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    def play() -> dict[str, list[Any]]:
        from simia import event_loop

        environment, tasks = event_loop.run(open_slow(lamps, turn))
        try:
            return rollout_func(environment, sample=say_done, **limit)(tasks, TRAINER)
        finally:
            event_loop.run(environment.close())

    caplog.set_level(logging.WARNING)
    began = time.monotonic()
    rows = await asyncio.to_thread(play)
    assert time.monotonic() - began < 30
    late = rows["task_id"].index("lamps-1")
    assert [reward is None for reward in rows["reward"]] == [at == late for at in range(len(rows["reward"]))]
    assert set(rows["env_mask"][late]) == {0}
    assert all(any(mask) for at, mask in enumerate(rows["env_mask"]) if at != late)
    words = "the environment took over 0.5 s" if "world_seconds" in limit else "kept the policy waiting for 0.5 s"
    assert f"1 of {len(rows['reward'])} episodes without a reward, mostly: " in caplog.text
    assert words in caplog.text


async def test_trls_own_loop_has_the_limit_too(errands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def play() -> tuple[str, Any]:
        from simia import event_loop

        environment = event_loop.run(open_environment(str(errands), user="none", say=lambda _: None))
        try:
            tools = environment_factory(environment, world_seconds=0.5)()
            tools.reset("errand-0")
            assert tools._episode is not None

            async def hang(*_: Any, **__: Any) -> Any:
                await asyncio.sleep(60)

            monkeypatch.setattr(type(tools._episode.world), "call", hang)
            return tools.switch(lamp="kitchen", on=True), tools._episode  # type: ignore[attr-defined]
        finally:
            event_loop.run(environment.close())

    said, episode = await asyncio.to_thread(play)
    assert said == ENDED
    assert (episode.end.kind, episode.end.code, episode.reward.value) == ("aborted", Code.TIMEOUT, None)


@pytest.mark.parametrize(
    ("data", "batch", "episodes"),
    [
        ({}, 16, 2),
        ({"actor_rollout_ref": {"rollout": {"n": 16, "agent": {"num_workers": 2}}}}, 128, 1024),
        ({"actor_rollout_ref": {"rollout": {"n": 3, "agent": {"num_workers": 2}}}}, 5, 8),
    ],
)
def test_a_worker_of_verl_plays_its_share(data: dict[str, Any], batch: int, episodes: int) -> None:
    assert count_worker_episodes(data, batch, "n") == episodes


def test_all_tags_of_ragen_get_the_episodes_of_a_step(lamps: Path) -> None:
    whole = ragen_config(lamps, groups=64, size=8)
    values: dict[str, Any] = {"custom_envs": {"Lamps": {"env_type": "simia"}}}
    assert fit_stages(values, whole) == []
    assert values["custom_envs"]["Lamps"]["env_config"] == {"stage": {"limits": {"concurrency": 512}}}
    whole["custom_envs"]["Lamps"]["env_config"]["stage"]["limits"] = {"concurrency": 100}
    (line,) = fit_stages(values := {}, whole)
    assert line.startswith("custom_envs.Lamps.env_config.stage.limits.concurrency is 100, but 512 episodes")
    assert values == {}
