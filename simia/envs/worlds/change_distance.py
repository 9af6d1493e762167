"""Distance between the changes that a simulator reported and the real ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def change_distance(real: Sequence[Mapping[str, Any]], named: Sequence[Mapping[str, Any]]) -> float:
    """Compute 1 − F1 between the real changes and the reported ones, each as (key, field, value); 0 when there are none of either."""
    one, two = set(iterate_real_changes(real)), set(iterate_reported_changes(named))
    return 1 - 2 * len(one & two) / (len(one) + len(two)) if one or two else 0.0


def iterate_real_changes(changes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the entity's key, the field and the new value of each real change."""
    for change in changes:
        path, new = change["path"], change.get("new")
        if len(path) == 2 and isinstance(new, dict):  # a new entity: each of its fields
            for name, value in new.items():
                yield path[1], name, repr(value)
        elif len(path) == 2 and "new" not in change:
            yield path[1], "", "removed"
        elif len(path) > 2:
            yield path[1], ".".join(path[2:]), repr(new)


def iterate_reported_changes(changes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    latest: dict[tuple[str, str], Any] = {}
    for change in changes:
        if change["set"] is None:
            latest = {place: value for place, value in latest.items() if place[0] != change["key"]}
            latest[change["key"], ""] = "removed"
        else:
            latest |= {(change["key"], name): repr(value) for name, value in change["set"].items()}
    for (key, name), value in latest.items():
        yield key, name, value
