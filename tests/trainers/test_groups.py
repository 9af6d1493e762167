"""Group statistics against numbers worked by hand."""

import math
from typing import Any

import pytest

from simia.trainers.groups import advantages, batch_advantages, statistics

about = pytest.approx


def test_a_group_by_hand() -> None:
    rewards = [1.0, 0.0, 0.0, 1.0, 1.0]
    # mean 3/5; squared distances 3 * 0.16 + 2 * 0.36 = 1.2; / 4 = 0.3; std = 0.5477225575
    assert advantages(rewards, "mean") == about([0.4, -0.6, -0.6, 0.4, 0.4])
    assert advantages(rewards, eps=0.0) == about(
        [0.7302967433, -1.0954451150, -1.0954451150, 0.7302967433, 0.7302967433]
    )
    # eps stands beside the spread: 0.4 / (0.5477225575 + 0.4522774425) = 0.4
    assert advantages(rewards, eps=0.4522774425) == about([0.4, -0.6, -0.6, 0.4, 0.4])


def test_an_aborted_episode_is_no_part_of_its_group() -> None:
    # of 3, 1 and 2: mean 2, std 1
    assert advantages([3.0, None, 1.0, 2.0], eps=0.0) == about([1.0, 0.0, -1.0, 0.0])
    # were it a 0 the mean would be 1.5
    assert advantages([3.0, None, 1.0, 2.0], "mean") == about([1.0, 0.0, -1.0, 0.0])


@pytest.mark.parametrize("norm", ["mean", "mean_std"])
@pytest.mark.parametrize("rewards", [[], [None, None], [0.7], [0.7, None], [0.1] * 7, [None, 1.0, 1.0]])
def test_nothing_to_compare_is_zero_exactly(rewards: list[float | None], norm: Any) -> None:
    assert advantages(rewards, norm) == [0.0] * len(rewards)


@pytest.mark.parametrize("norm", ["mean", "mean_std"])
def test_advantages_of_the_known_sum_to_nothing(norm: Any) -> None:
    found = advantages([0.3, None, 0.9, 0.0, 0.25, None, 1.0], norm)
    assert math.fsum(found) == about(0.0, abs=1e-12)


def test_groups_of_a_batch_stand_where_they_stand() -> None:
    rewards = [1.0, 5.0, 0.0, None, 9.0, 7.0]
    groups = ["a", "b", "a", "b", "b", "c"]
    # a: 1, 0 around 0.5; b: 5, 9 around 7 without the aborted one; c is alone
    assert batch_advantages(rewards, groups, "mean") == about([0.5, -2.0, -0.5, 0.0, 2.0, 0.0])
    with pytest.raises(ValueError, match="6 rewards and 5 groups"):
        batch_advantages(rewards, groups[:5])


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_is_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="aborted episode is None"):
        advantages([1.0, wrong])
    with pytest.raises(ValueError, match="no normalisation named 'z'"):
        advantages([1.0, 0.0], "z")  # type: ignore[arg-type]


def test_statistics_by_hand() -> None:
    rewards = [1.0, 0.0, 1.0, 0.0, None, 1.0, 1.0, 0.0]
    groups = ["a", "a", "a", "b", "b", "b", "c", "d"]
    found = statistics(rewards[:6], groups[:6])
    assert found["aborted"] == about(1 / 6)
    assert found["reward/mean"] == about(3 / 5)
    assert found["groups/flat"] == 0.0
    # k = 2, for b has two: a, 2 of 3: 1 - C(1,2)/C(3,2) = 1 and C(2,2)/C(3,2) = 1/3; b, 1 of 2: 1 and 0
    assert found["pass@1"] == about((2 / 3 + 1 / 2) / 2)
    assert (found["pass@2"], found["pass^2"]) == about((1.0, 1 / 6))
    assert statistics(rewards[6:], groups[6:])["groups/flat"] == 1.0
    assert statistics([None], ["a"]) == {"episodes": 1.0, "aborted": 1.0}
