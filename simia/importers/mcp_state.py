"""Load and save the state that a server of the Model Context Protocol holds in memory, by two of its tools.

LOAD takes the state and SAVE returns it, as a JSON object. The importer reads from LOAD's schema how it takes the state, and calls both in
the sandbox. The state that SAVE returns at the start is written into the pack; parts that LOAD or SAVE does not keep are reported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from simia.errors import UserError
from simia.state import diff_states

JSON = Any
STATE_FILE = "state.json"
SHOWN = 5


def describe_state_tools(names: tuple[str, str], parameters: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return how the driver calls the two tools. `parameters`: tool → schema of its arguments.

    If LOAD has one required argument, or only one, it takes the whole state: as JSON text if it is a string, else as an object.
    Otherwise the keys of the state are its arguments.

    Raises `UserError` for a tool that the server does not have, and for a SAVE with required arguments.
    """
    load, save = names
    for name in names:
        if name not in parameters:
            raise UserError(f"--state-tools: the server has no tool {name!r}; it has: {', '.join(parameters)}")
    if needed := parameters[save].get("required"):
        raise UserError(
            f"--state-tools: {save} needs arguments ({', '.join(needed)}): it must return the state without any"
        )
    properties = parameters[load].get("properties") or {}
    candidates = parameters[load].get("required") or list(properties)
    argument = candidates[0] if len(candidates) == 1 else None
    text = argument is not None and (properties.get(argument) or {}).get("type") == "string"
    return {"load": load, "save": save, "argument": argument, "text": text}


def read_given_state(path: Path | None) -> JSON:
    """Read the state of `--state`. Raises `UserError` for a file that holds no JSON object."""
    if path is None:
        return None
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise UserError(f"--state {path}: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"--state {path}: it must hold a JSON object")
    return value


async def settle_state(
    read: Callable[[dict[str, Any]], Coroutine[Any, Any, JSON]], given: JSON
) -> tuple[JSON, list[str]]:
    """Return the state that episodes start from, and lines about what LOAD or SAVE does not keep.

    read: opens an episode with an `initial` and returns its state.
    given: the state of `--state`; None: what the server starts with.
    """
    start = await read({}) if given is None else given
    first = await read({"state": start})
    second = await read({"state": first})
    lines = []
    if changes := diff_states(start, first):
        lines.append(f"the server loads another state than it was given: {list_paths(changes)} differ")
    if changes := diff_states(first, second):
        lines.append(f"the state changes when it is saved and loaded: {list_paths(changes)}; exempt them by `match`")
    return first, lines


def list_paths(changes: Sequence[Mapping[str, Any]]) -> str:
    """List the dotted paths of changes, the first few of them."""
    paths = [".".join(map(str, change["path"])) for change in changes]
    return ", ".join(paths[:SHOWN]) + (f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else "")
