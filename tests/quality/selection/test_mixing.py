"""Mixing: exact counts, the same choice everywhere, an order that a stream can follow."""

from __future__ import annotations

from collections import Counter

import pytest

from simia.errors import UserError
from simia.quality.selection.mixing import Mixer, compute_quotas

PLENTY = {"retail": 1000, "airline": 1000, "office": 1000}


@pytest.mark.parametrize(
    ("shares", "total", "expected"),
    [
        ({"retail": 0.5, "airline": 0.3, "office": 0.2}, 10, {"retail": 5, "airline": 3, "office": 2}),
        ({"retail": 1, "airline": 1, "office": 1}, 10, {"retail": 4, "airline": 3, "office": 3}),
        ({"retail": 1, "airline": 2}, 10, {"retail": 3, "airline": 7}),
        ({"retail": 47, "airline": 33, "office": 20}, 7, {"retail": 3, "airline": 2, "office": 2}),
        ({"retail": 3, "airline": 0}, 5, {"retail": 5, "airline": 0}),
        ({"retail": 1}, 0, {"retail": 0}),
    ],
)
def test_shares_become_counts(shares: dict[str, float], total: int, expected: dict[str, int]) -> None:
    assert compute_quotas(shares, total, PLENTY) == expected


def test_counts_always_sum_to_the_total() -> None:
    for total in range(60):
        assert sum(compute_quotas({"retail": 0.1, "airline": 0.2, "office": 0.7}, total, PLENTY).values()) == total


def test_a_domain_that_falls_short_is_named_with_the_numbers() -> None:
    available = {"retail": 1000, "airline": 29}
    with pytest.raises(UserError, match=r"airline has 29 of 50 wanted: lower the total to 58") as caught:
        compute_quotas({"retail": 1, "airline": 1}, 100, available)
    assert "retail" not in str(caught.value)
    assert compute_quotas({"retail": 1, "airline": 1}, 58, available) == {"retail": 29, "airline": 29}


@pytest.mark.parametrize(
    ("shares", "total", "message"),
    [
        ({"retail": -1.0}, 1, "from 0 up"),
        ({"retail": float("nan")}, 1, "from 0 up"),
        ({"retail": 0.0}, 1, "at least one"),
        ({"retial": 1.0}, 1, "the sources contain no pack retial; they contain: airline, office, retail"),
        ({"retail": 1.0}, -1, "negative"),
    ],
)
def test_shares_that_make_no_sense(shares: dict[str, float], total: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        compute_quotas(shares, total, PLENTY)


def chosen(mixer: Mixer, domain: str, available: int) -> list[int]:
    return [index for index in range(available) if mixer.choose(domain, index)]


def test_exactly_so_many_are_chosen_from_all_over_the_stream() -> None:
    mixer = Mixer({"retail": 1, "office": 3}, 400, PLENTY)
    retail, office = chosen(mixer, "retail", 1000), chosen(mixer, "office", 1000)
    assert (len(retail), len(office)) == (100, 300)
    assert min(retail) < 100
    assert max(retail) > 900
    assert not mixer.choose("airline", 0)
    assert not mixer.choose("retail", 1000)
    assert not mixer.choose("retail", -1)


def test_all_are_chosen_where_all_are_needed() -> None:
    mixer = Mixer({"retail": 1}, 1000, PLENTY)
    assert len(chosen(mixer, "retail", 1000)) == 1000


def test_the_choice_follows_from_the_seed_alone() -> None:
    def choice(seed: int) -> list[int]:
        return chosen(Mixer({"retail": 1, "office": 1}, 200, PLENTY, seed=seed), "retail", 1000)

    assert choice(0) == choice(0)
    assert choice(0) != choice(1)
    assert choice(0)[:8] == [2, 18, 22, 31, 40, 42, 47, 58]  # on every machine


def test_domains_are_interleaved() -> None:
    mixer = Mixer({"retail": 1, "office": 3}, 400, PLENTY)
    order = list(mixer.order())
    assert Counter(order) == mixer.counts
    assert order == list(mixer.order())
    assert order != list(Mixer({"retail": 1, "office": 3}, 400, PLENTY, seed=1).order())
    for start in range(0, 400, 100):  # never one domain after the other
        assert 10 <= order[start : start + 100].count("retail") <= 45
