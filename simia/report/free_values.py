"""Find the values of calls that the writer chose freely: only these can be over-represented.

A value is not free if the schema allows only it or has it as default, if the item's request gave it, if the policy names it, or if
a user message before the call names it, as a figure or as a word (`7`, `seven`). So a value that the policy prescribes, such as
7 days for everybody who asks for more, is never over-represented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from simia.quality.mentions import contains_token, normalize_mention
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

LONGEST = 60  # characters of a value that may be over-represented
NUMBERS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]
PLURALS = {"1": ("a", "an"), "2": ("couple", "pair", "both"), "12": ("dozen",)}
"""Words that give a number without naming it."""
SPACES = re.compile(r"[_\s]+")


def iterate_free_values(t: Trajectory, planned: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield (tool, argument, value) for each free value among the top-level arguments of calls: a text, number or boolean.

    `planned`: argument → value that the request gave to the model.
    """
    policy = "" if t.system is None else prepare_policy(t.system)
    tools = {tool.name: tool for tool in t.tools}
    said = ""
    for message in t.messages:
        if message.role == "user":
            said += "\n" + normalize_mention(message.text)
        for call in message.calls:
            for name, value in (call.arguments or {}).items():
                if not isinstance(value, str | int | float) or len(str(value)) > LONGEST:
                    continue
                fixed = (name in planned and is_same(planned[name], value)) or is_forced(
                    tools.get(call.name), name, value
                )
                if not (fixed or names_value(said, value) or names_value(policy, value)):
                    yield call.name, name, value


def read_planned_values(spec: str | bytes) -> Mapping[str, Any]:
    """Return the values that the request of an item gave: argument → value, from the item's stored plan."""
    plan = orjson.loads(spec).get("plan")
    values = plan.get("values") if isinstance(plan, dict) else None
    return values if isinstance(values, dict) else {}


@lru_cache(maxsize=64)
def prepare_policy(system: str) -> str:
    return normalize_mention(system)


def is_forced(tool: ToolSpec | None, name: str, value: Any) -> bool:
    """Return whether the schema gives this value as the only one or as the default."""
    properties = tool.parameters.get("properties") if tool else None
    schema = properties.get(name) if isinstance(properties, Mapping) else None
    if not isinstance(schema, Mapping):
        return False
    if "default" in schema and is_same(schema["default"], value):
        return True
    enum = schema.get("enum")
    return "const" in schema or (isinstance(enum, list) and len(enum) == 1)


def is_same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def names_value(text: str, value: Any) -> bool:
    """Return whether a text, in lower case, names a value: as it is, with spaces for underscores, or a small number in words."""
    if isinstance(value, bool):
        return False  # no text names true
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    needle = normalize_mention(str(value)).strip()
    if not needle:
        return True
    if needle in text and contains_token(needle, text):
        return True
    if needle.isdigit():
        words = (NUMBERS[int(needle)], *PLURALS.get(needle, ())) if len(needle) < 3 and int(needle) <= 20 else ()
        return any(word in text and contains_token(word, text) for word in words)
    spaced = SPACES.sub(" ", needle)
    return spaced != needle and spaced in text
