"""A step of RAGEN's without RAGEN: our manager under a stand-in whose signatures are the real ones'.

What failed in the authors' integration is tried here: 128 episodes step at once, an outage neither raises nor scores, what is
unfinished is judged, the data are there once. `test_ragen_real.py` does it on RAGEN's own source.
"""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.pack import Pack
from simia.trainers.ragen.env import SimiaEnv
from simia.trainers.ragen.training_rows import collect_rows
from tests.fake_endpoint import FakeEndpoint
from tests.trainers import ragen_standin as standin
from tests.trainers.ragen_standin import RECORD, call, config, inputs


@pytest.fixture(scope="module")
def _stage() -> Iterator[FakeEndpoint]:
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    yield endpoint
    endpoint.stop()


@pytest.fixture
def stage(_stage: FakeEndpoint) -> FakeEndpoint:
    """Simulator and judge."""
    _stage.plan()
    return _stage


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Any:
    return standin.our_manager(monkeypatch)


def simulated(endpoint: FakeEndpoint, **limits: Any) -> dict[str, Any]:
    llm = {"kind": "openai", "base_url": endpoint.url, "model": "fake", "timeout": 120}
    return {"backend": "simulated", "llm": llm, "limits": {"start": 256, "stall": None, "retries": 0, **limits}}


# -- the manager, and what failed elsewhere --------------------------------------------------------------------------------


def test_our_classes_take_what_ragens_take(manager: Any) -> None:
    ours = {"EnvStateManager": manager, "BaseEnv": SimiaEnv}
    for name, methods in RECORD["classes"].items():
        for method, parameters in methods.items():
            if name not in ours or method.startswith("_init"):
                continue
            known = inspect.signature(getattr(ours[name], method)).parameters
            open_ended = any(p.kind is p.VAR_KEYWORD for p in known.values())
            for parameter in parameters:
                assert parameter.strip("=*") in known or parameter.startswith("**") or open_ended or method == "render"


def test_groups_by_seed_play_to_their_ends(manager: Any, lamps: Path) -> None:
    envs = manager(config(lamps))
    try:
        running = envs.reset(seed=8)
        assert [row["env_id"] for row in running] == list(range(8))
        tasks = [entry["env"].playing.task.id for entry in envs.envs]
        assert [len(set(tasks[:4])), len(set(tasks[4:])), len(set(tasks))] == [1, 1, 2]
        groups = [entry["env"].playing.group for entry in envs.envs]
        assert len(set(groups)) == 2
        scripts = [[turn for turn in entry["env"].playing.task.script if turn.user is None] for entry in envs.envs]
        for turn in range(4):

            def said(number: int, turn: int = turn) -> str:
                part = scripts[number][turn]
                right = number % 4 < 2  # half of each group does the opposite
                return (
                    call(part.calls[0].arguments["lamp"], part.calls[0].arguments["on"] == right)
                    if part.calls
                    else "Done."
                )

            running = envs.step(inputs(envs, said))
        assert running == []
        states = envs.get_rollout_states()
        assert [state["metrics"]["Lamps/success"] for state in states] == [1, 1, 0, 0] * 2
        assert [state["metrics"]["Lamps/turns"] for state in states] == [4.0] * 8
        assert [entry["status"].rewards for entry in envs.envs] == [[0, 0, 0, 1], [0, 0, 0, 1], [0] * 4, [0] * 4] * 2
    finally:
        envs.close()


