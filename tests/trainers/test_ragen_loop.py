"""A step's loop without RAGEN: how many episodes are under way, what ends a training, what is too slow, which tasks come.

Our loop and our manager under the stand-in, with a context of plain text, for ours needs torch.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from simia.envs.users import NoUser, UserStop
from simia.errors import Aborted, Code, UserError
from simia.reward import Reward
from simia.trainers.ragen.env import SeedLane, SimiaEnv
from simia.trainers.ragen.settings import LATEST, count_done_steps
from simia.trainers.ragen.training_rows import collect_rows
from tests.trainers import ragen_standin as standin
from tests.trainers.ragen_standin import call, config, inputs, ns


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    return standin.our_manager(monkeypatch)


class Texts:
    """A context of plain text, in place of the one that needs torch."""

    def __init__(self, say: Callable[[SimiaEnv], str]) -> None:
        self.say = say
        self.batches: list[list[int]] = []

    def opened(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [row for row in rows if not row["simia_env"].done]

    def get_lm_inputs(self, rows: list[dict[str, Any]], prepare_for_update: bool) -> Any:
        assert rows, "an empty batch kills RAGEN's engine"
        self.batches.append([row["env_id"] for row in rows])
        return SimpleNamespace(rows=rows, meta_info=None)

    def get_env_inputs(self, said: list[tuple[int, str]]) -> list[dict[str, Any]]:
        return [{"env_id": n, "llm_response": t, "llm_raw_response": t, "actions": [t]} for n, t in said]

    def formulate_rollouts(self, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return states


def by_script(env: SimiaEnv) -> str:
    """What the task's script would say next; the third member of each group is wrong."""
    turn = [part for part in env.playing.task.script if part.user is None][env.turns]
    if not turn.calls:
        return "Done."
    arguments = turn.calls[0].arguments or {}
    return call(arguments["lamp"], arguments["on"] == (env.member != 2))


@pytest.fixture
def proxy(manager: Any) -> Callable[[Any, Texts], Any]:
    """Our loop with this context, in training and in validation."""
    from simia.trainers.ragen.rollout import Proxy

    class Saying(Proxy):
        def generate_sequences(self, lm_inputs: Any) -> Any:
            assert lm_inputs.meta_info == "of the step"
            return [(row["env_id"], self.train_ctx_manager.say(row["simia_env"])) for row in lm_inputs.rows]

    def made(whole: Any, texts: Texts) -> Any:
        found = Saying(whole, None, None)
        found.train_ctx_manager = found.val_ctx_manager = texts
        found.train_es_manager, found.val_es_manager = manager(whole, "train"), manager(whole, "val")
        return found

    return made


STEP = SimpleNamespace(meta_info="of the step")


def closed(proxy: Any) -> None:
    proxy.train_es_manager.close()
    proxy.val_es_manager.close()


def seeded(whole: Any, **trainer: Any) -> Any:
    whole |= ns({"seed": {"train": 10_000, "val": 123}, "trainer": trainer})
    return whole


class Watched:
    """A back end that counts the worlds that are open."""

    def __init__(self, backend: Any) -> None:
        self._backend, self.open_now, self.most = backend, 0, 0

    async def open(self, task: Any, **how: Any) -> Any:
        world = await self._backend.open(task, **how)
        close = world.close
        self.open_now += 1
        self.most = max(self.most, self.open_now)

        async def closing() -> None:
            self.open_now -= 1
            await close()

        world.close = closing
        return world


@pytest.mark.parametrize("at_once", [None, 3])
def test_no_more_episodes_than_may_be_are_under_way_and_all_are_played(
    proxy: Any, lamps: Path, at_once: int | None
) -> None:
    whole = seeded(config(lamps))
    whole.custom_envs.Lamps.env_config["at_once"] = at_once
    texts = Texts(by_script)
    step = proxy(whole, texts)
    environment = step.train_es_manager.envs[0]["env"].lease.environment
    backend, environment.backend = environment.backend, Watched(environment.backend)
    try:
        states = step.rollout(STEP)
        watched, environment.backend = environment.backend, backend
        assert (watched.most, watched.open_now) == (at_once or 8, 0)
        assert max(map(len, texts.batches)) == (at_once or 8)
        assert Counter(itertools.chain(*texts.batches)) == dict.fromkeys(range(8), 4)
        assert [state["metrics"]["Lamps/success"] for state in states] == [1, 1, 0, 1] * 2
        assert all(state["history"][0]["state"].startswith("Switch the ") for state in states)
        tasks = [entry["env"].playing.task.id for entry in step.train_es_manager.envs]
        assert [len(set(tasks[:4])), len(set(tasks[4:])), len(set(tasks))] == [1, 1, 2]
    finally:
        closed(step)


