"""Iterate over the parts of JSON values: objects, texts, keys, and leaves with their paths. No function recurses, so any depth will do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

JSONPath = tuple[str | int, ...]
EXACT = 2**63  # orjson reads an integer beyond 64 bits as a float, so an identifier would lose digits


def iterate_leaves(value: Any, path: JSONPath = ()) -> Iterator[tuple[JSONPath, Any]]:
    """Yield (path, value) of everything that is neither an object nor a list, in order. `path`: of the value itself."""
    stack = [(path, value)]
    while stack:
        at, each = stack.pop()
        if isinstance(each, Mapping):
            stack.extend(((*at, key), inner) for key, inner in reversed(list(each.items())))
        elif isinstance(each, list):
            stack.extend(((*at, n), each[n]) for n in reversed(range(len(each))))
        else:
            yield at, each


def iterate_plain_values(value: Any) -> Iterator[Any]:
    """Yield the values that are neither objects nor lists, in order."""
    return (leaf for _, leaf in iterate_leaves(value))


def iterate_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every object, outer ones before those in them."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, dict):
            yield each
            stack.extend(inner for inner in each.values() if isinstance(inner, dict | list))
        elif isinstance(each, list):
            stack.extend(each)


def iterate_keys(value: Any) -> Iterator[str]:
    """Yield all keys of the objects."""
    return (str(key) for each in iterate_objects(value) for key in each)


def iterate_strings(value: Any) -> Iterator[str]:
    """Yield every text, keys included."""
    stack = [value]
    while stack:
        each = stack.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            stack.extend(each.keys())
            stack.extend(each.values())
        elif isinstance(each, list):
            stack.extend(each)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a JSON number; a Boolean is none, although Python's `bool` is an `int`."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def holds_beyond_64_bits(value: Any) -> bool:
    """Whether a value holds an integer beyond 64 bits, or a float that orjson may have read from one."""
    nodes = [value]
    for node in nodes:
        kind = type(node)
        if kind is dict:
            nodes += node.values()
        elif kind is list:
            nodes += node
        elif (kind is float and abs(node) >= EXACT) or (kind is int and not -EXACT <= node < 2 * EXACT):
            return True
    return False