def test_128_episodes_step_together(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    """The endpoint answers nobody before all 128 have asked: stepped one after another, they would wait for ever."""
    stage.plan(barrier=128)
    envs = manager(config(lamps, groups=16, size=8, **simulated(stage)))
    try:
        envs.reset(seed=0)
        running = envs.step(inputs(envs, lambda number: call(f"lamp {number}")))
        assert len(running) == 128
        log = stage.log()
        assert log["most_in_flight"] == 128 == log["count"]
    finally:
        envs.close()


def test_members_of_a_group_share_the_simulators_answers(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    envs = manager(config(lamps, **simulated(stage)))
    try:
        envs.reset(seed=0)
        envs.step(inputs(envs, lambda _: call("hall")))
        assert stage.log()["count"] == 2, "one answer a group"
    finally:
        envs.close()


def test_a_run_that_is_started_again_pays_for_no_reply_twice(
    manager: Any, lamps: Path, stage: FakeEndpoint, tmp_path: Path
) -> None:
    kept = config(lamps, **simulated(stage))
    kept["custom_envs"]["Lamps"]["env_config"]["store"] = str(tmp_path / "replies")
    heard = []
    for _ in range(2):
        envs = manager(kept)
        try:
            envs.reset(seed=0)
            envs.step(inputs(envs, lambda number: call(f"lamp {number}")))
            heard.append([entry["env"].render() for entry in envs.envs])
        finally:
            envs.close()
    assert heard[0] == heard[1]
    assert stage.log()["count"] == 8


def test_an_outage_neither_raises_nor_scores(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    envs = manager(config(lamps, **simulated(stage)))
    try:
        envs.reset(seed=0)
        stage.plan(each=["500"])
        assert envs.step(inputs(envs, lambda number: call(f"lamp {number}"))) == []
        for entry, state in zip(envs.envs, envs.get_rollout_states(), strict=True):
            assert entry["env"].reward is None
            assert math.isnan(entry["status"].rewards[-1]), "not 0, which would say that the policy failed"
            assert state["metrics"]["Lamps/aborted"] == 1.0
        rows = collect_rows([entry["env"] for entry in envs.envs], 0)
        assert rows.scores == [None] * 8
        assert not any(itertools.chain(*rows.mask))
        stage.plan()
        assert len(envs.reset(seed=2)) == 8, "the next step begins as if nothing had been"
    finally:
        envs.close()


def test_what_is_unfinished_is_judged_in_the_last_round(manager: Any, lamps: Path, stage: FakeEndpoint) -> None:
    envs = manager(config(lamps, rounds=2, **simulated(stage)))
    try:
        envs.reset(seed=0)
        assert len(envs.step(inputs(envs, lambda number: call(f"lamp {number}")))) == 8
        assert envs.step(inputs(envs, lambda _: "Done.")) == []
        ends = [(e["env"].playing.end.kind, e["env"].playing.end.code, e["env"].reward) for e in envs.envs]
        assert ends == [("truncated", "max_turns", 1.0)] * 8
        asked = [row["body"]["messages"][0]["content"] for row in stage.log()["requests"]]
        assert sum(text.startswith("You judge") for text in asked) == 8
        envs.reset(seed=2)
        envs.step(inputs(envs, lambda number: call(f"lamp {number}")))
        states = envs.get_rollout_states()  # a caller that leaves before the last round
        assert [state["metrics"]["Lamps/success"] for state in states] == [1.0] * 8
    finally:
        envs.close()


def test_one_copy_of_the_data(manager: Any, lamps: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[str] = []
    load = Pack.load
    monkeypatch.setattr(Pack, "load", classmethod(lambda cls, path: loads.append(str(path)) or load(path)))
    both = [manager(config(lamps, groups=16, size=8), mode) for mode in ("train", "val")]
    try:
        assert len(loads) == 1
        assert len({id(entry["env"].lease.environment) for envs in both for entry in envs.envs}) == 1
    finally:
        for envs in both:
            envs.close()


def test_a_call_that_cannot_be_read_costs_the_penalty(manager: Any, lamps: Path) -> None:
    envs = manager(config(lamps))
    try:
        envs.reset(seed=0)
        rows = envs.step(inputs(envs, lambda number: "<tool_call>{no</tool_call>" if number == 1 else call("hall")))
        assert [row["penalty"] for row in rows] == [0, -0.1, 0, 0, 0, 0, 0, 0]
        assert len(rows) == 8, "the environment answers it with an error"
    finally:
        envs.close()
