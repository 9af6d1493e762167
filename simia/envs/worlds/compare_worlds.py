"""Compare a simulator with the real world: the distance between their changes, and pairs of the identifiers that each made up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simia.envs.rewards.row_pairing import could_be_made_up


def pair_identifiers(real: Any, simulated: Any, known: set[str]) -> dict[str, str]:
    """Pair the identifiers that a writing call made up in each world, as the state reward pairs the keys of new rows.

    Two texts are paired if they are at the same path of both results, could be made up by a tool, differ, and are not in `known`: the
    texts of earlier arguments and results.

    Returns:
        Simulated identifier → real one, one to one.
    """
    pairs: dict[str, str] = {}
    for one, two in iterate_text_pairs(real, simulated):
        made_up = (
            one != two and one not in known and two not in known and could_be_made_up(one) and could_be_made_up(two)
        )
        if made_up and two not in pairs and one not in pairs.values():
            pairs[two] = one
    return pairs


def iterate_text_pairs(one: Any, two: Any) -> Iterator[tuple[str, str]]:
    """Yield the pairs of texts without spaces at the same path of two JSON values."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in one.keys() & two.keys():
            yield from iterate_text_pairs(one[key], two[key])
    elif isinstance(one, list) and isinstance(two, list):
        for a, b in zip(one, two, strict=False):
            yield from iterate_text_pairs(a, b)
    elif isinstance(one, str) and isinstance(two, str) and " " not in one + two:
        yield one, two


def rename_identifiers(value: Any, names: Mapping[str, str]) -> Any:
    """A JSON value with the simulator's identifiers replaced by the real ones, keys included."""
    if not names:
        return value
    if isinstance(value, dict):
        return {names.get(key, key): rename_identifiers(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [rename_identifiers(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


def change_distance(
    real: Sequence[Mapping[str, Any]],
    named: Sequence[Mapping[str, Any]],
    names: Mapping[str, str] | None = None,
    *,
    by_path: bool = False,
) -> float:
    """Compute 1 − F1 between the real changes and the reported ones, each as (key, field, value); 0 when both are empty.
    `names`: simulated identifiers → real ones; `by_path`: the reported changes are by path, as those of a simulator with a state are."""
    renamed = rename_identifiers(list(named), names or {})
    one = set(iterate_real_changes(real))
    two = set(iterate_real_changes(renamed) if by_path else iterate_reported_changes(renamed))
    return 1 - 2 * len(one & two) / (len(one) + len(two)) if one or two else 0.0


def iterate_real_changes(changes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the entity's key, the field and the new value of each real change."""
    for change in changes:
        path, new = change["path"], change.get("new")
        if len(path) == 2 and isinstance(new, dict):  # a new entity yields each of its fields
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
