"""Values that a call writes: they are what the user or a result gave, and its result and the answer do not say otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from simia.errors import Code, Issue
from simia.quality.entity_ledger import is_scalar
from simia.quality.mentions import adds_country_code, join_digits
from simia.quality.tool_effects import split_tool_name
from simia.quality.truth.amounts import NUMBER_WORDS, collect_money, is_subset_sum
from simia.quality.truth.dates import follows_date
from simia.quality.truth.entities import is_entity_name, is_same, normalize
from simia.quality.truth.facts import Step, TruthView, find_money, iterate_arguments
from simia.quality.truth.number_search import is_product, is_sum
from simia.quality.truth.quantities import MONTH, Quantity, find_quantities, narrow
from simia.quality.truth.spelt_digits import read_spelt_digits
from simia.quality.truth.vocabulary import NO

# Arguments whose digits somebody gave. Free texts (a note, a title) are the agent's own.
GIVEN = re.compile(
    r"(?:^|_)(?:address\w*|street|zip|zip_?code|postal_?code|postcode|post_code|phone\w*|mobile|tel|seat\w*|email\w*|e_mail|iban|account|city|ship_?to)$",
    re.I,
)
MONEY = re.compile(r"(?:^|_)(?:amount|price|refund_amount|sum|payment|deposit|tip|value|cost|fee)$", re.I)
WHOLE = re.compile(r"(?<![\d.,])\d+(?!\d|[.,]\d)")
DATED = re.compile(rf"\d{{4}}-\d\d|\d:\d\d|\d[月日時时点]|\d{{1,2}} (?:{MONTH})\b|\b(?:{MONTH}) \d", re.I)
DAY = re.compile(r"\d{4}-\d\d-\d\d")
DIGITS = re.compile(r"\d+")
EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
FREE = re.compile(
    r"(?:^|_)(?:notes?|body|text|content|message|description|summary|comment|subject|title|reason|query|memo|details?|status)$",
    re.I,
)
RELATIVE = frozenset(
    [
        "add",
        "append",
        "adjust",
        "increase",
        "decrease",
        "increment",
        "deposit",
        "withdraw",
        "transfer",
        "remove",
        "refund",
        "pay",
        "apply",
        "redeem",
        "spend",
        "deduct",
        "subtract",
        "earn",
    ]
)
WORD = re.compile(r"[A-Za-zÀ-ÿ]{3,}")
MOST_VALUE = 80


def find_wrong_written_values(facts: TruthView) -> Iterator[Issue]:
    """Report a written value that was not given, or that the result or the answer after it states otherwise."""
    for step in facts.steps:
        if step.writes is False:
            continue
        if step.writes and (problem := find_ungiven(facts, step)):
            yield make_written_value_issue(step.where, f"{step.call.name}: {problem} was not given before")
            return
        if step.failed or not step.writes:
            continue
        if problem := find_changed_in_result(step):
            yield make_written_value_issue(f"messages[{step.at}]", f"{step.call.name}: {problem}")
            return
    yield from find_changed_in_answers(facts)


def make_written_value_issue(where: str, detail: str) -> Issue:
    return Issue(code=Code.WRONG_WRITTEN_VALUE, where=where, detail=detail[:300])


@lru_cache(maxsize=4096)
def classify_argument(name: str) -> str:
    """Return what an argument's name says of its value: given by somebody, an amount, or neither."""
    return "given" if GIVEN.search(name) else "money" if MONEY.search(name) else ""


@lru_cache(maxsize=4096)
def is_money_name(name: str) -> bool:
    return MONEY.search(name) is not None


def find_ungiven(facts: TruthView, step: Step) -> str | None:
    """Find an address, a phone number or an amount in a call that neither user, policy nor results gave."""
    for name, value in iterate_arguments(step.arguments):
        if isinstance(value, str) and classify_argument(name) == "given" and len(value) <= 200:
            email = EMAIL.fullmatch(value.strip())
            if email and not is_email_given(facts, step, value.strip().lower()):
                return f"{name} {value!r}"
            if not email and (missing := find_missing_digits(facts, step, value)):
                return f"{missing!r} of {name} {value!r}"
            if not email and (other := find_other_digits(facts, step, value)):
                return f"{name} {value!r} for {other!r}"
        elif (
            isinstance(value, str) and len(value) <= 25 and DAY.match(value) and is_other_day(facts, step, value)
        ) or (
            isinstance(value, int | float) and is_money_name(name) and not is_amount_given(facts, step, float(value))
        ):
            return f"{name} {value!r}"
    return None


def find_other_digits(facts: TruthView, step: Step, value: str) -> str | None:
    """Return the address of the last proposal that the user agreed to, where the call writes the same one with other digits."""
    mask = make_mask(value) if facts.steps and len(value) <= MOST_VALUE else None
    asked = [i for i in facts.answers if i < step.place]
    if mask is None or not asked or facts.is_said(narrow(value).lower(), step.place):
        return None
    after = [text for at, text in enumerate(facts.texts) if asked[-1] < at < step.place]
    if any(DIGITS.search(narrow(text)) or SPELT.search(text) for text in after):
        return None  # the user corrects it
    found = mask.search(narrow(facts.texts[asked[-1]]))
    return found[0] if found and found[0].lower() != narrow(value).lower() else None


