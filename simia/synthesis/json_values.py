"""Iterate over the leaves, values and keys of JSON values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def list_leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """(path, value) of everything that is neither an object nor a list."""
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if pairs is None:
        yield path, value
        return
    for key, inner in pairs:
        yield from list_leaves(inner, (*path, key))


def list_plain_values(value: Any) -> Iterator[Any]:
    """The values of a JSON value that are neither objects nor lists."""
    return (leaf for _, leaf in list_leaves(value))


def list_keys(value: Any) -> Iterator[str]:
    """All keys of the objects in a JSON value."""
    if isinstance(value, Mapping):
        yield from map(str, value)
    for inner in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from list_keys(inner)
