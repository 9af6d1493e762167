"""Read replies to the prompts of a synthesis: one JSON value of a given model, or one block of Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from simia.formats.reply.reply_json import RepairError, load_json_values, strip_reasoning
from simia.synthesis.reasons import Unreadable

T = TypeVar("T")
FENCE = re.compile(r"^```[ \t]*(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
MOST_ERRORS = 3


def list_blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks of a reply: (language, content)."""
    return [(found[1].lower(), found[2]) for found in FENCE.finditer(strip_reasoning(text))]


def read_python(text: str) -> str:
    """Return the Python of a reply: its last fenced block; if it has none, the whole reply.

    Raises `Unreadable` unless it parses.
    """
    blocks = [content for language, content in list_blocks(text) if language in ("", "python", "py", "python3")]
    code = (blocks[-1] if blocks else strip_reasoning(text)).strip() + "\n"
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        words = f"{error.msg if isinstance(error, SyntaxError) else error}{place}"
        if not blocks:
            raise Unreadable(f"no Python block found (``` … ```), and the whole reply is not Python: {words}") from None
        raise Unreadable(f"the code is not Python: {words}") from None
    return code


def read_json(text: str, kind: type[T] | Any) -> T:
    """Return the last JSON value of a reply, validated as `kind`, a model or any type that pydantic knows. Raises `Unreadable`."""
    blocks = [content for language, content in list_blocks(text) if language in ("", "json")]
    try:
        values, _ = load_json_values(blocks[-1] if blocks else strip_reasoning(text))
    except RepairError as error:
        raise Unreadable(f"it holds no JSON: {error}") from None
    if not values:
        raise Unreadable("it holds no JSON")
    try:
        found: T = TypeAdapter(kind).validate_python(values[-1])
    except ValidationError as error:
        raise Unreadable(explain_errors(error)) from None
    return found


def explain_errors(error: ValidationError) -> str:
    """The first errors of a validation, in one line that a model can act on."""
    lines = [
        f"{'.'.join(map(str, each['loc'])) or 'the value'}: {each['msg']}" for each in error.errors()[:MOST_ERRORS]
    ]
    return "; ".join(lines)


def refuse_faults(faults: Sequence[str], shown: int) -> None:
    """Raise `Unreadable` with the first faults, if there are any."""
    if faults:
        more = f"; and {len(faults) - shown} more" if len(faults) > shown else ""
        raise Unreadable("; ".join(faults[:shown]) + more)


def dump(model: BaseModel) -> dict[str, Any]:
    """Dump a model as the JSON value of a stage's output: without defaults, except `kind`, which is needed to read unions."""
    row: dict[str, Any] = restore_kinds(
        model.model_dump(mode="json", exclude_defaults=True), model.model_dump(mode="json")
    )
    return row


def restore_kinds(row: Any, whole: Any) -> Any:
    """Put `kind` back into the objects of a row that lack it."""
    if isinstance(row, dict) and isinstance(whole, dict):
        kind = {"kind": whole["kind"]} if "kind" in whole and "kind" not in row else {}
        return {**kind, **{key: restore_kinds(value, whole.get(key)) for key, value in row.items()}}
    if isinstance(row, list) and isinstance(whole, list) and len(row) == len(whole):
        return [restore_kinds(value, other) for value, other in zip(row, whole, strict=True)]
    return row
