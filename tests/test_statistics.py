"""pass@k and pass^k against counting, and intervals that hold what they say."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import partial

import pytest

from simia import statistics
from simia.statistics import (
    bootstrap_interval,
    compute_pass_at_k_interval,
    compute_student_quantile,
    compute_wilson_interval,
    estimate_mean_of_groups,
    estimate_pass_at_k,
    estimate_pass_hat_k,
    flip_signs,
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


def share_covered(draw: Callable[[random.Random], list[list[float]]], truth: float, lowest: float = 0.0) -> float:
    """The share of 200 intervals of simulated groups of tasks that hold the true mean."""
    source, hits = random.Random(3), 0
    for _ in range(200):
        each = estimate_mean_of_groups(draw(source), lowest)
        hits += each.low - 1e-9 <= truth <= each.high + 1e-9
    return hits / 200


@pytest.mark.parametrize("tasks", [2, 3, 5, 8])
def test_intervals_of_few_tasks_cover_the_truth_too(tasks: int) -> None:
    """A bootstrap of two different values covers half of the truths, one of eight with rare successes four fifths."""
    assert share_covered(lambda source: [[source.random() for _ in range(tasks)]], 0.5) >= 0.93
    gains = share_covered(lambda source: [[source.choice((-0.25, 0.0, 0.5)) for _ in range(tasks)]], 1 / 12, -1.0)
    assert gains >= 0.93

    def draw_trials(source: random.Random) -> list[list[float]]:
        chances = [source.betavariate(0.2, 1.8) for _ in range(tasks)]
        return [[sum(source.random() < chance for _ in range(4)) / 4 for chance in chances]]

    assert share_covered(draw_trials, 0.1) >= 0.93


@pytest.mark.parametrize("tasks", [10, 12, 15])
def test_intervals_of_ten_to_fifteen_tasks_are_not_too_narrow(tasks: int) -> None:
    """Plain quantiles of resamples cover 0.85 to 0.93 of these truths."""
    assert share_covered(lambda source: [[source.random() for _ in range(tasks)]], 0.5) >= 0.94
    for values in ((-0.25, 0.0, 0.5), (-1.0, 0.0, 0.0, 0.0, 1.0, 1.0)):
        draw = partial(lambda values, source: [[source.choice(values) for _ in range(tasks)]], values)
        assert share_covered(draw, sum(values) / len(values), -1.0) >= 0.94


@pytest.mark.parametrize("sizes", [(10, 200), (10,) * 5])
def test_the_mean_of_parts_of_ten_tasks_has_an_interval_that_is_wide_enough(sizes: tuple[int, ...]) -> None:
    assert share_covered(lambda source: [[source.random() for _ in range(size)] for size in sizes], 0.5) >= 0.94


@pytest.mark.parametrize(("freedom", "quantile"), [(4, 2.776), (9, 2.262), (29, 2.045), (1000, 1.962)])
def test_the_quantile_of_students_distribution_is_that_of_its_tables(freedom: int, quantile: float) -> None:
    assert compute_student_quantile(freedom) == pytest.approx(quantile, abs=0.01)


def test_a_share_of_successes_has_wilsons_interval_for_any_number_of_tasks() -> None:
    shares = bootstrap_interval([1.0] * 7 + [0.0] * 5)
    assert (shares.low, shares.high) == pytest.approx(compute_wilson_interval(7, 12))


def test_a_group_of_few_tasks_widens_the_interval_of_the_mean_of_groups() -> None:
    """One task of 101 determines half of the mean, so 100 tasks that all fail say nothing of its variance."""
    small = estimate_mean_of_groups([[0.0], [0.0] * 100])
    assert small.high > 0.4

    def draw_parts(source: random.Random) -> list[list[float]]:
        return [[float(source.random() < chance) for _ in range(tasks)] for tasks, chance in ((4, 0.3), (40, 0.6))]

    assert share_covered(draw_parts, 0.45) >= 0.93
    assert (
        share_covered(lambda s: [[float(s.random() < 0.3)], [float(s.random() < 0.1) for _ in range(100)]], 0.2) > 0.93
    )


@pytest.mark.parametrize("values", [[2.0, 2.0, 2.0], [-1.0], [3.0, -0.5], [5.0] * 12, [0.5, 7.0] * 8])
def test_rewards_beyond_0_to_1_have_an_interval_around_their_mean(values: list[float]) -> None:
    """A user's reward function may return any number."""
    for each in (bootstrap_interval(values), estimate_mean_of_groups([values, values])):
        assert each.value == pytest.approx(sum(values) / len(values))
        assert each.low < each.value <= each.high + 1e-9 or each.low - 1e-9 <= each.value < each.high
    assert summarize_rewards({str(n): [value] for n, value in enumerate(values)}).mean is not None


