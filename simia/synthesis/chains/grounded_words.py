"""Check that a user's words fit a chain: they have every value that it needs and no value that it does not use (ScaleEnv §4.2.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

from simia.envs.rewards.compare_values import split_words
from simia.json_values import iterate_plain_values
from simia.quality.mentions import contains_phrase
from simia.state_schema import StateSchema
from simia.synthesis.chains.distractors import is_fixed_text

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
FREE_TEXT = 5  # a text with at least this many words may be worded differently
ALIKE = 0.6  # share of the words of such a text that the user's words must contain
DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:[T ](\d{2}:\d{2})(?::\d{2})?)?")
NUMBER = re.compile(r"[0-9]+(?:[.,:/-][0-9]+)*")
SEPARATORS = re.compile(r"[\s_,\-]+")
SHORTEST = 4  # the user's words are searched for values of the state with at least this many characters


def says_value(words: str, value: Any) -> bool:
    """Whether words hold a value: a text as it is written, a number as digits or as a word, a date also as "16 May 2025"."""
    if isinstance(value, bool) or value is None:
        return True
    if isinstance(value, int | float):
        return says_number(words, value)
    text = normalize_words(str(value))
    if not text or contains_phrase(text, normalize_words(words)):
        return True
    if found := DATE.fullmatch(str(value)):
        return says_date(words, date(*map(int, found.groups()[:3])), found[4])
    own = split_words(str(value))
    return len(own) >= FREE_TEXT and len(set(own) & set(split_words(words))) >= ALIKE * len(set(own))


def says_number(words: str, value: float) -> bool:
    """Whether words hold a number."""
    if value in range(len(NUMBERS)) and contains_phrase(NUMBERS[int(value)], normalize_words(words)):
        return True
    said = (each.replace(",", "") for each in NUMBER.findall(words))
    return any(re.fullmatch(r"[0-9]+(\.[0-9]+)?", each) and float(each) == abs(value) for each in said)


def says_date(words: str, day: date, time: str | None) -> bool:
    """Whether words hold a day, and a time of day if there is one."""
    text = normalize_words(words)
    month = rf"({day:%B}|{day:%b})".casefold()
    number = rf"{day.day}(st|nd|rd|th)?"
    said = day.isoformat() in words or re.search(rf"\b({number} (of )?{month}|{month} (the )?{number})\b", text)
    return bool(said) and (time is None or time in words or time.lstrip("0") in words)


def normalize_words(text: str) -> str:
    """Lower case with straight apostrophes, and single blanks in place of underscores, hyphens, commas and white space."""
    return " ".join(SEPARATORS.sub(" ", text.casefold().replace("\u2019", "'")).split())


def find_unsaid(words: str, known: Any) -> list[Any]:
    """Return the values in `known` that the words lack."""
    return [value for value in iterate_plain_values(known) if not says_value(words, value)]


def find_unused(
    words: str, known: Any, results: Sequence[Any], state: Mapping[str, Any], schema: StateSchema
) -> list[str]:
    """List what the words name although the chain does not use it: ids, numbers, dates, and texts of the state that are in no result.

    Texts that occur in results are allowed, since the user knows the environment.
    """
    own = [str(value) for value in iterate_plain_values(known)]
    mine, text = normalize_words(" ".join(own)), normalize_words(words)
    seen = normalize_words(" ".join(str(value) for value in iterate_plain_values(list(results))))
    ids = [key for rows in state.values() if isinstance(rows, Mapping) for key in rows if re.search(r"\d", key)]
    found = [
        key
        for key in ids
        if contains_phrase(normalize_words(key), text) and not contains_phrase(normalize_words(key), mine)
    ]
    for key in own:
        text = re.sub(rf"(?<!\w){re.escape(normalize_words(key))}(?!\w)", " ", text)
    if not found:
        found += [each for each in NUMBER.findall(words) if not is_part_of_known(each, own)]
    for value in list_named_texts(state, schema):
        phrase = normalize_words(value)
        named = contains_phrase(value, words) and contains_phrase(phrase, text)
        if named and not contains_phrase(phrase, mine) and not contains_phrase(phrase, seen):
            found.append(value)
    return list(dict.fromkeys(found))


def is_part_of_known(number: str, own: Iterable[str]) -> bool:
    """Whether a number in words is one of the known values, or a part of a date or a text among them."""
    plain = strip_zeros(number.replace(",", ""))
    return any(number in value or plain in map(strip_zeros, re.findall(r"[0-9]+(?:\.[0-9]+)?", value)) for value in own)


def strip_zeros(number: str) -> str:
    """Digits without leading zeros, and without zeros at the end of a fraction."""
    whole, dot, part = number.partition(".")
    part = part.rstrip("0")
    return (whole.lstrip("0") or "0") + (dot + part if part else "")


def list_named_texts(state: Mapping[str, Any], schema: StateSchema) -> list[str]:
    """Names and titles of the state: texts that are no word of a fixed list, and begin with a capital letter."""
    found: dict[str, None] = {}
    for name, table in schema.tables.items():
        rows = state.get(name)
        for row in rows.values() if isinstance(rows, Mapping) else ():
            for column, spec in table.columns.items():
                value = row.get(column)
                if (
                    isinstance(value, str)
                    and len(value) >= SHORTEST
                    and value[0].isupper()
                    and not is_fixed_text(spec, value)
                ):
                    found[value] = None
    return list(found)
