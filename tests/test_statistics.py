"""pass@k and pass^k against counting, and intervals that hold what they say."""

from __future__ import annotations

import itertools
import random

import pytest

from simia.statistics import (
    bootstrap_interval,
    compute_pass_at_k_interval,
    compute_wilson_interval,
    estimate_pass_at_k,
    estimate_pass_hat_k,
    summarize_rewards,
)


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 2), (4, 2, 3), (6, 3, 1), (5, 0, 2), (5, 5, 5), (6, 4, 4)])
def test_the_estimates_are_the_share_of_all_draws(n: int, c: int, k: int) -> None:
    tries = [True] * c + [False] * (n - c)
    draws = list(itertools.combinations(tries, k))
    assert estimate_pass_at_k(n, c, k) == pytest.approx(sum(any(d) for d in draws) / len(draws))
    assert estimate_pass_hat_k(n, c, k) == pytest.approx(sum(all(d) for d in draws) / len(draws))


def test_the_interval_of_pass_at_k_follows_from_the_share_of_successes() -> None:
    assert compute_pass_at_k_interval(4, 1, 1) == pytest.approx(compute_wilson_interval(1, 4))
    assert compute_pass_at_k_interval(4, 1, 2) == pytest.approx((0.090, 0.910), abs=0.002)
    assert compute_pass_at_k_interval(4, 0, 4)[0] == 0.0 < compute_pass_at_k_interval(4, 4, 4)[0] < 1.0


def test_a_table_by_hand() -> None:
    found = summarize_rewards({"a": [1, 1, 1, 1], "b": [0, 1, 0, 1], "c": [0, 0, 0, None], "d": [None]})
    assert (found.episodes, found.scored, found.aborted, found.tasks, found.tries) == (13, 11, 2, 4, 3)
    assert found.mean is not None
    assert found.mean.value == pytest.approx((1 + 0.5 + 0) / 3)
    assert found.passes["pass@1"].value == pytest.approx(0.5)
    assert found.passes["pass@2"].value == pytest.approx((1 + 5 / 6 + 0) / 3)
    assert found.passes["pass^2"].value == pytest.approx((1 + 1 / 6 + 0) / 3)
    assert set(found.passes) == {"pass@1", "pass@2", "pass^2", "pass@3", "pass^3"}


def test_a_reward_short_of_one_is_no_success() -> None:
    assert summarize_rewards({"a": [0.99, 1.0]}).passes["pass@1"].value == 0.5


def test_nothing_scored_gives_no_figure() -> None:
    assert summarize_rewards({"a": [None]}).mean is None
    assert summarize_rewards({}).mean is None


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    source, hits = random.Random(1), 0
    for _ in range(120):
        values = [float(source.random() < 0.3) for _ in range(60)]
        each = bootstrap_interval(values)
        assert each.low <= each.value <= each.high
        hits += each.low <= 0.3 <= each.high
    assert 0.86 <= hits / 120 <= 1.0
    assert bootstrap_interval([0.0] * 20).high == pytest.approx(0.161, abs=0.002), (
        "Wilson's, where a bootstrap has no width"
    )
