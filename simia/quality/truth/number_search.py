"""Search how a number follows from others: sums, differences, products, subsets, and slips of digits. All searches are bounded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

MOST_PAIRS = 30  # values of which every two are added
MOST_SUMS = 20_000


def write_digits(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}".replace(".", "")


def is_slip(digits: str, other: str) -> bool:
    """Return whether two numbers have the same digits in another order, or differ in one digit."""
    if len(digits) != len(other) or digits == other:
        return False
    return sum(a != b for a, b in zip(digits, other, strict=True)) == 1 or (
        sorted(digits) == sorted(other) and sum(a != b for a, b in zip(digits, other, strict=True)) == 2
    )


def list_sums(values: list[float]) -> list[float]:
    """Return the values with the sums and differences of every two, sorted."""
    found = set(values)
    if len(values) <= MOST_PAIRS:
        for at, a in enumerate(values):
            for b in values[at + 1 :]:
                found.add(a + b)
                found.add(b - a)
    return sorted(found)


def has_near(values: list[float], target: float, scale: float, tolerance: float) -> bool:
    """Return whether a value, scaled, is the target."""
    at = bisect_left(values, (target - tolerance) / scale)
    return at < len(values) and values[at] <= (target + tolerance) / scale


def is_sum(target: float, values: Iterable[float], tolerance: float, *, most: int = 3) -> bool:
    """Return whether the target is a value, or a sum or difference of up to `most` values."""
    known = {round(each * 100) for each in values}
    width = round(tolerance * 100) if tolerance > 0.3 else 0
    first = round(target * 100)
    for goal in range(first - width, first + width + 1):
        if goal in known:
            return True
        if most < 2:
            continue
        for each in known:
            if goal - each in known or goal + each in known:
                return True
    if most < 3 or len(known) > 24:
        return False
    sums = {a + b for a in known for b in known}
    return any(first - c in sums or first + c in sums for c in known)  # first = a + b + c, or a + b - c


def sum_subsets(values: list[float]) -> set[float]:
    """Return the sums of all subsets."""
    sums = {0.0}
    for each in values:
        sums |= {round(known + each, 2) for known in sums}
        if len(sums) > MOST_SUMS:
            break
    return sums


def is_product(target: float, money: set[float], others: set[float]) -> bool:
    """Return whether the target is the product of an amount and another value, cut or rounded to what it shows."""
    tolerance = 1.0 if target == int(target) and target >= 100 else 0.0101
    if len(money) * len(others) > MOST_SUMS:
        return True
    factors = money | others
    return any(abs(a * b - target) < tolerance for a in money for b in factors if a != int(a) or b != int(b)) or any(
        abs(a * b - target) < 0.0051 for a in money for b in others
    )


def is_sum_of_product(target: float, values: list[float], tolerance: float) -> bool:
    """Return whether the target is a product of two values and a third, as in "24 × 415 + 180"."""
    return any(
        abs(abs(a * b + sign * c) - target) < tolerance
        for a in values
        for b in values
        for c in values
        for sign in (1, -1)
    )
