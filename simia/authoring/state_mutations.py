"""Mutated final states: the reference's with one field changed, one row less, or one row more.

A reward that judges the state must distinguish each of them from the reference's final state. `find_mutations` leaves out mutations that
the match policies allow (an exempt column, words of the same meaning).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from simia.envs.rewards.compare_values import find_policy
from simia.envs.rewards.state_match import judge_state
from simia.json_values import iterate_leaves
from simia.reward_spec import Match, StateSpec
from simia.state import Change, diff_states
from simia.trajectory import Trajectory

MOST_FIELDS = MOST_TABLES = 3
MOST_LEAVES = 2_000  # of a state that are looked at
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateMutation:
    """A mutated final state. `own`: it alters what the reference changed; otherwise it is a side effect elsewhere."""

    kind: Literal["field", "row_removed", "row_added"]
    path: Path
    changes: list[Change]
    own: bool

    def __str__(self) -> str:
        words = {"field": "changed", "row_removed": "removed", "row_added": "added"}
        return f"{'.'.join(self.path)} {words[self.kind]}"


def find_mutations(
    initial: Any, reference: Trajectory, policies: Mapping[str, Match], *, described: bool = True
) -> list[StateMutation]:
    """List mutations of the reference's final state that the state matcher distinguishes from it.

    Args:
        initial: The state at the start.
        reference: The reference's trajectory, with its changes as evidence.
        policies: How values of the state are compared.
        described: Whether the description of a binary file may be mutated; a check that reads the file itself cannot see that.
    """
    changes: list[Change] = (reference.evidence or {}).get("changes") or []
    final = initial
    for change in changes:
        path = tuple(change["path"])
        final = replace_value(final, path, change["new"]) if "new" in change else remove_row(final, path)
    found = []
    for kind, path, mutated in mutate_state(final, changes, policies, described):
        after = diff_states(initial, mutated)
        compared = reference.model_copy(update={"evidence": {"changes": after, "expected": changes}})
        if judge_state(compared, StateSpec(), policies).value != 1.0:
            own = any(
                is_prefix(tuple(change["path"]), path) or is_prefix(path, tuple(change["path"])) for change in changes
            )
            found.append(StateMutation(kind, path, after, own and kind != "row_added"))
    return found


def mutate_state(
    final: Any, changes: list[Change], policies: Mapping[str, Match], described: bool
) -> Iterator[tuple[Literal["field", "row_removed", "row_added"], Path, Any]]:
    """Yield mutated copies of the final state, those of changed values and tables first."""
    touched = [tuple(change["path"]) for change in changes if "new" in change]
    leaves = [leaf for path in touched for leaf in list_leaf_paths(read_place(final, path), path)]
    leaves = [leaf for leaf in leaves if find_policy(leaf, policies) == "exact"] or leaves
    if not changes:
        leaves = list_leaf_paths(final, ())
    if not described:
        leaves = [leaf for leaf in leaves if not is_described(final, leaf)]
    for path in spread(leaves, MOST_FIELDS):
        yield "field", path, replace_value(final, path, alter_value(read_place(final, path)))
    tables = list_row_places(final)
    changed = {path[: len(table)] for path in touched for table in tables if is_prefix(table, path)}
    tables = sorted(tables, key=lambda table: table not in changed)[:MOST_TABLES]
    for path in touched:
        if len(path) > 1 and path[:-1] in tables and isinstance(read_place(final, path[:-1]), dict):
            yield "row_removed", path, remove_row(final, path)
            break
    for table in tables:
        rows = read_place(final, table)
        keys = list(rows) if isinstance(rows, dict) else [str(n) for n in range(len(rows))]
        quiet = [key for key in keys if not any(is_prefix((*table, key), path) for path in touched)]
        if quiet:
            yield "row_removed", (*table, quiet[0]), remove_row(final, (*table, quiet[0]))
        key = keys[-1]
        yield "row_added", (*table, f"{key}-copy"), add_row(final, table, key)


def list_row_places(state: Any) -> list[Path]:
    """Places of the state that hold rows: mappings and lists that are not empty."""
    if not isinstance(state, dict):
        return []
    found: list[Path] = []
    for name, value in state.items():
        if isinstance(value, list) and value:
            found.append((name,))
        elif isinstance(value, dict) and value:
            inner = [key for key, each in value.items() if isinstance(each, dict) and each and is_table(each)]
            found += [(name, key) for key in inner] if len(inner) == len(value) else [(name,)]
    return found


def is_table(value: dict[str, Any]) -> bool:
    """Whether every value is a row of several columns."""
    return all(isinstance(each, dict) for each in value.values())


def list_leaf_paths(value: Any, path: Path) -> list[Path]:
    """Paths of the values that are neither objects nor lists, `MOST_LEAVES` at most."""
    paths = (tuple(map(str, where)) for where, _ in iterate_leaves(value, path) if where)
    return list(islice(paths, MOST_LEAVES))


def is_described(state: Any, path: Path) -> bool:
    """Whether a value is part of the description of a binary file, next to the file's bytes."""
    return any("base64" in place for n in range(len(path)) if isinstance(place := read_place(state, path[:n]), dict))


def alter_value(value: Any) -> Any:
    """Another value: of the same type, except that null becomes a text."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return "altered 7" if value != "altered 7" else "altered 8"


def replace_value(state: Any, path: Path, value: Any) -> Any:
    """The state with another value at a path. Like the next two functions it copies only what changes, since a state may be large."""
    if not path:
        return value
    copied, key = copy_place(state, path[0])
    copied[key] = replace_value(copied[key] if len(path) > 1 else None, path[1:], value)
    return copied


def remove_row(state: Any, path: Path) -> Any:
    copied, key = copy_place(state, path[0])
    if len(path) == 1:
        del copied[key]
    else:
        copied[key] = remove_row(copied[key], path[1:])
    return copied


def add_row(state: Any, table: Path, key: str) -> Any:
    """The state with a copy of a row."""
    rows = read_place(state, table)
    return replace_value(
        state, table, [*rows, rows[int(key)]] if isinstance(rows, list) else {**rows, f"{key}-copy": rows[key]}
    )


def copy_place(place: Any, step: str) -> tuple[Any, Any]:
    """A copy of an object or a list, and the step as its key."""
    return (list(place), int(step)) if isinstance(place, list) else (dict(place), step)


def read_place(state: Any, path: Path) -> Any:
    for step in path:
        state = state[int(step)] if isinstance(state, list) else state[step]
    return state


def is_prefix(path: Path, other: Path) -> bool:
    return other[: len(path)] == path


def spread(items: list[Path], most: int) -> list[Path]:
    """Return at most `most` items, evenly spread."""
    if len(items) <= most:
        return items
    return [items[n * (len(items) - 1) // (most - 1)] for n in range(most)]