def test_each_episode_has_its_own_rounds_however_late_it_begins(proxy: Any, lamps: Path) -> None:
    whole = seeded(config(lamps, rounds=2))
    whole.custom_envs.Lamps.env_config["at_once"] = 1
    step = proxy(whole, Texts(by_script))
    try:
        step.rollout(STEP)
        assert [e["env"].turns for e in step.train_es_manager.envs] == [2] * 8
        assert {e["env"].playing.end.code for e in step.train_es_manager.envs} == {Code.MAX_TURNS}
    finally:
        closed(step)


def test_who_leaves_early_leaves_what_waits_without_a_reward(manager: Any, lamps: Path) -> None:
    whole = config(lamps)
    whole.custom_envs.Lamps.env_config["at_once"] = 2
    envs = manager(whole)
    try:
        assert [row["env_id"] for row in envs.reset(seed=0)] == [0, 1]
        envs.step(inputs(envs, lambda _: call("hall"), (0, 1)))
        states = envs.get_rollout_states()
        assert [state["metrics"]["Lamps/unscored"] for state in states] == [0, 0] + [1] * 6
        assert "before this episode began" in envs.envs[7]["env"].playing.issues[0].detail
        assert [row["env_id"] for row in envs.reset(seed=2)] == [0, 1]
    finally:
        envs.close()


@pytest.mark.parametrize("how", ["refused", "lost"])
def test_a_step_that_is_lost_in_whole_ends_the_training_and_no_validation(proxy: Any, lamps: Path, how: str) -> None:
    texts = Texts(by_script)
    step = proxy(seeded(config(lamps)), texts)
    environment = step.train_es_manager.envs[0]["env"].lease.environment
    backend, environment.backend = environment.backend, Slow(environment.backend, **{how: range(1, 17)})
    try:
        states = step.rollout(STEP, val=True)
        assert {state["metrics"]["Lamps/unscored"] for state in states} == {1.0}
        with pytest.raises(
            UserError, match=r"^step 1: 8 of 8 episodes without a reward, mostly: on purpose; .* start again"
        ):
            step.rollout(STEP)
        assert sum(map(len, texts.batches)) == {"refused": 0, "lost": 16}[how], (
            "each episode speaks once before it is lost"
        )
        environment.backend = backend
    finally:
        closed(step)


def test_a_step_of_which_some_are_lost_is_trained(proxy: Any, lamps: Path, caplog: pytest.LogCaptureFixture) -> None:
    step = proxy(seeded(config(lamps)), Texts(by_script))
    environment = step.train_es_manager.envs[0]["env"].lease.environment
    backend, environment.backend = environment.backend, Slow(environment.backend, refused={3})
    try:
        step.rollout(STEP)
        environment.backend = backend
        assert [e["env"].reward for e in step.train_es_manager.envs] == [1, 1, None, 1, 1, 1, 0, 1]
        assert "step 1: 1 of 8 episodes without a reward, mostly: on purpose" in caplog.text
    finally:
        closed(step)


# -- what is too slow, and what is over before it began -------------------------------------------------------------------


class Slow:
    """A back end of which these worlds, counted from 1, never come, never answer, never can be let go, are refused, or lost."""

    def __init__(
        self, backend: Any, *, never: Any = (), mute: Any = (), stuck: Any = (), refused: Any = (), lost: Any = ()
    ) -> None:
        self._backend, self._numbers = backend, itertools.count(1)
        self._never, self._mute, self._stuck, self._refused, self._abort_unstarted = never, mute, stuck, refused, lost

    async def open(self, task: Any, **how: Any) -> Any:
        number = next(self._numbers)
        if number in self._refused:
            raise Aborted(Code.WORKER_LOST, "on purpose")
        if number in self._never:
            await forever()
        world = await self._backend.open(task, **how)
        if number in self._mute:
            world.call = forever
        if number in self._stuck:
            world.call = world.close = forever
        if number in self._abort_unstarted:
            world.call = gone
        return world


async def gone(*_: Any, **__: Any) -> Any:
    raise Aborted(Code.WORKER_LOST, "on purpose")


