"""The shared part of all dialects: how rows are refused, which JSON is accepted, and how the original form of a row is kept.

A bad row is data, not a fault: a reader yields a `RefusedRow` and never raises for it. JSON is parsed by the standard
library here and not by orjson, which turns integers of more than 64 bits into floats.

Reading and writing a row loses nothing. Fields that simia does not know stay in the `extra` of the object that has them.
If the canonical form of a part (a turn, the tool list) differs from the original, the original is kept in `extra` under
`MEMO`. A writer uses it only if reading it again gives the present part, so edits take precedence.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from simia.errors import Code
from simia.trajectory import Trajectory

MEMO = "_verbatim"
MAX_DEPTH = 100
SURROGATE = re.compile("[\ud800-\udfff]")


class RowError(ValueError):
    """A row cannot be read: the reason code, and one line that tells the user what is wrong."""

    def __init__(self, code: Code, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


class RefusedRow(BaseModel):
    """A row of a file that was not read. `line` is where it starts, `index` its number among the rows, from 1."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    line: int
    """Line at which the row starts, from 1."""
    index: int
    """Number among the rows, from 1."""
    code: Code
    """The reason."""
    detail: str
    """What is wrong, for people."""
    row: str = ""
    """The row's first characters."""


class RowLimits(BaseModel):
    """Limits of one row; a reader refuses larger rows."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    row_bytes: int = 20_000_000
    """Largest row, in bytes."""
    depth: int = MAX_DEPTH
    """Deepest nesting."""


class Dialect(Protocol):
    """One way to write a trajectory down as a JSON object."""

    @property
    def name(self) -> str: ...

    def sniff(self, row: Mapping[str, Any]) -> bool:
        """Whether a row looks like this dialect. The test is cheap; `read` may still refuse the row."""

    def read(self, row: Mapping[str, Any]) -> Trajectory:
        """Read a row. Raises `RowError`."""

    def write(self, t: Trajectory) -> dict[str, Any]:
        """Write a row. A trajectory that `read` made and nobody edited gives the original row."""


def find_fault(value: Any, depth: int = MAX_DEPTH) -> RowError | None:
    """Return why a parsed JSON value is refused: too deep, a number that is not finite, or text that cannot be stored; else None."""
    level, nodes = 0, [value]
    while nodes:
        below: list[Any] = []
        for node in nodes:
            if isinstance(node, str):
                if "\0" in node:
                    return RowError(Code.BAD_ROW, "a text holds a NUL character")
                if not node.isascii() and SURROGATE.search(node):
                    return RowError(
                        Code.BAD_JSON,
                        "a text is not valid Unicode (a lone surrogate, or bytes not in UTF-8): save the file as UTF-8",
                    )
            elif isinstance(node, dict):
                below += node
                below += node.values()
            elif isinstance(node, list):
                below += node
            elif isinstance(node, float) and not math.isfinite(node):
                return RowError(Code.BAD_JSON, f"the number {node} is not JSON")
        level += bool(below)
        if level > depth:
            return RowError(Code.TOO_LARGE, f"the row nests deeper than {depth} levels")
        nodes = below
    return None


def parse_json(text: str) -> Any:
    """The JSON value in a text. Raises `ValueError` with the reason."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if why := find_fault(value):
        raise why
    return value


def dump_json(value: Any) -> str:
    """JSON as ShareGPT files and chat templates print it: readable Unicode, a space after comma and colon."""
    return json.dumps(value, ensure_ascii=False)


def is_same_json(a: Any, b: Any) -> bool:
    """Whether two values are equal as JSON. Python treats 1, 1.0 and True as equal; JSON does not."""
    return bool(a == b) and json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


def take_unknown(fields: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the fields that the dialect does not name, which a reader stores in `extra`. Raises `RowError` if one is named `MEMO`."""
    if MEMO in fields:
        raise RowError(Code.BAD_ROW, f"the field name {MEMO!r} is reserved")
    return {key: value for key, value in fields.items() if key not in known}


def take_carried(extra: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the fields of `extra` that a writer puts into a row: all except `MEMO` and those that the dialect names."""
    return {key: value for key, value in extra.items() if key != MEMO and key not in known}


def read_memory(extra: Mapping[str, Any], dialect: str) -> dict[str, Any]:
    """Return the entries that this dialect's reader stored under `MEMO` for its writer; empty if there are none."""
    memo = extra.get(MEMO)
    kept = memo.get(dialect) if isinstance(memo, dict) else None
    return kept if isinstance(kept, dict) else {}


def read_optional_text(fields: Mapping[str, Any], key: str) -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise RowError(Code.BAD_ROW, f"{key} is not text")
    return value