def draw_scenarios(source: random.Random, parts: int, n: int) -> tuple[list[list[float]], list[list[int]]]:
    """Figures of `parts` tasks of each of `n` scenarios, one in each part. Tasks of one scenario agree but for a little noise."""
    chances = [source.random() for _ in range(n)]
    groups = [[min(1.0, max(0.0, chance + source.gauss(0, 0.05))) for chance in chances] for _ in range(parts)]
    return groups, [list(range(n))] * parts


@pytest.mark.parametrize("several", [True, False])
def test_tasks_of_one_scenario_count_once_in_intervals(several: bool) -> None:
    """Three tasks of each of 15 scenarios: in three parts, or in one. Without the scenarios, the interval holds 0.75 of the truths."""
    source, hits, narrow = random.Random(8), 0, 0
    for _ in range(60):
        groups, clusters = draw_scenarios(source, 3, 15)
        if not several:
            groups, clusters = [list(itertools.chain(*groups))], [list(itertools.chain(*clusters))]
        each, blind = estimate_mean_of_groups(groups, clusters=clusters), estimate_mean_of_groups(groups)
        hits += each.low <= 0.5 <= each.high
        narrow += blind.low <= 0.5 <= blind.high
    assert hits / 60 >= 0.9
    assert narrow / 60 <= 0.85


def test_scenarios_that_no_two_tasks_share_change_nothing() -> None:
    source = random.Random(9)
    groups = [[source.random() for _ in range(n)] for n in (12, 30)]
    clusters = [[f"{at}.{n}" for n in range(len(values))] for at, values in enumerate(groups)]
    assert estimate_mean_of_groups(groups, clusters=clusters) == estimate_mean_of_groups(groups)
    assert flip_signs(groups, clusters) == flip_signs(groups)


def test_few_scenarios_have_wilsons_interval_for_as_many_tasks() -> None:
    """36 tasks of 4 scenarios, which always agree, are as 4 tasks."""
    values, clusters = [1.0] * 9 + [0.0] * 27, [n // 9 for n in range(36)]
    many, few = bootstrap_interval(values, clusters), bootstrap_interval([1.0, 0.0, 0.0, 0.0])
    assert (many.low, many.high) == pytest.approx((few.low, few.high))
    assert bootstrap_interval([1.0] * 36, clusters).low == pytest.approx(bootstrap_interval([1.0] * 4).low)


def test_groups_of_which_only_some_share_scenarios_are_resampled_apart() -> None:
    source = random.Random(10)
    groups = [[source.random() for _ in range(20)] for _ in range(3)]
    shared = list(range(20))
    own = [f"own {n}" for n in range(20)]
    each = estimate_mean_of_groups([groups[0], groups[0], groups[1]], clusters=[shared, shared, own])
    alone = estimate_mean_of_groups([groups[0], groups[0], groups[1]])
    assert each.high - each.low > alone.high - alone.low
    assert each.value == alone.value


def test_a_scenario_has_one_sign() -> None:
    """Ten scenarios in three parts, better in each: p is that of ten differences, not of thirty."""
    gains, clusters = [[0.5] * 10] * 3, [list(range(10))] * 3
    assert flip_signs(gains, clusters) == pytest.approx(2 / 2**10)
    opposed = [[0.5] * 10, [-0.5] * 10]
    assert flip_signs(opposed, clusters[:2]) == 1.0


def test_p_values_of_sampled_flips_are_calibrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """50 differences, more than have an exact test: without an effect, p is uniform; an effect is found."""
    monkeypatch.setattr(statistics, "FLIPS", 200)
    source = random.Random(5)
    samples = [[source.gauss(0.0, 1.0) for _ in range(50)] for _ in range(200)]
    found = [flip_signs([values]) for values in samples]
    assert 0.02 <= sum(p <= 0.05 for p in found) / 200 <= 0.09
    assert 0.4 <= sum(p <= 0.5 for p in found) / 200 <= 0.6
    assert all(flip_signs([[value + 0.8 for value in values]]) < 0.05 for values in samples[:20])


def test_sampled_p_values_are_near_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    source = random.Random(6)
    samples = [[[source.uniform(-1, 1.5) for _ in range(n)] for n in (8, 4)] for _ in range(10)]
    exact = [flip_signs(groups) for groups in samples]
    monkeypatch.setattr(statistics, "MOST_EXACT", 0)
    monkeypatch.setattr(statistics, "FLIPS", 4_000)
    assert [flip_signs(groups) for groups in samples] == pytest.approx(exact, abs=0.03)
    assert max(exact) - min(exact) > 0.2


@pytest.mark.parametrize("modes", [[1.0, 0.0], [1.0, 1.0, 0.0], [0.5, 0.5]])
def test_scenarios_of_equal_means_have_an_interval_that_is_not_a_point(modes: list[float]) -> None:
    """An easy mode that is always solved and a hard one that never is: each resample of scenarios has the same mean."""
    each = bootstrap_interval(modes * 12, [n // len(modes) for n in range(12 * len(modes))])
    like = bootstrap_interval([0.5] * 12)
    assert each.high - each.low == pytest.approx(like.high - like.low, abs=0.01)
