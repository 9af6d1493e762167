"""Read files of a benchmark's checkout. An error says which checkout is needed. Nothing is run."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import orjson

from simia.errors import UserError


def refuse_links_out(root: Path, *parts: Path) -> None:
    """Raise `UserError` for a link at or below these parts of a checkout that leads out of it: following it would copy a private file."""
    top = root.resolve()
    for part in parts:
        inner = (Path(place, name) for place, folders, names in os.walk(part) for name in [*folders, *names])
        for path in [part, *inner]:
            if path.is_symlink() and not path.resolve().is_relative_to(top):
                raise UserError(
                    f"{path} is a link to a place outside of {root}: remove it, or replace it with the file itself"
                )


def read_benchmark_text(path: Path, needed: str) -> str:
    """The text of a file. `needed`: the checkout that has it, in words. Raises `UserError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}; give the path of {needed}") from None


def read_benchmark_rows(path: Path, needed: str) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines. Raises `UserError`."""
    try:
        rows = [orjson.loads(line) for line in read_benchmark_text(path, needed).split("\n") if line.strip()]
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: not JSON Lines: {error}") from None
    if not all(isinstance(row, dict) for row in rows):
        raise UserError(f"{path}: every line must be a JSON object")
    return rows


def parse_benchmark_module(path: Path, needed: str) -> ast.Module:
    """The syntax tree of a module. Raises `UserError`."""
    try:
        return ast.parse(read_benchmark_text(path, needed))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: not Python: {str(error) or type(error).__name__}") from None
