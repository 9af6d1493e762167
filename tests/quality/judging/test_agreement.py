"""Intervals and kappas against figures worked out by hand or published."""

from __future__ import annotations

import pytest

from simia.quality.judging.agreement import PassRate, compute_fleiss_kappa, measure_agreement
from simia.statistics import compute_wilson_interval


def test_wilson() -> None:
    assert compute_wilson_interval(81, 263) == pytest.approx(
        (0.2553, 0.3662), abs=5e-5
    )  # Newcombe 1998, table I, method 3
    assert compute_wilson_interval(15, 148) == pytest.approx((0.0624, 0.1605), abs=5e-5)
    assert compute_wilson_interval(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)
    assert compute_wilson_interval(10, 10)[1] == 1.0
    assert compute_wilson_interval(0, 0) == (0.0, 1.0)


def test_rate() -> None:
    assert (PassRate(3, 4, 2).value, PassRate(0, 0, 5).value) == (0.75, None)


def test_cohens_kappa() -> None:
    pairs = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    found = measure_agreement(pairs)
    assert (found.both, found.agreed) == (50, 35)
    assert found.kappa == pytest.approx(0.4)  # 0.7 observed, 0.5 by chance
    assert measure_agreement([(True, False), (False, True)]).kappa == pytest.approx(-1.0)


def test_kappa_is_unknown_where_all_is_alike() -> None:
    assert measure_agreement([(True, True)] * 9).kappa is None
    assert measure_agreement([]).kappa is None
    assert measure_agreement([]).share is None


def test_fleiss_kappa() -> None:
    # 3 raters, 4 subjects: agreement 1, 1/3, 1/3, 1 → 2/3; shares 7/12, 5/12 → chance 74/144.
    rows = [[True] * 3, [True, True, False], [True, True, False], [False] * 3]
    assert compute_fleiss_kappa(rows) == pytest.approx((2 / 3 - 74 / 144) / (1 - 74 / 144))
    assert compute_fleiss_kappa([[True, True], [True, True]]) is None
    assert compute_fleiss_kappa([]) is None
    with pytest.raises(ValueError, match="every judge"):
        compute_fleiss_kappa([[True, True, True], [True, False]])
