"""When two values are the same: exactly, in numbers, or in what their words say."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simia.task import Match

CLOSE = 1e-9
SIMILAR = 0.5  # F1 of the words from which on two texts say the same (ScaleEnv's semantic columns)
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "absent"})()
WORD = re.compile(r"\w+(?:[.,]\d+)*")
NEGATIONS = {"no", "not", "never", "none", "without", "cannot", "nicht", "kein", "keine", "pas", "non"}


def policy_of(path: Sequence[str], policies: Mapping[str, Match]) -> Match:
    """How values at that path are compared; `*` in a pattern stands for one step."""
    for pattern, policy in policies.items():
        steps = pattern.split(".")
        if len(steps) == len(path) and all(a in ("*", b) for a, b in zip(steps, path, strict=True)):
            return policy
    return "exact"


def differences(a: Any, b: Any, path: tuple[str, ...], policies: Mapping[str, Match]) -> Iterator[str]:
    """Where two JSON values differ under the policies: a line each, `a` what is, `b` what is expected."""
    policy = policy_of(path, policies)
    if policy == "exempt":
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            yield from differences(a.get(key, ABSENT), b.get(key, ABSENT), (*path, str(key)), policies)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            yield from differences(x, y, (*path, str(i)), policies)
    elif policy == "semantic" and isinstance(a, str) and isinstance(b, str):
        if not similar(a, b):
            yield f"{'.'.join(path)}: expected words like {short(b)}, is {short(a)}"
    elif not equal(a, b):
        yield f"{'.'.join(path)}: expected {short(b)}, is {short(a)}"


def equal(a: Any, b: Any, tolerance: float = CLOSE) -> bool:
    """JSON equality in which 1 is 1.0 and true is not 1; numbers within a relative tolerance; NaN is nothing's equal."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key], tolerance) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(equal(x, y, tolerance) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def similar(a: str, b: str, threshold: float = SIMILAR) -> bool:
    """Whether two texts say the same: F1 of their words, and the same numbers and negations in both."""
    one, two = words(a), words(b)
    if not one or not two:
        return one == two
    if telling(one) != telling(two):
        return False
    shared = sum((Counter(one) & Counter(two)).values())
    return 2 * shared / (len(one) + len(two)) >= threshold


def telling(said: list[str]) -> set[str]:
    """Words whose change turns the meaning: those with digits, and negations."""
    return {word for word in said if word in NEGATIONS or any(c.isdigit() for c in word)}


def words(text: str) -> list[str]:
    """Words in lower case without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return WORD.findall("".join(c for c in plain if not unicodedata.combining(c)))


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}…"