def is_other_day(facts: TruthView, step: Step, value: str) -> bool:
    """Return whether a call writes another day than the days that the assistant has named to the user before."""
    named = [i for i in facts.answers if i < step.place]
    if not named or not any(each.kind == "date" for each in find_quantities(facts.texts[named[-1]])):
        return False
    date = next((each for each in find_quantities(value) if each.kind == "date"), None)
    if date is not None and is_superseded(facts, step, date, named[-1]):
        return True
    return date is not None and not follows_date(facts, step.place, date, strict=True)


def is_superseded(facts: TruthView, step: Step, date: Quantity, asked: int) -> bool:
    """Return whether the last proposal repeats another value of the call and names one other day, the user only agreed, and
    the written day was named by the assistant before."""
    texts = facts.texts
    days = {each.dates[0][1:] for each in find_quantities(texts[asked]) if each.kind == "date"}
    written = date.dates[0][1:]
    if len(days) != 1 or written in days or not PROPOSAL.search(texts[asked]):
        return False
    dated = [value for _, value in iterate_arguments(step.arguments) if isinstance(value, str) and DAY.match(value)]
    if len(dated) != 1 or not any(
        isinstance(value, str) and len(value) >= 6 and not is_entity_name(name) and value in texts[asked]
        for name, value in iterate_arguments(step.arguments)
    ):
        return False
    users = [at for at in range(step.place) if facts.t.messages[at].role == "user"]
    if any(at > asked and (not PLAIN_YES.search(texts[at]) or NO.search(texts[at])) for at in users):
        return False
    if not any(at < asked and MIND.search(texts[at]) for at in users):
        return False
    return any(
        each.kind == "date" and each.dates[0][1:] == written
        for at in facts.answers
        if at < asked
        for each in find_quantities(texts[at])
    )


PROPOSAL = re.compile(r"(?:[?？]|吗|か|か。)\s*$")
MIND = re.compile(
    r"\b(?:actually|instead|rather|make it|change|sorry|on second thought)\b|还是|改成|换成|改到|算了|不对|やっぱり|やはり|変え|じゃなく|ではなく",
    re.I,
)
PLAIN_YES = re.compile(
    r"^(?!.*\b(?:first|second|third|other|former|latter)\b)[^\d一二三四五六七八九十月火水木金土]{0,20}$", re.I
)


def is_email_given(facts: TruthView, step: Step, value: str) -> bool:
    if facts.is_said(value, step.place):
        return True
    # An address that was spelt out ("name at example dot com") is for a judge.
    return any(
        " at " in text or " dot " in text or "＠" in text or "アット" in text
        for _, text in facts.sources_before(step.place)
    )


def find_missing_digits(facts: TruthView, step: Step, value: str) -> str | None:
    """Return digits of a value that no text before the call has, also not in groups."""
    wanted: list[str] = DIGITS.findall(narrow(value))
    if not wanted:
        return None
    if all(facts.is_number_said(each, step.place) for each in wanted):
        return None
    texts = [facts.policy, *(narrow(facts.texts[at]) for at in range(step.place))]
    texts += [facts.written[at] for at in range(step.place) if facts.view.arguments[at]]
    known: set[str] = {each for text in texts for each in WHOLE.findall(text)}
    joined = [run for text in texts for run in join_digits(text)]
    joined += [spelt for text in texts if (spelt := read_spelt_digits(text))]
    if narrow(value).lstrip().startswith("+") and any(adds_country_code("".join(wanted), each) for each in joined):
        return None
    for each in wanted:
        if (
            each not in known
            and each.lstrip("0") not in known
            and not any(len(each) > 2 and each in text for text in joined)
        ):
            if len(each) < 4 and any(
                NUMBER_WORDS.search(text) or SPELT.search(text) for _, text in facts.sources_before(step.place)
            ):
                return None
            return each
    return None


SPELT = re.compile(
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|double|first|second|third)\b|[一二三四五六七八九十]",
    re.I,
)


def is_amount_given(facts: TruthView, step: Step, value: float) -> bool:
    if facts.is_number_said(f"{value:g}" if value < 1e6 else f"{value:.0f}", step.place) or facts.is_number_said(
        f"{value:.2f}", step.place
    ):
        return True
    known = facts.numbers_before(step.place)
    if value in known or value == 0 or any(abs(each - value) < 0.0051 for each in known):
        return True
    if any(NUMBER_WORDS.search(text) or SPELT.search(text) for _, text in facts.sources_before(step.place)):
        return True
    money = collect_money(facts, step.place)
    if is_product(value, money, {each for each in known if each != int(each)}):
        return True
    return is_sum(value, money, 0.0051) or is_subset_sum(value, facts, step.place, 0.0051) or len(money) > 60


