"""TRL's step sets the weight of the trace in the reward `trace_state`."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest

from simia.trainers.trl.rollout import rollout_func
from simia.trajectory import Trajectory
from tests.trainers.test_time_limits import TRAINER, say_done

SCHEDULE = {"tau": 0.9, "final_tau": 0.1, "steps": 10}


@pytest.mark.parametrize(("step", "tau"), [(0, "0.9"), (5, "0.5"), (10, "0.1"), (99, "0.1")])
async def test_the_weight_follows_the_step_of_trl(step: int, tau: str) -> None:
    trainer = copy.copy(TRAINER)
    trainer.state = copy.copy(TRAINER.state)
    trainer.state.global_step = step
    played: list[Trajectory] = []

    def play() -> dict[str, list[Any]]:
        from simia import event_loop
        from simia.envs.opening import open_environment

        opened = open_environment("customer_service", user="none", reward="trace_state", trace_state=SCHEDULE)
        environment = event_loop.run(opened)
        try:
            roll = rollout_func(environment, sample=say_done, on_trajectory=played.append)
            return roll([environment.tasks[0].id], trainer)
        finally:
            event_loop.run(environment.close())

    rows = await asyncio.to_thread(play)
    assert rows["reward"] == [0.0]
    assert played[0].reward is not None
    assert played[0].reward.rationale.startswith(f"tau {tau}: trace 0, state 0")
