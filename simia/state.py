"""Compare states as JSON values, and apply their changes.

Evidence of an episode is the change of its state, not the state: a few lines instead of megabytes, and readable. A change
is `{"path": [...], "old": …, "new": …}`; `old` is absent where a key appears, `new` where it goes. Objects are compared
key by key, lists of equal length element by element (the index stands in `path` as text), anything else as a whole.
"""

from __future__ import annotations

import copy
from typing import Any

Change = dict[str, Any]
JSON = Any


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
    """Return the state after `changes`, and leave `state` unchanged. Raises `KeyError` where they do not fit."""
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