def find_changed_in_result(step: Step) -> str | None:
    """Find a field of a change's result that has another value than the argument of that name."""
    if not isinstance(step.result, dict):
        return None
    fields = collect_fields(step.result)
    is_relative = not RELATIVE.isdisjoint(split_tool_name(step.call.name))
    for name, value in step.arguments.items():
        told = fields.get(name, fields.get(name.removeprefix("new_")))
        if (
            not is_scalar(value)
            or isinstance(value, bool)
            or value is None
            or not is_scalar(told)
            or told is None
            or isinstance(told, bool)
        ):
            continue
        if is_entity_name(name) or is_free(name):
            continue
        if isinstance(value, int | float):
            if isinstance(told, int | float) and abs(value - told) > 0.006 and (not is_relative or MONEY.search(name)):
                if value in find_money(step.result):
                    continue
                return f"{name} is {value!r} in the call and {told!r} in the result"
        elif (
            isinstance(told, str)
            and len(value) <= MOST_VALUE
            and is_other_text(value, told)
            and not is_elsewhere(value, step)
        ):
            return f"{name} is {value!r} in the call and {told!r} in the result"
    return None


def collect_fields(result: dict[str, Any]) -> dict[str, Any]:
    """Return the scalars of a result and of the objects in it; a name that occurs twice counts for none."""
    found: dict[str, Any] = {}
    twice = set()
    waiting: list[Any] = [result]
    while waiting:
        value = waiting.pop()
        for name, each in value.items():
            if isinstance(each, dict):
                waiting.append(each)
            elif is_scalar(each):
                twice |= {name} if name in found and found[name] != each else set()
                found[name] = each
    return {name: value for name, value in found.items() if name not in twice}


def is_other_text(value: str, told: str) -> bool:
    """Return whether two texts state different values: their digits differ, or they share no word."""
    if is_same(value, told):
        return False
    digits, others = DIGITS.findall(narrow(value)), DIGITS.findall(narrow(told))
    if digits and others:
        ints, other_ints = {int(each) for each in digits}, {int(each) for each in others}
        return not (ints <= other_ints or other_ints <= ints)
    if digits or others:
        return False
    if not value.isascii() or not told.isascii():
        return len(set(value) & set(told)) == 0 and value.isascii() == told.isascii()
    words, other_words = {each.lower() for each in WORD.findall(value)}, {each.lower() for each in WORD.findall(told)}
    return (
        bool(words)
        and bool(other_words)
        and words.isdisjoint(other_words)
        and not any(a[:3] == b[:3] for a in words for b in other_words)
    )


def is_elsewhere(value: str, step: Step) -> bool:
    return normalize(value) in normalize(step.text)


def find_changed_in_answers(facts: TruthView) -> Iterator[Issue]:
    """Report an answer that repeats a written text with other digits: "9 Quay Lane" for "7 Quay Lane"."""
    writes = [step for step in facts.steps if step.writes and not step.failed]
    if not writes:
        return
    answers = [i for i in facts.answers if i > writes[0].at]
    if not answers:
        return
    values: set[str] = set()
    for step in writes:
        add_maskable(step.arguments, "", values)
        add_maskable(step.result, "", values)
    masks = {mask: get_longest_part(value) for value in values if (mask := make_mask(value)) is not None}
    for i in answers if masks else ():
        text, low = narrow(facts.texts[i]), facts.view.lows[i]
        is_ascii = text.isascii()
        for mask, part in masks.items():
            if is_ascii and part not in low:
                continue
            for found in mask.findall(text):
                if not is_written(facts, i, found):
                    yield make_written_value_issue(f"messages[{i}]", f"{found[:80]!r} is not what was written")
                    return


def add_maskable(value: Any, name: str, found: set[str]) -> None:
    """Add the texts that `make_mask` may make a pattern of."""
    if isinstance(value, (dict, list)):
        for key, each in value.items() if isinstance(value, dict) else ((name, each) for each in value):
            if isinstance(each, str):
                if " " not in each and each.isascii():
                    continue
                if 4 <= len(each) <= MOST_VALUE and DIGITS.search(each) and not is_free(key):
                    found.add(each)
            elif isinstance(each, (dict, list)):
                add_maskable(each, key, found)


@lru_cache(maxsize=4096)
def is_free(name: str) -> bool:
    return FREE.search(name) is not None


def get_longest_part(value: str) -> str:
    """Return the longest text between the digits of a value, in lower case: an ASCII text without it cannot fit the mask."""
    return max(DIGITS.split(narrow(value).lower()), key=len)


@lru_cache(maxsize=4096)
def make_mask(value: str) -> re.Pattern[str] | None:
    """Return a pattern for the same text with any digits; None if the text says too little to be recognised."""
    value = narrow(value)
    letters = sum(map(str.isalpha, value))
    if (
        not DIGITS.search(value)
        or letters < (3 if not value.isascii() else 4)
        or (value.isascii() and " " not in value)
    ):
        return None
    if DATED.search(value):
        return None
    parts = DIGITS.split(value)
    return re.compile(r"\d+".join(map(re.escape, parts)), re.I)


def is_written(facts: TruthView, i: int, found: str) -> bool:
    return facts.is_said(found.lower(), i)
