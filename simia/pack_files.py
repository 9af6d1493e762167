"""Read the files of a pack within limits of size and depth: they are untrusted, and they are read before any grant."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import yaml
from pydantic import ValidationError

from simia.config import explain_yaml_error, holds_long_number
from simia.errors import UserError, explain_json_error

MOST_YAML, MOST_TOOLS, MOST_LINE, MOST_ROWS = 256 << 10, 16 << 20, 16 << 20, 1 << 30  # bytes
MOST_TOOL_COUNT, MOST_DEPTH, MOST_ALIASES = 5_000, 50, 100
MOST_WORDS = 300
TWICE = "the key {key!r} occurs twice in the same object: remove or rename one"
VERSION_CONTROL = frozenset({".git", ".hg", ".svn", ".bzr", ".jj", "CVS", "_darcs"})
RECORD = "synthesis.json"
"""The record of a synthesis in its pack. It quotes tasks and solutions."""
LEFTOVERS = ("~", ".orig", ".rej", ".bak", ".swp", ".swo")
TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?|[{}]', re.DOTALL)
"""In valid JSON: a key with its colon, another string, or a brace."""
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class PlainLoader(LOADER):  # type: ignore[misc]
    """YAML without merge keys, whose result can be exponentially larger than their text, and without keys that occur twice."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Refuse a merge key and a key that occurs twice."""
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                raise yaml.YAMLError(f"line {key.start_mark.line + 1}: {TWICE.format(key=key.value)}")
            seen.add((key.tag, str(key.value)))
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise yaml.YAMLError(
                f"line {node.start_mark.line + 1}: merge keys (<<) are not supported; write the keys out"
            )


def read_bytes(path: Path, most: int) -> bytes:
    """The bytes of a file. Raises `UserError` for one that has more than `most`, without reading it."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): make it readable") from None
    if data is None or len(data) > most:
        raise UserError(f"{path} is larger than {most:,} bytes: make it smaller")
    return data


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines of a JSONL file, without blank ones. Raises `UserError` for a file or a line that is too large."""
    size = path.stat().st_size
    if size > MOST_ROWS:
        raise UserError(f"{path} is larger than {MOST_ROWS:,} bytes: split the pack")
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MOST_LINE + 1):
            number += 1
            if len(line) > MOST_LINE:
                raise UserError(f"{path}, line {number}: longer than {MOST_LINE:,} bytes")
            if line.strip():
                yield number, line


def refuse_duplicate_keys(path: Path, data: bytes, value: Any, first: int = 1) -> None:
    """Raise `UserError` with the line of a key that an object has twice; readers of JSON keep only the last.

    Args:
        path: The file.
        data: A JSON text of it.
        value: What the text was parsed to.
        first: Number of the text's first line in the file.
    """
    with suppress(orjson.JSONEncodeError):  # raised for deeply nested values
        text = data.strip()
        if orjson.dumps(value) == text or orjson.dumps(value, option=orjson.OPT_INDENT_2) == text:
            return  # written by a program: nothing was lost
    objects: list[set[str]] = []
    for token in TOKEN.finditer(data):
        if token[0] == b"{":
            objects.append(set())
        elif token[0] == b"}":
            objects.pop()
        elif token[1] is not None:
            key = orjson.loads(token[0][: -len(token[1])])
            if key in objects[-1]:
                line = first + data.count(b"\n", 0, token.start())
                raise UserError(f"{path}, line {line}: {TWICE.format(key=key)}"[: MOST_WORDS + len(str(path))])
            objects[-1].add(key)


def read_state(path: Path) -> Any:
    """The tables of a JSON file of a pack's state. Raises `UserError` if it is not JSON, or if an object has a key twice."""
    data = read_bytes(path, MOST_ROWS)
    try:
        state = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}: {summarize_error(error)}") from None
    refuse_duplicate_keys(path, data, state)
    return state


def parse_yaml(path: Path) -> Any:
    """A YAML file as plain values. Raises `ValueError` or `yaml.YAMLError` for one that is malformed, too deep or too costly."""
    text = read_bytes(path, MOST_YAML).decode("utf-8")
    depth = aliases = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        aliases += isinstance(event, yaml.AliasEvent)
        if holds_long_number(event):
            raise ValueError("a number of more than 4,300 digits: write it in quotes")
        if depth > MOST_DEPTH:
            raise ValueError(f"nested deeper than {MOST_DEPTH} levels")
        if aliases > MOST_ALIASES:
            raise ValueError(f"more than {MOST_ALIASES} aliases")
    return yaml.load(text, Loader=PlainLoader)


def check_name(pack: Path, key: str, name: str) -> None:
    """Raise `UserError` unless `name` is a file or folder below the pack's folder: a misspelt name in `hidden` would hide nothing."""
    where = f"{pack / 'pack.yaml'}: {key}: {name!r}"
    if not name or name != name.strip() or not name.isprintable() or name.startswith("/"):
        raise UserError(
            f"{where} is not a path below the pack's folder: write a relative path, without spaces around it"
        )
    path = Path(os.path.normpath(pack / name))
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError):
        pattern = " (patterns are not supported)" if any(sign in name for sign in "*?[") else ""
        raise UserError(f"{where} is not in the pack{pattern}: name a file or folder that is there") from None
    root = pack.resolve()
    if root == found or not found.is_relative_to(root) or not path.is_relative_to(pack):
        raise UserError(f"{where} is not below the pack's folder: name a file or folder in it")


def is_leftover(name: str) -> bool:
    """Whether a file or folder of that name belongs to version control or an editor. These hold older copies of tasks and solutions."""
    return (
        name in VERSION_CONTROL
        or name in ("__pycache__", ".DS_Store")
        or name.endswith(LEFTOVERS)
        or name.startswith((".#", "#", ".~"))
    )


def summarize_error(error: Exception) -> str:
    """What an error says, in one line of bounded length."""
    if isinstance(error, json.JSONDecodeError):
        text = explain_json_error(error)
    elif isinstance(error, yaml.YAMLError):
        text = f"not YAML: {explain_yaml_error(error)}"
    elif isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        text = f"{'.'.join(str(p) for p in first['loc'])}: {first['msg']}"
    else:
        text = (str(error).splitlines() or [type(error).__name__])[0]
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}…"
