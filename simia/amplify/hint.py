"""What makes one sample differ from the next: fresh values to start from.

A model that sees one exemplar many times copies its values (a half-billion one nearly always does). Each item therefore
gets, for every code or address that the exemplar's user says and a call uses, a new one of the same shape. (Giving it a
person's name besides made that model address the user by it, and contradicts policies that say who the user is.)
All of it derives from the item's own seed number, never from a running stream, so an item is the same on every resume.
"""

from __future__ import annotations

import random
import re
import unicodedata
from functools import cache
from typing import Any

from simia import resources
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

EMAIL = re.compile(r"^[^@\s]+@([^@\s]+)$")
CODE = re.compile(r"^(?=.*\d)[\w#./-]*\d[\w#./-]*$")
DATE = re.compile(r"^\d{4}-\d{2}-\d{2}")


def hint(seed: Trajectory, number: int) -> str:
    """A line for the request, empty where the seed gives nothing to vary. `number` is the item's own (run seed and ord)."""
    rng = random.Random(number)
    values = fresh_values(seed, rng, rng.choice(people()))
    return f"Values: {', '.join(f'{name} {value}' for name, value in values.items())}." if values else ""


def fresh_values(seed: Trajectory, rng: random.Random, person: str) -> dict[str, str]:
    """Argument name → a new value, for the codes and addresses that came from the user in the seed."""
    said = " ".join(message.text for message in seed.messages if message.role == "user")
    tools = {tool.name: tool for tool in seed.tools}
    fresh: dict[str, str] = {}
    for _, _, call in seed.calls():
        for name, value in (call.arguments or {}).items():
            if isinstance(value, str) and value in said and name not in fresh:
                new = like(value, rng, person)
                if new and fits(tools.get(call.name), name, new):
                    fresh[name] = new
    return fresh


def like(value: str, rng: random.Random, person: str) -> str | None:
    """A new value of the same shape, or None where there is none to be had (free text, dates)."""
    if EMAIL.match(value):
        plain = unicodedata.normalize("NFKD", person).encode("ascii", "ignore").decode().lower()
        return ".".join(re.findall("[a-z]+", plain)) + "@example.com"
    if DATE.match(value) or not CODE.match(value):
        return None
    return "".join(rng.choice("123456789") if char.isdigit() else char for char in value)


def fits(tool: ToolSpec | None, name: str, value: Any) -> bool:
    schema = (tool.parameters.get("properties") or {}).get(name) if tool else None
    return isinstance(schema, dict) and not ToolSpec(name="_", parameters=schema).argument_errors(value)


@cache
def people() -> tuple[str, ...]:
    path = resources.find("prompts", "amplify/people.txt")
    return tuple(line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