async def forever(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


class SlowJudge:
    async def score(self, *_: Any) -> Reward:
        await forever()
        raise AssertionError


def test_one_slow_answer_does_not_hold_the_batch(manager: Any, lamps: Path) -> None:
    whole = config(lamps)
    whole.custom_envs.Lamps.env_config["world_seconds"] = 0.5
    envs = manager(whole)
    environment = envs.envs[0]["env"].lease.environment
    backend, environment.backend = environment.backend, Slow(environment.backend, never={2}, mute={4}, stuck={6})
    try:
        assert [row["env_id"] for row in envs.reset(seed=0)] == [0, 2, 3, 4, 5, 6, 7]
        environment.backend = backend
        running = envs.step(inputs(envs, lambda _: call("hall")))
        assert [row["env_id"] for row in running] == [0, 2, 4, 6, 7]
        lost = [envs.envs[number]["env"] for number in (1, 3, 5)]
        assert [env.playing.end.kind for env in lost] == ["aborted"] * 3
        assert {env.playing.end.code for env in lost} == {Code.TIMEOUT}
        assert [env.reward for env in lost] == [None] * 3
        environment.scorer = SlowJudge()
        envs.get_rollout_states()
        unjudged = envs.envs[7]["env"]
        assert (unjudged.playing.end.kind, unjudged.reward) == ("truncated", None)
        assert unjudged.info["unscored"] == 1.0
        assert "took over 0.5 s" in unjudged.playing.reward.rationale
    finally:
        environment.scorer = None
        envs.close()


class Gone(NoUser):
    """A user who is off before anybody spoke."""

    async def reply(self, view: Any) -> Any:
        return UserStop(Code.USER_STOP)


def test_an_episode_in_which_the_policy_never_spoke_says_nothing_of_the_policy(manager: Any, lamps: Path) -> None:
    envs = manager(config(lamps))
    environment = envs.envs[0]["env"].lease.environment
    user, environment.user = environment.user, lambda task: Gone(task)
    try:
        assert envs.reset(seed=0) == []
        assert [entry["env"].playing.end.kind for entry in envs.envs] == ["terminated"] * 8
        rows = collect_rows([entry["env"] for entry in envs.envs], 0)
        assert rows.scores == [None] * 8
        assert not any(itertools.chain(*rows.mask))
        environment.user = user
        assert len(envs.reset(seed=0)) == 8
        states = envs.get_rollout_states()  # nobody was asked
        assert [entry["env"].playing.end.kind for entry in envs.envs] == ["aborted"] * 8, "and nobody pays a judge"
        assert {state["metrics"]["Lamps/unscored"] for state in states} == {1.0}
    finally:
        environment.user = user
        envs.close()


# -- tasks by seed --------------------------------------------------------------------------------------------------------


def test_two_tags_go_through_their_tasks_each_without_a_gap(manager: Any, lamps: Path, tmp_path: Path) -> None:
    whole = seeded(config(lamps, groups=4, size=2))
    whole.custom_envs["Other"] = whole.custom_envs.Lamps
    whole.es_manager.train.env_configs = ns({"tags": ["Lamps", "Other"], "n_groups": [3, 1]})
    envs = manager(whole)
    played: dict[str, list[str]] = {"Lamps": [], "Other": []}
    try:
        for _ in range(8):
            envs.reset()
            for entry in envs.envs[::2]:
                played[entry["tag"]].append(entry["env"].playing.task.id)
    finally:
        envs.close()
    assert [len(tasks) for tasks in played.values()] == [24, 8]
    for tasks in played.values():
        laps = [tasks[i : i + 4] for i in range(0, len(tasks), 4)]
        assert all(len(set(lap)) == 4 for lap in laps), laps
    assert len({tuple(played["Lamps"][i : i + 4]) for i in range(0, 24, 4)}) > 1, "in another order each time"


def test_a_lane_counts_its_tags_groups_in_their_order() -> None:
    lanes = [SeedLane(10_000, 16, group, 6, group - 10) for group in range(10, 16)]
    numbers = [lane.number(10_000 + step * 16 + lane.group) for step in range(5) for lane in lanes]
    assert numbers == list(range(10_000, 10_030))
    assert [SeedLane().number(seed) for seed in (0, 7, 123)] == [0, 7, 123]
    alone = [SeedLane(123, 16, group, 16, group) for group in range(16)]
    assert [lane.number(200 + lane.group) for lane in alone] == [123 + 77 // 16 * 16 + lane.group for lane in alone]


def test_a_resumed_run_goes_on_with_the_tasks_of_its_step(manager: Any, lamps: Path, tmp_path: Path) -> None:
    def seeds(steps: int, mode: str = "train", **trainer: Any) -> list[int]:
        envs = manager(seeded(config(lamps), default_local_dir=str(tmp_path), **trainer), mode)
        try:
            found = []
            for _ in range(steps):
                envs.reset()
                found.append(envs.envs[0]["status"].seed)
            assert envs.steps == steps + (found[0] - 10_000) // 2 * (mode == "train")
            return found
        finally:
            envs.close()

    undisturbed, validation = seeds(4), seeds(1, "val")
    (tmp_path / "global_step_2").mkdir()
    (tmp_path / LATEST).write_text("2")
    assert seeds(2) == undisturbed[2:]
    assert seeds(1, "val") == validation
    assert seeds(1, resume_mode="disable") == undisturbed[:1]
    named = str(tmp_path / "elsewhere" / "global_step_3")
    assert seeds(1, resume_mode="resume_path", resume_from_path=named) == undisturbed[3:]
    (tmp_path / LATEST).write_text("4")
    assert count_done_steps(ns({"trainer": {"default_local_dir": str(tmp_path)}})) == 0, (
        "a checkpoint that is not there"
    )
