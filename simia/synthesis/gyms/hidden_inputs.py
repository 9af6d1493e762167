"""Check whether a tool's result shows inputs that a gym must hide, or the answer (part of the observe lint, CodeGym §3.3.1).

Results and inputs are compared as sequences of words and numbers, so that a list is found whether it is a list, part of a text, or split.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simia.formats.dialect import dump_json
from simia.json_values import iterate_plain_values
from simia.synthesis.gyms.answer_comparison import answers_match

MOST_ELEMENTS, MOST_CHARACTERS = 4, 8
"""Longest list, object or text that may be shown."""
WORD = re.compile(r"-?\d+(?:\.\d+)?|\w+")


def list_words(value: Any, *, keys: bool = True) -> list[str]:
    """The words and numbers of a JSON value in order, with the keys of objects."""
    if isinstance(value, Mapping):
        pairs = [([key] if keys else [], each) for key, each in value.items()]
        return [word for key, each in pairs for word in (*key, *list_words(each, keys=keys))]
    if isinstance(value, list):
        return [word for each in value for word in list_words(each, keys=keys)]
    return WORD.findall(value if isinstance(value, str) else dump_json(value))


def is_long(value: Any) -> bool:
    """Whether a value must be hidden: it has more than a few elements or characters."""
    if isinstance(value, str):
        return len(value) > MOST_CHARACTERS
    return isinstance(value, Mapping | list) and sum(1 for _ in iterate_plain_values(value)) > MOST_ELEMENTS


def list_parts(value: Any) -> Iterator[Any]:
    """A value, and the objects, lists and texts in it."""
    yield value
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for each in children:
        if isinstance(each, Mapping | list | str):
            yield from list_parts(each)


def shows(result: Any, value: Any) -> bool:
    """Whether a result contains a whole value: its words in order; for a text, the same characters."""
    if isinstance(value, str) and value:
        leaves = [*map(str, iterate_plain_values(result))]
        return value in "".join(leaves) or any(value in each for each in leaves)
    wanted, found = list_words(value), list_words(result)
    return bool(wanted) and f"\0{chr(0).join(wanted)}\0" in f"\0{chr(0).join(found)}\0"


def shows_elements(result: Any, value: Any) -> bool:
    """Whether a result holds all elements of a list or an object in any order."""
    if isinstance(value, str):
        return shows(result, value)
    wanted = Counter(list_words(value, keys=False))
    return bool(wanted) and wanted <= Counter(list_words(result, keys=False))


def find_shown_input(result: Any, inputs: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return the name of a long input that the result of one call contains as a whole, unless the call's arguments contain it."""
    for name, value in inputs.items():
        if is_long(value) and shows(result, value) and not shows(dict(arguments), value):
            return name
    return None


def find_observed_input(result: Any, inputs: Mapping[str, Any]) -> str | None:
    """The name of an input of which `observe` shows a long list, object or text."""
    for name, value in inputs.items():
        if any(is_long(part) and shows_elements(result, part) for part in list_parts(value)):
            return name
    return None


def shows_all_inputs(result: Any, inputs: Mapping[str, Any]) -> bool:
    """Whether `observe` shows every input, so that no tool is needed."""
    return all(shows_elements(result, value) for value in inputs.values() if value not in ("", [], {}))


def reveals_answer(results: Sequence[Any], answers: Sequence[Any]) -> bool:
    """Whether all results, one for each answer, contain their answer at the same place, and the answers differ."""
    if len(results) < 2 or all(answers_match(each, answers[0]) for each in answers):
        return False
    places = [find_places(result, answer) for result, answer in zip(results, answers, strict=True)]
    return bool(set.intersection(*places))


def find_places(result: Any, answer: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """The places of a result that hold the answer, or a text that names it."""
    found = {path} if answers_match(result, answer) else set[tuple[str, ...]]()
    if isinstance(result, str) and not isinstance(answer, str) and shows(result, answer):
        found.add(path)
    if isinstance(result, str) and isinstance(answer, str) and answer and answer in result:
        found.add(path)
    pairs = result.items() if isinstance(result, Mapping) else enumerate(result) if isinstance(result, list) else ()
    for key, each in pairs:
        found |= find_places(each, answer, (*path, str(key)))
    return found
