"""Compare states as JSON values, and apply their changes.

The evidence of an episode holds the changes of its state, not the state: readable, and a few lines instead of megabytes. A change
is `{"path": [...], "old": …, "new": …}`; `old` is absent for an added key, `new` for a removed one. Objects are compared key by
key, lists of equal length element by element (`path` holds the index as text), anything else as a whole.
`count_leaf_changes` is the size of a change, |Δ|.
"""

from __future__ import annotations

import copy
import itertools
from typing import Any

Change = dict[str, Any]
JSON = Any
MISSING: Any = object()


def diff_states(old: JSON, new: JSON) -> list[Change]:
    """List the changes from `old` to `new` by path; empty when both are equal (1 and 1.0 are; 1 and true are not)."""
    found: list[Change] = []
    stack: list[tuple[list[str], JSON, JSON]] = [([], old, new)]
    while stack:
        path, a, b = stack.pop()
        if a is b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            for key in a.keys() - b.keys():
                found.append({"path": [*path, key], "old": a[key]})
            for key, value in b.items():
                if key not in a:
                    found.append({"path": [*path, key], "new": value})
                else:
                    stack.append(([*path, key], a[key], value))
        elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
            stack.extend(([*path, str(i)], x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)))
        elif isinstance(a, bool) is not isinstance(b, bool) or a != b:
            found.append({"path": path, "old": a, "new": b})
    return sorted(found, key=lambda change: change["path"])


def apply_changes(state: JSON, changes: list[Change]) -> JSON:
    """Return the state after `changes`, and leave `state` unchanged. Raises `KeyError` if they do not fit."""
    state = copy.deepcopy(state)
    for change in changes:
        path = change["path"]
        if not path:
            state = change["new"]
            continue
        place = state
        for step in path[:-1]:
            place = place[int(step)] if isinstance(place, list) else place[step]
        last: Any = int(path[-1]) if isinstance(place, list) else path[-1]
        if "new" in change:
            place[last] = change["new"]
        else:
            del place[last]
    return state


def merge_patch(state: JSON, patch: JSON) -> JSON:
    """Apply a JSON merge patch (RFC 7386): objects are merged, null removes a key, anything else replaces. Unchanged parts are shared."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(state) if isinstance(state, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def count_leaf_changes(before: JSON, after: JSON) -> int:
    """|Δ|: how many leaf fields differ between two JSON values, added and removed ones included.

    A leaf is a value other than an object or list, identified by its path; list elements are identified by their position. An empty object
    or list counts as a leaf if it is added, is removed, or replaces another kind of value.
    """
    if before is after:
        return 0
    if isinstance(before, dict) and isinstance(after, dict):
        keys = before.keys() | after.keys()
        return sum(count_leaf_changes(before.get(key, MISSING), after.get(key, MISSING)) for key in keys)
    if isinstance(before, list) and isinstance(after, list):
        pairs = itertools.zip_longest(before, after, fillvalue=MISSING)
        return sum(count_leaf_changes(a, b) for a, b in pairs)
    if before is not MISSING and after is not MISSING:
        if are_equal(before, after):
            return 0
        if is_leaf(before) and is_leaf(after):
            return 1
    return count_leaves(before) + count_leaves(after)


def is_leaf(value: JSON) -> bool:
    return not isinstance(value, dict | list) or not value


def count_leaves(value: JSON) -> int:
    if value is MISSING:
        return 0
    if is_leaf(value):
        return 1
    return sum(map(count_leaves, value.values() if isinstance(value, dict) else value))


def are_equal(a: JSON, b: JSON) -> bool:
    """Whether two JSON values are equal: 1 and 1.0 are, 1 and true are not."""
    if a is b:
        return True
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(are_equal(value, b[key]) for key, value in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(are_equal, a, b))
    return bool(isinstance(a, bool) is isinstance(b, bool) and a == b)
