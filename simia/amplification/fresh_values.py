"""Fresh values for an item's prompt, so that samples of one seed differ.

A model that sees one exemplar many times copies its values (a half-billion one nearly always does). Each item therefore
gets, for every code, address, number, date or person's name that the exemplar's user says and a call uses, a new one of
the same shape. (An additional person's name made that model address the user by it, and contradicts policies that say who
the user is.) All of it derives from the item's own seed number, never from a running stream, so an item is the same on every resume.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Collection
from datetime import date, timedelta
from typing import Any

from simia.prompts import read_lines
from simia.tool import SchemaError, ToolSpec, compile_schema
from simia.trajectory import Trajectory

PEOPLE = "amplify/people.txt"
EMAIL = re.compile(r"^[^@\s]+@([^@\s]+)$")
CODE = re.compile(r"^(?=.*\d)[\w#./-]*\d[\w#./-]*$")
NAME = re.compile(r"^[A-ZÀ-Þ][\w'’-]+ [A-ZÀ-Þ][\w'’-]+$")
DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")


def render_fresh_values(seed: Trajectory, number: int) -> str:
    """Write a line for the request, empty if the seed has nothing to vary. `number` is the item's random number."""
    values = choose_fresh_values(seed, number)
    return f"Values: {', '.join(f'{name} {value}' for name, value in values.items())}." if values else ""


def choose_fresh_values(
    seed: Trajectory, number: int, tools: Collection[str] | None = None, language: str = ""
) -> dict[str, Any]:
    """Return argument name → new value, for values that come from the user of the seed and that one of these tools takes."""
    rng = random.Random(number)
    person = rng.choice(read_lines(PEOPLE))
    said = " ".join(message.text for message in seed.messages if message.role == "user").replace(",", "")
    known = {tool.name: tool for tool in seed.tools}
    fresh: dict[str, Any] = {}
    for _, _, call in seed.calls():
        for name, value in (call.arguments or {}).items():
            if name not in fresh and not isinstance(value, dict | list | bool) and str(value).replace(",", "") in said:
                new = rng.choice(read_lines(PEOPLE)) if is_person(name, value) else vary_value(value, rng, person)
                if new is not None and is_valid_value(known.get(call.name), name, new):
                    fresh[name] = new
    if tools is None:
        return fresh
    taken = {name for tool in tools if tool in known for name in known[tool].parameters.get("properties") or {}}
    return {name: value for name, value in fresh.items() if name in taken}


def is_person(name: str, value: Any) -> bool:
    return "name" in name and isinstance(value, str) and NAME.match(value) is not None


def vary_value(value: Any, rng: random.Random, person: str) -> Any:
    """Return a new value of the same shape, or None for free text."""
    if isinstance(value, int | float):
        return type(value)(change_digits(str(value), rng))  # zeros stay, so that round numbers stay round
    if EMAIL.match(value):
        plain = unicodedata.normalize("NFKD", person).encode("ascii", "ignore").decode().lower()
        return ".".join(re.findall("[a-z]+", plain)) + "@example.com"
    if DATE.match(value):
        return shift_date(value, rng.randint(1, 27))
    return change_digits(value.replace("0", "1"), rng) if CODE.match(value) else None


def change_digits(text: str, rng: random.Random) -> str:
    return "".join(rng.choice("123456789") if char in "123456789" else char for char in text)


def shift_date(value: str, days: int) -> str | None:
    try:
        day = date.fromisoformat(value[:10]) + timedelta(days=days)
    except ValueError:
        return None
    return day.isoformat() + value[10:]


def is_valid_value(tool: ToolSpec | None, name: str, value: Any) -> bool:
    schema = (tool.parameters.get("properties") or {}).get(name) if tool else None
    try:
        return isinstance(schema, dict) and compile_schema(schema).valid(value)
    except SchemaError:
        return False
