"""Amounts of money in the assistant's texts: each was given before, or follows from what was given.

What follows: sums and differences, multiples by a number that was given, percentages that were given, averages, and roundings. The
search is bounded; where too much was given to search, the check abstains.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from simia.errors import Code, Issue
from simia.quality.truth.amount_labels import find_wrong_label
from simia.quality.truth.facts import Step, TruthView, find_money, has_number_in
from simia.quality.truth.number_search import (
    MOST_SUMS,
    has_near,
    is_product,
    is_slip,
    is_sum,
    is_sum_of_product,
    list_sums,
    sum_subsets,
    write_digits,
)
from simia.quality.truth.quantities import (
    Quantity,
    find_marked_quantities,
    find_policy_quantities,
    find_quantities,
    narrow,
)

SIGNS_OF_SUMS = ("+", "＋", "×", "*", " x ")
# Numbers of results that are no amounts.
NO_MONEY = re.compile(
    r"^(?!.*(?:price|fee|fare|rate|cost|amount|per_|charge|total|balance|refund))(?:.*_)?(?:guests?|quantity|qty|nights?|days?|count|minutes?|hours?|duration\w*|number|no|id|ids|rooms?|seats?|left|available|passengers?|persons?|adults?|"
    r"children|age|rank|renew\w*|km\w*|miles|page|stars|rating|stock|on_hand|safety\w*|holds?|year|month|week|bags?|copies|units|weight|gb|size|lat|lon|"
    r"row|line|version|score|percent|zip|phone|last_four|baggages?|limit|capacity|bytes|found)(?:$|_)",
    re.I,
)
COMPUTES = re.compile(r"[?？×*=%％]|\bround|\babout\b|\beach\b|\bper\b|か。|约|大约|約|概算|每|各|ずつ", re.I)
MOST_VALUES = 60  # values whose sums are tried
AVERAGES = (3, 4, 6, 12)  # months and quarters, which words name too
MOST_ITEMS = 14  # values of which every subset is summed
NUMBER_WORDS = re.compile(
    r"\b(?:hundred|thousand|million|dozen|half|twice|double|triple|third|quarter|grand|twenty|thirty|forty|fifty|sixty|"
    r"seventy|eighty|ninety)\b|[二三四五六七八九十百千两]+[十百千万]",
    re.I,
)


def find_wrong_amounts(facts: TruthView) -> Iterator[Issue]:
    """Report each amount of an answer that does not follow from what was given before it."""
    first = facts.steps[0].at
    priced = has_amounts(facts.t.system or "")
    for i in facts.answers:
        if i < first and not priced:
            continue  # what a model knows of the world is for a judge
        text = facts.texts[i]
        amounts = [each for each in find_quantities(text) if each.kind == "amount"] if has_digit(text) else []
        if not amounts:
            continue
        if issue := find_wrong_sum(facts, i, text):
            yield issue
            return
        derived: list[float] = []
        for each in amounts:
            if each.value in derived or is_literal(facts, i, each) or each.value in facts.numbers_before(i):
                continue
            if follows_from(facts, i, each, derived, amounts) or not (
                restates_amounts(facts, i, text) or is_near_miss(facts, i, each, amounts)
            ):
                derived.append(each.value)
                continue
            shown = narrow(text)[max(0, each.start - 1) : each.end + 1].strip()
            yield Issue(
                code=Code.WRONG_AMOUNT, where=f"messages[{i}]", detail=f"{shown!r} does not follow from what was given"
            )
            return
        if wrote_just_before(facts, i) and (issue := find_wrong_label(facts, i, text, amounts)):
            yield issue
            return


def is_literal(facts: TruthView, i: int, amount: Quantity) -> bool:
    """Return whether an amount was given before in one of the usual forms: as it stands, 62.85, 62.8 or 62."""
    value = amount.value
    if facts.is_number_said(f"{value:g}" if value < 1e6 else f"{value:.0f}", i):
        return True
    return facts.is_number_said(f"{value:.2f}", i) or (value >= 1000 and facts.is_number_said(f"{value:,.0f}", i))


@lru_cache(maxsize=512)
def has_number_word(text: str) -> bool:
    return NUMBER_WORDS.search(text) is not None


@lru_cache(maxsize=256)
def has_amounts(policy: str) -> bool:
    return any(each.kind == "amount" for each in find_quantities(policy))


def has_digit(text: str) -> bool:
    return any(map(text.__contains__, "0123456789")) or not text.isascii()


def follows_from(facts: TruthView, i: int, amount: Quantity, derived: list[float], amounts: list[Quantity]) -> bool:
    """Return whether an amount follows from what was given before message i and in the message itself."""
    target = amount.value
    given = facts.numbers_before(i)
    if target == 0 or target * 100 in given:
        return True  # nothing, or cents
    tolerance = 0.0051 if target != int(target) or target < 100 else 0.51
    if any(abs(each - target) < tolerance for each in given):
        return True
    if any(has_number_word(text) for at, text in facts.sources_before(i) if facts.t.messages[at].role == "user"):
        return True
    money = collect_money(facts, i) | set(derived) | {each.value for each in amounts if each.value != target}
    money |= {
        each.value
        for each in find_quantities(facts.texts[i])
        if each.kind == "number" and each.value >= 100 and each.value in given
    }
    if (
        len(money) > MOST_VALUES
        or is_sum(target, money, tolerance, most=3)
        or is_subset_sum(target, facts, i, tolerance)
    ):
        return True
    text = facts.texts[i]
    own = {each.value for each in find_quantities(text) if each.kind in ("amount", "number") and each.value != target}
    if any(sign in text for sign in SIGNS_OF_SUMS):
        parts = sorted(own)[:MOST_ITEMS]
        if target in sum_subsets(parts) or is_sum_of_product(target, [*parts, *sorted(money)[:MOST_ITEMS]], tolerance):
            return True
    if wrote_just_before(facts, i):
        shares = collect_percents(facts, i)[1:]
        return any(has_near(sorted(money), target, share, 0.0101) for share in shares if share > 0)  # with its tax
    if is_product(target, money, own | given_rates(facts, i)):
        return True
    fees = {each.value for each in find_policy_quantities(facts.policy) if each.kind == "amount"}
    factors = collect_factors(facts, i, own)
    alone = sorted(money)
    if any(has_near(alone, target - fee, factor, tolerance) for fee in fees for factor in factors):
        return True  # three days and a fee
    percents = collect_percents(facts, i)
    scales = {round(factor * percent, 6) for factor in factors for percent in percents}
    sums = list_sums(alone)
    # A share of an amount is cut or rounded up, also to tenths: that is for the policy to say.
    width = 1.0 if target == int(target) else 0.1 if target * 10 == int(target * 10) else 0.0101
    return any(
        has_near(sums, target, scale, tolerance) or (scale not in factors and has_near(alone, target, scale, width))
        for scale in scales
        if scale > 0
    )


def restates_amounts(facts: TruthView, i: int, text: str) -> bool:
    """Return whether a text states what results with amounts just said: it asks nothing and shows no computation."""
    return wrote_just_before(facts, i) and not COMPUTES.search(text)


def is_near_miss(facts: TruthView, i: int, amount: Quantity, amounts: list[Quantity]) -> bool:
    """Return whether an amount is a given one, or a sum or difference of two in the same text, with digits mixed up.

    A text can compute in more ways than any search covers; a slip in what it copies or adds shows in its digits.
    """
    own = sorted({each.value for each in amounts if each.value != amount.value})[:12]
    known = {abs(a + sign * b) for at, a in enumerate(own) for b in own[at + 1 :] for sign in (1, -1)}
    known |= collect_money(facts, i)
    for column in (each for step in facts.steps if step.at < i for each in iterate_columns(step)):
        known.add(sum(map(abs, column)))
        if len(column) <= 8:
            known |= {abs(a) + abs(b) for at, a in enumerate(column) for b in column[at + 1 :]}
    if len(known) > MOST_VALUES:
        return False
    digits = write_digits(amount.value)
    return len(digits) >= 3 and any(is_slip(digits, write_digits(each)) for each in known)


def wrote_just_before(facts: TruthView, i: int) -> bool:
    """Return whether the message answers a successful write whose result has an amount: then it restates."""
    return any(
        step.at == i - 1 and step.writes and not step.failed and has_number_in(step.result) for step in facts.steps
    )


def collect_money(facts: TruthView, i: int) -> set[float]:
    """Return the amounts that were given before message i: marked ones, and the numbers of results that can be amounts."""
    known: set[float] | None = facts.kept.get(("money", i))
    if known is not None:
        return known
    found: set[float] = set()
    for step in facts.steps:
        if step.at < i:
            add_money(step.result, "", found)
            add_money(step.call.arguments, "", found)
            if step.result is None:
                found |= {each.value for each in find_quantities(step.text) if each.kind in ("amount", "number")}
            else:
                found |= {each.value for each in find_marked_quantities(step.text) if each.kind == "amount"}
    for at, text in enumerate(facts.texts[:i]):
        if facts.t.messages[at].role != "tool":
            found |= {each.value for each in find_quantities(text) if each.kind == "amount"}
    found |= {each.value for each in find_policy_quantities(facts.policy) if each.kind == "amount"}
    known = facts.kept["money", i] = {round(each, 4) for each in found if each > 0}
    return known


def add_money(value: object, name: str, found: set[float]) -> None:
    """Add the numbers of a parsed result or of arguments that can be amounts."""
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, (dict, list)):
                add_money(each, key, found)
            elif isinstance(each, (int, float)) and is_money(key, each):
                found.add(abs(float(each)))
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, (dict, list)):
                add_money(each, name, found)
            elif isinstance(each, (int, float)) and is_money(name, each):
                found.add(abs(float(each)))


def is_money(name: str, value: object) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < abs(value) < 1e9 and can_be_money(name)
    )


@lru_cache(maxsize=4096)
def can_be_money(name: str) -> bool:
    return NO_MONEY.search(name) is None


def collect_factors(facts: TruthView, i: int, own: set[float]) -> list[float]:
    """Return the small numbers that were given: quantities, nights, persons."""
    known = facts.numbers_before(i) | own
    return [
        1.0,
        2.0,
        0.5,
        3.0,
        *(each for each in range(4, 32) if each in known),
        *(1.0 / each for each in range(3, 13) if each in known or each in AVERAGES),
    ]


def collect_percents(facts: TruthView, i: int) -> list[float]:
    """Return the factors that given percentages make: of, less, plus."""
    given = (find_policy_quantities(facts.policy), *map(find_quantities, facts.texts[: i + 1]))
    percents = {each.value for quantities in given for each in quantities if each.kind == "percent"}
    for text in (facts.policy, *facts.texts[: i + 1]):
        percents |= read_spelt_percents(text)
    for step in facts.steps:
        if step.at < i and isinstance(step.result, dict):
            percents |= {each * 100 for each in find_money(step.result) if 0 < each < 1}
    found = [1.0]
    for each in sorted(percents)[:8]:
        if 0 < each <= 100:
            share = each / 100
            found += [share, 1 - share, 1 + share]
            if each < 10:
                found += [each / 10]  # 8折
    return list(dict.fromkeys(found))


CJK_SHARE = re.compile("([一二三四五六七八九])([一二三四五六七八九])?(?:折|割)")
CJK_DIGITS = dict(zip("一二三四五六七八九", range(1, 10), strict=True))


@lru_cache(maxsize=512)
def read_spelt_percents(text: str) -> frozenset[float]:
    """Return the percentages of discounts in Chinese numerals: 九五折 is 95, 二割 is 20."""
    if text.isascii():
        return frozenset()
    return frozenset(10.0 * CJK_DIGITS[first] + CJK_DIGITS.get(second, 0) for first, second in CJK_SHARE.findall(text))


def is_subset_sum(target: float, facts: TruthView, i: int, tolerance: float) -> bool:
    """Return whether the target is the sum of some numbers of one result, with their quantities, or all of one field."""
    for step in facts.steps:
        if step.at >= i:
            continue
        for signed in list_columns(facts, step):
            column = [abs(each) for each in signed]  # charges can be negative
            if abs(sum(column) - target) < tolerance or (
                column and abs(sum(column) / len(column) - target) < max(tolerance, 0.0051)
            ):
                return True
            if len(column) <= MOST_ITEMS:
                sums = {0}
                for each in column:
                    sums |= {known + round(each * 100) for known in sums}
                    if len(sums) > MOST_SUMS:
                        break
                if any(abs(each - target * 100) < tolerance * 100 for each in sums):
                    return True
    return False


def given_rates(facts: TruthView, i: int) -> set[float]:
    """Return the given numbers with decimals: rates and prices within texts."""
    return {each for each in facts.numbers_before(i) if each != int(each)}


def list_columns(facts: TruthView, step: Step) -> list[list[float]]:
    known: list[list[float]] | None = facts.kept.get(("columns", step.at))
    if known is None:
        known = facts.kept["columns", step.at] = list(iterate_columns(step))
    return known


def iterate_columns(step: Step) -> Iterator[list[float]]:
    """Yield the numbers of each field over the rows of each list in a result, also times their quantity."""
    waiting = [step.result]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [each for each in value.values() if isinstance(each, dict | list)]
            continue
        if not isinstance(value, list):
            continue
        waiting += [each for each in value if isinstance(each, dict | list)]
        if all(isinstance(each, list) for each in value) and value:
            for at in range(max(map(len, value))):
                column = [row[at] for row in value if at < len(row) and isinstance(row[at], int | float)]
                if len(column) > 1:
                    yield column
        rows = [each for each in value if isinstance(each, dict)]
        for name in rows[0] if rows else ():
            column = [row[name] for row in rows if isinstance(row.get(name), int | float)]
            if len(column) > 1:
                yield column
                for times in ("qty", "quantity", "count", "units"):
                    if times in rows[0] and times != name:
                        yield [
                            row[name] * row[times]
                            for row in rows
                            if isinstance(row.get(name), int | float) and isinstance(row.get(times), int | float)
                        ]
    if step.result is None and step.text:
        numbers = [each.value for each in find_quantities(step.text) if each.kind in ("amount", "number")]
        if 1 < len(numbers) <= MOST_VALUES:
            yield numbers


TOTAL = re.compile(r"(?:合计|总计|共计|合計|計|in total|altogether|total(?: of| is)?|together)[ :：是]*[$€£¥₹]?$")
NO_PLAIN_SUM = re.compile(
    r"[×*x+＋%－−]|\d-|\b(?:each|per|a piece|apiece|less|minus|discount|off|saved?|instead|was|from|refund|balance|deposit|already|times|twice|double)\b|"
    r"各|每|减|折|优惠|券|原价|退|差|抵|扣|余额|ずつ|割引|引|毎|元の|差額|返金|残高|[二两三四五六七八九十\d]+(?:张|个|份|件|晚|人|次|盒|枚|個|名|泊|回|本|台|つ)",
    re.I,
)


def find_wrong_sum(facts: TruthView, i: int, text: str) -> Issue | None:
    """Find a total that is not the sum of the amounts before it in its sentence, right after the calls whose results have these."""
    if not wrote_just_before(facts, i):
        return None
    for sentence in re.split(r"(?<=[。！？!?\n])|(?<=\.)\s", narrow(text)):
        found = [each for each in find_quantities(sentence) if each.kind == "amount"]
        if len(found) < 3 or not TOTAL.search(sentence[: found[-1].start].lower()):
            continue
        lead = re.split("[,;:，；：]", sentence[: found[0].start])[-1]
        if NO_PLAIN_SUM.search(lead + sentence[found[0].start :]):
            continue
        *parts, total = (each.value for each in found)
        last = max(step.place for step in facts.steps if step.at < i)
        told = {value for step in facts.steps if step.place == last for value in find_money(step.result)}
        if all(part in told for part in parts) and abs(sum(parts) - total) > 0.006 and total not in told:
            detail = f"the total is said to be {total:g}, its parts make {sum(parts):g}"
            return Issue(code=Code.WRONG_AMOUNT, where=f"messages[{i}]", detail=detail)
    return None
