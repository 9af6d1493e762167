"""How many calls may be in flight: grows by success, gives way once a round trip, never to nothing."""

from __future__ import annotations

import random

import pytest

from simia.llm.concurrency import AdaptiveConcurrency


def run(pace: AdaptiveConcurrency, capacity: int, rounds: int) -> list[int]:
    """A server that takes `capacity` at once and refuses the rest: the limit after each round trip."""
    seen = []
    for _ in range(rounds):
        mark, calls = pace.sent(), int(pace.limit)
        for _ in range(max(0, calls - capacity)):
            pace.refused(mark, min(calls, capacity))
        for _ in range(min(calls, capacity)):
            pace.answered(1.0, waiting=True)
        seen.append(int(pace.limit))
    return seen


def test_it_doubles_until_the_ceiling() -> None:
    assert run(AdaptiveConcurrency(16, 200), 10_000, 5) == [32, 64, 128, 200, 200]


@pytest.mark.parametrize("capacity", [1, 7, 128, 900])
def test_it_settles_near_the_capacity(capacity: int) -> None:
    limits = run(AdaptiveConcurrency(16, 1024), capacity, 300)[100:]
    assert min(limits) >= 0.7 * capacity
    assert max(limits) <= 1.2 * capacity + 2
    assert sum(min(limit, capacity) for limit in limits) / len(limits) >= 0.9 * capacity


def test_many_refusals_of_one_round_count_once() -> None:
    pace = AdaptiveConcurrency(100, 100)
    mark = pace.sent()
    for _ in range(60):
        pace.refused(mark, 90)
    assert pace.limit == 85


def test_it_does_not_grow_where_nobody_waits() -> None:
    pace = AdaptiveConcurrency(16, 200)
    for _ in range(100):
        pace.answered(1.0, waiting=False)
    assert pace.limit == 16


def test_it_gives_way_when_answers_take_far_longer_and_keeps_a_floor() -> None:
    pace = AdaptiveConcurrency(64, 64)
    for _ in range(500):
        pace.answered(1.0, waiting=True)
    for _ in range(70):
        pace.answered(8.0, waiting=True)
    assert 32 <= pace.limit < 64
    for _ in range(20_000):
        pace.answered(1.0 + (pace.limit - 8), waiting=False)
    assert pace.limit >= 8


def test_longer_answers_of_a_fuller_batch_are_no_reason() -> None:
    pace = AdaptiveConcurrency(16, 256)
    for _ in range(5000):
        pace.answered(1.0 + pace.limit / 256, waiting=True)
    assert pace.limit == 256


def test_refusals_at_random_do_not_bring_it_down_to_nothing() -> None:
    """Three of ten calls are refused, however few there are at once: slower, not stuck."""
    dice, pace, limits = random.Random(3), AdaptiveConcurrency(16, 64), []
    for _ in range(400):
        mark, calls = pace.sent(), int(pace.limit)
        refused = sum(dice.random() < 0.3 for _ in range(calls))
        for _ in range(refused):
            pace.refused(mark, calls)
        for _ in range(calls - refused):
            pace.answered(1.0, waiting=True)
        limits.append(pace.limit)
    assert sum(limits[100:]) / 300 > 5
