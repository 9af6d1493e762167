"""Change the prices of a pack: multiply every amount of the state by one factor, then update the amounts in tasks.

The pack's code computes sums, refunds and fees, so the new amounts of a task's texts are read from results: the solution is played in the
old and in the new pack, and two numbers at the same place of both results are (old amount, new amount).
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from simia.json_values import is_number

MONEY = re.compile(
    r"(^|_)(price|cost|amount|fee|credit|balance|deposit|refund|discount|salary|fare|charge|shipping|budget|payment|wage|cents)s?(_|$)|^(min|max|sub)?_?total$"
)
VALUE = re.compile(r"^value$")
FACTORS = (0.8, 1.2, 1.4, 1.6)  # of amounts that are multiples of 5 cents: the results are whole cents
WHOLE_FACTORS = (2, 3)
NUMBER = re.compile(r"(?<![\w.,\\-])(\d{1,3}(?:,\d{3})+|\d+)(?:(\\?\.|,|\[\.,\]|\[,\.\])(\d{1,2}))?(?![\w]|[.,]\d)")
BEFORE = re.compile(r"([€$£]|\b(EUR|USD|GBP)) ?$")
AFTER = re.compile(r" ?([€£]|(EUR|USD|GBP|euros?|dollars?|pounds?)\b)")
LITERAL = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.-])")
LEAST_LITERAL = 100
MOST_TERMS = 60  # amounts of a task that are tried as terms of a sum


def iterate_amounts(state: Any, *, inside: bool = False) -> Iterator[float]:
    """Yield the amounts of money of a state."""
    if isinstance(state, dict):
        money = any(MONEY.search(key) for key in state)
        for key, each in state.items():
            yield from iterate_amounts(each, inside=is_money(key, money))
    elif isinstance(state, list):
        for each in state:
            yield from iterate_amounts(each, inside=inside)
    elif inside and is_number(state):
        yield state


def is_money(key: str, beside_money: bool) -> bool:
    """Whether a column holds amounts, by its name; a column `value` only if its row has another such column."""
    return MONEY.search(key) is not None or (beside_money and VALUE.search(key) is not None)


def iterate_columns(state: Any, column: str = "", *, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield (column, whether it holds amounts) for each number of a state. A key with a digit is taken for a row's, not for a column's."""
    if isinstance(state, dict):
        money = any(MONEY.search(key) for key in state)
        for key, each in state.items():
            name = column if any(map(str.isdigit, key)) else key
            yield from iterate_columns(each, name, inside=is_money(key, money))
    elif isinstance(state, list):
        for each in state:
            yield from iterate_columns(each, column, inside=inside)
    elif is_number(state):
        yield column, inside


def choose_factor(amounts: Iterable[float], rng: random.Random) -> float | None:
    """A factor that keeps whole cents; None if there is no amount but 0."""
    known = [each for each in amounts if each]
    if not known:
        return None
    fives = all(math.isclose(each * 20, round(each * 20), abs_tol=1e-6) for each in known)
    whole = all(float(each).is_integer() for each in known)
    fine = fives and not (whole and any(round(each) % 5 for each in known))
    return rng.choice(FACTORS if fine else WHOLE_FACTORS)


def scale_amounts(value: Any, factor: float, kept: set[float], *, inside: bool = False) -> Any:
    """Multiply every amount in a JSON value by the factor, except for amounts in `kept`."""
    if isinstance(value, dict):
        money = any(MONEY.search(key) for key in value)
        return {key: scale_amounts(each, factor, kept, inside=is_money(key, money)) for key, each in value.items()}
    if isinstance(value, list):
        return [scale_amounts(each, factor, kept, inside=inside) for each in value]
    if not inside or not is_number(value) or value in kept:
        return value
    scaled = round(value * factor, 2)
    return round(scaled) if isinstance(value, int) and float(scaled).is_integer() else scaled


def pair_numbers(old: Any, new: Any) -> Iterator[tuple[float, float]]:
    """Yield pairs of numbers that are at the same place of two JSON values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() & new.keys():
            yield from pair_numbers(old[key], new[key])
    elif isinstance(old, list) and isinstance(new, list):
        for one, two in zip(old, new, strict=False):
            yield from pair_numbers(one, two)
    elif is_number(old) and is_number(new):
        yield old, new


def parse_amount(found: re.Match[str]) -> float:
    return float(found[1].replace(",", "")) + (int(found[3].ljust(2, "0")) / 100 if found[3] else 0)


def names_money(text: str, found: re.Match[str]) -> bool:
    """Whether a number in a text is an amount: it has two decimals, or a currency next to it."""
    if found[3] is not None and len(found[3]) == 2:
        return True
    return BEFORE.search(text[: found.start()]) is not None or AFTER.match(text[found.end() :]) is not None


def replace_amounts(text: str, pairs: dict[float, float], bare: Collection[float] = ()) -> str:
    """Replace the amounts in a text or a regular expression. `bare`: amounts that are also replaced if they are the whole text."""

    def write(found: re.Match[str]) -> str:
        number = parse_amount(found)
        whole_text = found[0] == text and number in bare
        if number not in pairs or not (whole_text or names_money(text, found)):
            return found[0]
        new = pairs[number]
        whole, cents = divmod(round(new * 100), 100)
        if found[3] is None and not cents:
            return str(whole)
        decimals = f"{cents:02d}"
        if found[3] is not None and len(found[3]) == 1:
            decimals = decimals.removesuffix("0")
        return f"{whole}{found[2] or '.'}{decimals}"

    return NUMBER.sub(write, text)


def list_amounts(text: str) -> set[float]:
    """The amounts that a text names."""
    return {parse_amount(found) for found in NUMBER.finditer(text) if names_money(text, found)}


def replace_literals(code: str, pairs: dict[float, float]) -> str:
    """Replace the amounts in the code or the name of a check: whole numbers from 100 on, and numbers with a decimal point."""

    def write(found: re.Match[str]) -> str:
        number = float(found[0])
        if number not in pairs or pairs[number] == number or (number < LEAST_LITERAL and "." not in found[0]):
            return found[0]
        new = pairs[number]
        return f"{new:g}" if new < 1e6 and "." in found[0] else str(round(new, 2) if new % 1 else round(new))

    return LITERAL.sub(write, code)


def derive_amount(amount: float, pairs: dict[float, float]) -> float | None:
    """Return the new value of an amount that is a sum or a difference of two or three amounts with known new values; None if there are no
    such terms, or if different terms give different values."""
    known = sorted(pairs)[:MOST_TERMS]
    pair_sums = [(a + sign * b, pairs[a] + sign * pairs[b]) for a in known for b in known for sign in (1, -1)]
    found = {round(new, 2) for old, new in pair_sums if math.isclose(old, amount, abs_tol=1e-6)}
    if not found:
        found = {
            round(new + pairs[c], 2)
            for old, new in pair_sums
            for c in known
            if math.isclose(old + c, amount, abs_tol=1e-6)
        }
    return found.pop() if len(found) == 1 else None
