"""Convert a Gymnasium environment to text: observations to JSON, action spaces to JSON Schemas, JSON to actions.

This module is copied into each imported pack with the driver (`gymnasium_world`).
"""

from __future__ import annotations

import enum
import importlib
import inspect
import math
import re
from typing import Any

from gymnasium import spaces  # type: ignore[import-not-found]

numpy: Any = importlib.import_module("numpy")
JSON = Any
COLOUR = re.compile(r"\x1b\[([0-9;]*)m")
COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
FEW = 256  # largest array whose values are shown to an agent
ENUM = 500
# Gymnasium's toy text environments name their actions only in their documentation.
TOYS = {
    "FrozenLake": ("left", "down", "right", "up"),
    "CliffWalking": ("up", "right", "down", "left"),
    "Taxi": ("south", "north", "east", "west", "pick up", "drop off"),
    "Blackjack": ("stick", "hit"),
}
MEANINGS = ("get_action_meanings", "action_meanings", "action_names", "ACTION_NAMES", "ACTIONS", "actions", "Actions")


class UnsupportedSpace(Exception):  # noqa: N818 - a property of the environment
    """The environment cannot be played by text; the message gives the reason."""


def observation_to_json(value: Any) -> JSON:
    """Convert an observation to JSON."""
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, numpy.generic | numpy.ndarray):
        return observation_to_json(value.tolist())
    if isinstance(value, dict):
        return {str(key): observation_to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [observation_to_json(each) for each in value]
    if isinstance(value, float) and math.isfinite(value):
        return value
    return value if value is None or isinstance(value, str | int) else str(value)


def render_text(env: Any) -> str:
    """Render the environment as text if it supports that, with the coloured parts listed below by line and column."""
    if env.render_mode != "ansi":
        return ""
    text = env.render()
    text = text.getvalue() if hasattr(text, "getvalue") else text
    text = "\n".join(map(str, text)) if isinstance(text, list) else str(text or "")
    lines: list[str] = []
    notes: list[str] = []
    colour = ""
    for row, line in enumerate(text.strip("\n").split("\n"), start=1):
        flat = ""
        for number, piece in enumerate(COLOUR.split(line)):  # text and codes in turn
            if number % 2:
                colour = read_colour(piece, colour)
                continue
            if piece and colour:
                notes.append(f"{colour} is {piece!r} in line {row}, column {len(flat) + 1}")
            flat += piece
        lines.append(flat)
    return "\n".join([*lines, *notes])


def read_colour(codes: str, before: str) -> str:
    for code in (int(code) for code in codes.split(";") if code.isdecimal()):
        if code in range(30, 38) or code in range(40, 48):
            return COLOURS[code % 10]
    return "" if codes in ("", "0") else before


def describe_environment(env: Any) -> str:
    """Return the docstring of the environment's class, without the sections for programmers."""
    text = inspect.cleandoc(type(env.unwrapped).__doc__ or "")
    return re.split(r"\n#+ (?:Arguments|Version History|References|Vectorized)", text)[0].strip()[:8000]


# -- spaces -------------------------------------------------------------------------------------------------------


def check_observation_space(space: Any, what: str) -> None:
    """Raise `UnsupportedSpace` for observations that are neither text nor a few values."""
    if isinstance(space, spaces.Dict):
        for name, inner in space.spaces.items():
            check_observation_space(inner, f"{what} {name!r}")
    elif isinstance(space, spaces.Tuple):
        for number, inner in enumerate(space.spaces):
            check_observation_space(inner, f"{what} [{number}]")
    elif isinstance(space, spaces.Sequence):
        check_observation_space(space.feature_space, what)
    elif isinstance(space, spaces.Graph):
        raise UnsupportedSpace(f"its {what} are graphs, but an agent can only read text")
    elif isinstance(space, spaces.Box):
        size = int(numpy.prod(space.shape))
        if space.dtype == numpy.uint8 and len(space.shape) >= 2:
            raise UnsupportedSpace(f"its {what} are images {space.shape}, but an agent can only read text")
        if numpy.issubdtype(space.dtype, numpy.floating):
            kind = f"arrays {space.shape} of real numbers (Box)"
            raise UnsupportedSpace(f"its {what} are {kind}, but an agent can only read text")
        if size > FEW:
            raise UnsupportedSpace(f"its {what} are arrays of {size} numbers, more than an agent can read")


def make_action_schema(space: Any, names: list[str] | None = None) -> dict[str, JSON]:
    """Return the JSON Schema of an action. Raises `UnsupportedSpace`."""
    if isinstance(space, spaces.Discrete):
        if names:
            return {"type": "string", "enum": names}
        return make_integer_schema(space.start, space.n)
    if isinstance(space, spaces.Text):
        length = {"minLength": int(space.min_length)} if space.min_length > 1 else {}
        return {"type": "string", **length, "maxLength": int(space.max_length)}
    if isinstance(space, spaces.MultiDiscrete):
        starts, sizes = numpy.ravel(space.start), numpy.ravel(space.nvec)
        return make_array_schema([make_integer_schema(low, n) for low, n in zip(starts, sizes, strict=True)])
    if isinstance(space, spaces.MultiBinary):
        return make_array_schema([make_integer_schema(0, 2)] * int(numpy.prod(space.shape)))
    if isinstance(space, spaces.Tuple):
        return make_array_schema([make_action_schema(inner) for inner in space.spaces])
    if isinstance(space, spaces.Dict):
        inner = {str(name): make_action_schema(each) for name, each in space.spaces.items()}
        return {"type": "object", "properties": inner, "required": list(inner), "additionalProperties": False}
    if isinstance(space, spaces.Box):
        kind = "real" if space.dtype.kind == "f" else "whole"
        raise UnsupportedSpace(f"its actions are {kind} numbers in a Box, which cannot be chosen by name")
    if isinstance(space.sample(), str):
        return {"type": "string"}
    raise UnsupportedSpace(f"its actions are a {type(space).__name__}, which is not supported")


def make_integer_schema(start: Any, count: Any) -> dict[str, JSON]:
    return {"type": "integer", "minimum": int(start), "maximum": int(start) + int(count) - 1}


def make_array_schema(places: list[dict[str, JSON]]) -> dict[str, JSON]:
    size = len(places)
    same = all(place == places[0] for place in places)
    items = {"items": places[0]} if places and same else {"prefixItems": places}
    return {"type": "array", **items, "minItems": size, "maxItems": size}


def parse_action(space: Any, value: JSON, names: list[str] | None = None) -> Any:
    """Convert a JSON action that matches the schema to an action of the environment."""
    if isinstance(space, spaces.Discrete):
        return int(space.start) + names.index(value) if names else int(value)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return numpy.array(value, dtype=space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Tuple):
        return tuple(parse_action(inner, each) for inner, each in zip(space.spaces, value, strict=True))
    if isinstance(space, spaces.Dict):
        return {name: parse_action(inner, value[name]) for name, inner in space.spaces.items()}
    return value


def find_action_names(env: Any, given: list[str] | None) -> list[str] | None:
    """Find the names of the actions: from the user, from the environment, or the known ones of Gymnasium's environments."""
    space = env.action_space
    if not isinstance(space, spaces.Discrete) or space.n > ENUM:
        return None
    for found in (given, *(getattr(env.unwrapped, name, None) for name in MEANINGS), TOYS.get(find_toy_text_name(env))):
        listed = split_names(found)
        if len(set(listed)) == len(listed) == space.n:
            return listed
        if found is given and given is not None:
            raise UnsupportedSpace(f"it has {space.n} actions, but {len(set(listed))} different names are given")
    return None


def find_toy_text_name(env: Any) -> str:
    ours = type(env.unwrapped).__module__.startswith("gymnasium.envs.")
    return str(env.spec.id).split("-")[0].removesuffix("8x8").removesuffix("Slippery") if ours and env.spec else ""


def split_names(found: Any) -> list[str]:
    if callable(found) and not isinstance(found, type):
        try:
            found = found()
        except Exception:
            return []
    if isinstance(found, type) and issubclass(found, enum.Enum):
        return [each.name for each in found]
    if isinstance(found, dict):
        found = [found[key] for key in sorted(found)] if all(isinstance(key, int) for key in found) else list(found)
    if isinstance(found, list | tuple) and all(isinstance(each, str | enum.Enum) for each in found):
        return [each.name if isinstance(each, enum.Enum) else each for each in found]
    return []
