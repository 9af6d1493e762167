"""Episodes go on as soon as their own answers are there, and none is left behind by an error or an end."""

from __future__ import annotations

import asyncio

import pytest

from simia import event_loop
from simia.trainers.turn_schedule import TurnSchedule


async def answer(value: int, wait: asyncio.Event | None = None) -> int:
    if wait is not None:
        await wait.wait()
    return value


async def fail() -> int:
    raise OSError("the server is gone")


def test_what_is_ready_does_not_wait_for_what_is_slow() -> None:
    schedule, gate = TurnSchedule[int](), asyncio.Event()
    schedule.start(0, answer(0, gate))
    for key in (2, 1):
        schedule.start(key, answer(10 * key))
    assert schedule.collect() == {2: 20, 1: 10}
    schedule.start(1, answer(11))
    assert schedule.collect() == {1: 11}
    event_loop.start_portal().call_soon_threadsafe(gate.set)
    assert schedule.collect() == {0: 0}
    assert schedule.collect() == {}


def test_an_error_is_raised_when_all_others_have_ended() -> None:
    schedule, done = TurnSchedule[str](), list[str]()

    async def slow() -> None:
        await asyncio.sleep(0.3)
        done.append("slow")

    schedule.start("slow", slow())
    schedule.start("bad", fail())
    with pytest.raises(OSError, match="gone"):
        schedule.collect()
    assert done == ["slow"]
    assert len(schedule) == 0


def test_closing_cancels_what_is_under_way() -> None:
    schedule, ended = TurnSchedule[int](), list[str]()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    schedule.start(1, endless())
    event_loop.run(asyncio.sleep(0.05))
    schedule.close()
    event_loop.run(asyncio.sleep(0.05))
    assert ended == ["cancelled"]
    schedule.start(2, answer(2))
    with pytest.raises(ValueError, match="2 has a step in progress"):
        schedule.start(2, answer(2))
    schedule.close()
