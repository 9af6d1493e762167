"""Compare two values: exactly, as numbers, or by the meaning of their words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from simia.reward_spec import Match

CLOSE = 1e-9
ROUNDING = 1e-14  # relative error of sums of floats; far smaller than a difference of 1 in any identifier
SIMILAR = 0.5  # least F1 of the words with which two texts mean the same (ScaleEnv's semantic columns)
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()
WORD = re.compile(r"(?<!\w)-(?=\d)\w+(?:[.,]\d+)*|\w+(?:[.,]\d+)*")
NUMERAL = re.compile(r"-?[0-9]{1,15}(?:,[0-9]{3})*(?:\.[0-9]+)?")
NOT = re.compile(r"n['\u2019]t\b")
NEGATIONS = {"no", "not", "never", "none", "nothing", "without", "cannot", "nicht", "kein", "keine", "pas", "non"}


def find_policy(path: Sequence[str], policies: Mapping[str, Match]) -> Match:
    """Return how values at a path are compared; `*` in a pattern stands for one step.

    A pattern also applies to all paths below it, since the depth at which a change is reported depends on the old value and must
    not affect the comparison. The longest matching pattern decides, then the one with fewer `*`.
    """
    found: tuple[tuple[int, int], Match] | None = None
    for pattern, policy in policies.items():
        steps = _steps(pattern)
        if len(steps) <= len(path) and all(a in ("*", b) for a, b in zip(steps, path, strict=False)):
            rank = (len(steps), -steps.count("*"))
            if found is None or rank > found[0]:
                found = rank, policy
    return found[1] if found else "exact"


@lru_cache(maxsize=4096)
def _steps(pattern: str) -> tuple[str, ...]:
    return tuple(pattern.split("."))


def find_value_differences(a: Any, b: Any, path: tuple[str, ...], policies: Mapping[str, Match]) -> Iterator[str]:
    """Yield a line for each difference between the actual value `a` and the expected value `b` under the policies.

    Lists are compared element by element; an extra element of one list counts as absent in the other.
    """
    policy = find_policy(path, policies)
    if policy == "exempt":
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            yield from find_value_differences(a.get(key, ABSENT), b.get(key, ABSENT), (*path, str(key)), policies)
    elif isinstance(a, list) and isinstance(b, list):
        for i in range(max(len(a), len(b))):
            x, y = (each[i] if i < len(each) else ABSENT for each in (a, b))
            yield from find_value_differences(x, y, (*path, str(i)), policies)
    elif policy == "semantic" and isinstance(a, str) and isinstance(b, str):
        if not texts_similar(a, b):
            yield f"{'.'.join(path)}: expected words like {abbreviate_value(b)}, is {abbreviate_value(a)}"
    elif not values_equal(a, b):
        yield f"{'.'.join(path)}: expected {abbreviate_value(b)}, is {abbreviate_value(a)}"


def values_equal(a: Any, b: Any, tolerance: float = CLOSE) -> bool:
    """Compare two JSON values. 1 equals 1.0, true does not equal 1, and NaN equals nothing.

    Numbers may differ by the absolute `tolerance`; whole numbers must be equal, since long identifiers may differ in the last digit only.
    """
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, int | float) and isinstance(b, int | float):
        try:
            return a == b or math.isclose(a, b, rel_tol=ROUNDING, abs_tol=tolerance)
        except OverflowError:  # an integer too large for a float
            return False
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(values_equal(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(values_equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def texts_similar(a: str, b: str, threshold: float = SIMILAR) -> bool:
    """Whether two texts say the same: F1 of their words, the same numbers in both, and as many negations."""
    one, two = split_words(a), split_words(b)
    if not one or not two:
        return one == two
    if find_decisive_words(one) != find_decisive_words(two):
        return False
    shared = sum((Counter(one) & Counter(two)).values())
    return 2 * shared / (len(one) + len(two)) >= threshold


def find_decisive_words(said: Sequence[str]) -> tuple[set[str], int]:
    """Return what changes the meaning of a text: its words with digits, and the number of its negations."""
    return {word for word in said if any(c.isdigit() for c in word)}, sum(word in NEGATIONS for word in said)


@lru_cache(maxsize=8192)
def split_words(text: str) -> tuple[str, ...]:
    """Words in lower case without accents; "isn't" holds a `not`, and 1,234.50 is 1234.5."""
    plain = unicodedata.normalize("NFKD", text.casefold().replace("\u2212", "-"))
    plain = NOT.sub(" not", "".join(c for c in plain if not unicodedata.combining(c)))
    return tuple(normalize_numeral(word) for word in WORD.findall(plain))


def normalize_numeral(word: str) -> str:
    if not NUMERAL.fullmatch(word):
        return word
    whole, dot, part = word.replace(",", "").partition(".")
    part = part.rstrip("0")
    return whole + (dot + part if part else "")


def abbreviate_value(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
