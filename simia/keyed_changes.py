"""Changes of a state as keyed upserts and deletions of rows: the form in which a simulator reports the changes that its answers make.

A change is a JSON object that names a table and a row's key:

- `{"table": "orders", "key": "ORD-1", "set": {"status": "cancelled", "ship_to/city": "Ulm"}, "unset": ["note"]}` adds the row, or sets
  its fields named in `set` and removes those named in `unset`. A name with `/` is a path within the row, through objects and list
  positions; the position after the last one appends. In a name, `~1` stands for `/` and `~0` for `~` (RFC 6901).
- `{"table": "orders", "key": "ORD-1", "set": null}` deletes the row.
- `{"table": "notes", "key": "N-1", "value": "text"}` replaces the whole row. The value need not be an object.
- With `"key": null`, `"value"` replaces the whole table and `"set": null` removes it.

A table is one of the pack's schema, with its name there, or any other value of the state, with its own name (below the top level: its
path with `/`). The key of a row is its key in a mapping; in a list, it is the value of the table's key column, or the row's position. Small
models miscount the positions of a JSON Patch and copy whole tables badly, so a change never repeats unchanged values.
"""

from __future__ import annotations

import copy
import difflib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from simia.state import MISSING, are_equal
from simia.state_schema import StateSchema, TableSpec

KeyedChange = dict[str, Any]
JSON = Any
CHANGES_SCHEMA: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "table": {"type": "string"},
            "key": {"type": ["string", "null"]},
            "set": {"type": ["object", "null"]},
            "unset": {"type": "array", "items": {"type": "string"}},
            "value": {},
        },
        "required": ["table", "key"],
    },
}
MOST_REASONS = 5
NO_SCHEMA = StateSchema()


class ChangeError(ValueError):
    """Changes that cannot be read or do not fit the state. The message is for the model that wrote them."""


def parse_keyed_changes(value: JSON) -> list[KeyedChange]:
    """Read changes from a reply's JSON value; null means no changes. Raises `ChangeError` if the value is no list of changes."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise ChangeError('"changes" is a list')
    return [parse_keyed_change(each) for each in value]


def parse_keyed_change(value: JSON) -> KeyedChange:
    """Read one change. Raises `ChangeError`."""
    if not isinstance(value, dict) or not isinstance(value.get("table"), str) or "key" not in value:
        raise ChangeError('a change is an object with "table", "key" and one of "set", "unset" and "value"')
    key, where = value["key"], f"the change of {value['table']}"
    if isinstance(key, bool | float | dict | list):
        raise ChangeError(f'{where}: "key" is the key of a row, as text')
    found: KeyedChange = {"table": value["table"], "key": None if key is None else str(key)}
    if "value" in value:
        if "set" in value or value.get("unset"):
            raise ChangeError(f'{where}: "value" replaces the whole row, so "set" and "unset" have no place beside it')
        return {**found, "value": value["value"]}
    fields, gone = value.get("set", {}), value.get("unset") or []
    if fields is not None and not isinstance(fields, dict):
        raise ChangeError(f'{where}: "set" is an object of fields, or null to delete the row')
    if not isinstance(gone, list) or not all(isinstance(name, str) for name in gone):
        raise ChangeError(f'{where}: "unset" is a list of names of fields')
    if (fields is None and gone) or ("set" not in value and not gone):
        raise ChangeError(f'{where}: it has "set" or "unset", or "set": null, which deletes the row')
    if key is None and fields is not None:
        raise ChangeError(f'{where}: "key": null stands for the whole table: give its "value", or the key of a row')
    return {**found, "set": fields, **({"unset": gone} if gone else {})}


# -- changes between two states -------------------------------------------------------------------------------------


def compute_keyed_changes(before: JSON, after: JSON, schema: StateSchema | None = None) -> list[KeyedChange]:
    """List the changes from `before` to `after`, both objects; empty if they are equal (1 and 1.0 are; 1 and true are not).

    Applied to `before`, they give `after`.
    """
    return list(_compare_values([], before, after, schema or NO_SCHEMA))


def _compare_values(steps: list[str], before: JSON, after: JSON, schema: StateSchema) -> Iterator[KeyedChange]:
    """Compare the values at a path of the state: go down to the tables, then compare row by row."""
    if before is after or are_equal(before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict) and _leads_to_table(steps, schema):
        for name in [*before, *(name for name in after if name not in before)]:
            yield from _compare_values([*steps, name], before.get(name, MISSING), after.get(name, MISSING), schema)
        return
    table, spec = _name_place(steps, schema)
    rows = _pair_rows(before, after, spec)
    if after is MISSING:
        yield {"table": table, "key": None, "set": None}
    elif rows is None:
        yield {"table": table, "key": None, "value": after}
    else:
        for key, old, new in rows:
            yield from _compare_rows(table, key, old, new)


def _leads_to_table(steps: list[str], schema: StateSchema) -> bool:
    """Whether a path is the whole state, or has tables of the schema below it."""
    paths = ((spec.path or name).split(".") for name, spec in schema.tables.items())
    return not steps or any(len(path) > len(steps) and path[: len(steps)] == steps for path in paths)


def _name_place(steps: list[str], schema: StateSchema) -> tuple[str, TableSpec | None]:
    """The name of the table at a path of the state, and its part of the schema."""
    for name, spec in schema.tables.items():
        if (spec.path or name).split(".") == steps:
            return name, spec
    return join_path(steps), None


def _pair_rows(before: JSON, after: JSON, spec: TableSpec | None) -> list[tuple[str, JSON, JSON]] | None:
    """(key, old row, new row) of all rows; None if the two tables cannot be compared row by row."""
    if isinstance(before, dict) and isinstance(after, dict):
        keys = [*before, *(key for key in after if key not in before)]
        return [(key, before.get(key, MISSING), after.get(key, MISSING)) for key in keys]
    if not isinstance(before, list) or not isinstance(after, list):
        return None
    column = spec.key if spec else None
    old, new = list_unique_keys(before, column), list_unique_keys(after, column)
    if column is not None and old is not None and new is not None:
        one, two = dict(zip(old, before, strict=True)), dict(zip(new, after, strict=True))
        if [key for key in old if key in two] + [key for key in new if key not in one] != new:
            return None  # the order of the rows changed
        return [(key, one.get(key, MISSING), two.get(key, MISSING)) for key in [*old, *new[len(one.keys() & two) :]]]
    if column is not None or len(after) < len(before):
        return None
    return [(str(n), before[n] if n < len(before) else MISSING, row) for n, row in enumerate(after)]


def list_unique_keys(rows: list[JSON], column: str | None) -> list[str] | None:
    """The keys of a list's rows by their key column; None if a row lacks it or two have the same."""
    if column is None or not all(isinstance(row, dict) and isinstance(row.get(column), str | int) for row in rows):
        return None
    keys = [str(row[column]) for row in rows]
    return keys if len(set(keys)) == len(keys) else None


def _compare_rows(table: str, key: str, old: JSON, new: JSON) -> Iterator[KeyedChange]:
    if new is MISSING:
        yield {"table": table, "key": key, "set": None}
    elif not isinstance(new, dict) or (old is not MISSING and not isinstance(old, dict)):
        if old is MISSING or not are_equal(old, new):
            yield {"table": table, "key": key, "value": new}
    elif old is MISSING:
        yield {"table": table, "key": key, "set": {join_path([name]): value for name, value in new.items()}}
    elif not are_equal(old, new):
        fields, gone = dict[str, Any](), list[str]()
        _compare_fields([], old, new, fields, gone)
        yield {"table": table, "key": key, "set": fields, **({"unset": gone} if gone else {})}


def _compare_fields(steps: list[str], old: JSON, new: JSON, fields: dict[str, Any], gone: list[str]) -> None:
    """Collect the fields to set and unset within a row."""
    if isinstance(old, dict) and isinstance(new, dict):
        gone += [join_path([*steps, name]) for name in old if name not in new]
        pairs = [(name, old.get(name, MISSING), value) for name, value in new.items()]
    else:
        pairs = [(str(n), old[n] if n < len(old) else MISSING, value) for n, value in enumerate(new)]
    for name, a, b in pairs:
        path = [*steps, name]
        if a is not MISSING and are_equal(a, b):
            continue
        both = (isinstance(a, dict) and isinstance(b, dict)) or (isinstance(a, list) and isinstance(b, list))
        if both and (isinstance(a, dict) or 0 < len(a) <= len(b)):
            _compare_fields(path, a, b, fields, gone)
        else:
            fields[join_path(path)] = b


# -- changes applied to a state -------------------------------------------------------------------------------------


def apply_keyed_changes(
    state: JSON, changes: Sequence[KeyedChange], schema: StateSchema | None = None
) -> dict[str, Any]:
    """Return the state after `changes`, in their order, and leave `state` unchanged; unchanged rows are shared.

    Raises `ChangeError` for a change that does not fit the state, such as one of an unknown table, row or field.
    """
    if not isinstance(state, dict):
        raise ChangeError("the state is no object of tables")
    found = dict(state)
    for change in changes:
        _apply_change(found, change, schema or NO_SCHEMA)
    return found


def find_place(table: str, schema: StateSchema) -> tuple[list[str], TableSpec | None]:
    """The path of a table in the state, and its part of the schema."""
    spec = schema.tables.get(table)
    return (split_path(table) if spec is None else (spec.path or table).split(".")), spec


def list_table_names(state: JSON, schema: StateSchema | None = None) -> list[str]:
    """Names of all tables of a state: those of the schema, and every other value."""
    schema = schema or NO_SCHEMA
    found = list(schema.tables)
    stack: list[tuple[list[str], JSON]] = [([], state)]
    while stack:
        steps, value = stack.pop()
        if isinstance(value, dict) and _leads_to_table(steps, schema):
            stack += [([*steps, name], inner) for name, inner in reversed(value.items())]
        elif (name := _name_place(steps, schema)[0]) not in schema.tables:
            found.append(name)
    return found


def _apply_change(state: dict[str, Any], change: KeyedChange, schema: StateSchema) -> None:
    table, key = change["table"], change["key"]
    steps, spec = find_place(table, schema)
    place = state
    for step in steps[:-1]:
        inner = place.get(step)
        if not isinstance(inner, dict):
            raise ChangeError(f"there is no table {table[:80]!r}")
        place[step] = place = dict(inner)
    last = steps[-1]
    if key is None:
        if "value" in change:
            place[last] = copy.deepcopy(change["value"])
        elif place.pop(last, MISSING) is MISSING:
            raise ChangeError(f"there is no table {table[:80]!r} to remove")
        return
    if last not in place:
        raise ChangeError(f"there is no table {table[:80]!r}")
    rows = place.get(last)
    if isinstance(rows, dict):
        place[last] = rows = dict(rows)
        _change_row(rows, key, change, f"{table} {key}")
    elif isinstance(rows, list):
        place[last] = rows = list(rows)
        _change_list_row(rows, key, change, spec.key if spec else None, f"{table} {key}")
    else:
        raise ChangeError(f'{table} has no rows: name its new "value", with "key": null')


def _change_row(rows: dict[str, Any], key: str, change: KeyedChange, where: str) -> None:
    if "value" in change:
        rows[key] = copy.deepcopy(change["value"])
    elif change["set"] is None:
        if rows.pop(key, MISSING) is MISSING:
            raise ChangeError(f"{where} cannot be deleted: there is no such row")
    elif key not in rows and change.get("unset"):
        raise ChangeError(f"{where} has no fields to remove: there is no such row")
    else:
        rows[key] = _change_fields(rows.get(key, {}), change, where)


def _change_list_row(rows: list[Any], key: str, change: KeyedChange, column: str | None, where: str) -> None:
    keys = [str(row.get(column)) if isinstance(row, dict) else "" for row in rows] if column else []
    place = keys.index(key) if key in keys else len(rows)
    if column is None:
        if not key.isdecimal() or int(key) > len(rows):
            raise ChangeError(f"{where}: the rows have the positions 0 to {len(rows) - 1}; {len(rows)} adds one")
        place = int(key)
    if place == len(rows) and change.get("set", MISSING) is not None and not change.get("unset"):
        fields = {"value": change["value"]} if "value" in change else {"set": change["set"]}
        held: dict[str, Any] = {}
        _change_row(held, key, {**change, **fields}, where)
        row = held[key]
        if column is not None and isinstance(row, dict) and str(row.setdefault(column, key)) != key:
            raise ChangeError(f"{where}: its {column} is {str(row[column])[:80]!r}, which is another key")
        rows.append(row)
    elif place == len(rows):
        raise ChangeError(f"{where}: there is no such row")
    elif change.get("set", MISSING) is None:
        del rows[place]
    elif "value" in change:
        rows[place] = copy.deepcopy(change["value"])
    else:
        rows[place] = _change_fields(rows[place], change, where)


def _change_fields(row: JSON, change: KeyedChange, where: str) -> JSON:
    if not isinstance(row, dict):
        raise ChangeError(f'{where} is no object of fields: name its new "value"')
    row = copy.deepcopy(row)
    for path in change.get("unset", []):
        *steps, last = split_path(path)
        place = _walk(row, steps, path, where)
        if not isinstance(place, dict) or last not in place:
            raise ChangeError(f"{where} has no field {path[:80]!r} to remove")
        del place[last]
    for path, value in change["set"].items():
        *steps, last = split_path(path)
        place = _walk(row, steps, path, where)
        value = copy.deepcopy(value)
        if isinstance(place, dict):
            place[last] = value
        elif isinstance(place, list) and last.isdecimal() and int(last) < len(place):
            place[int(last)] = value
        elif isinstance(place, list) and last.isdecimal() and int(last) == len(place):
            place.append(value)
        else:
            raise ChangeError(f"{where} has no place {path[:80]!r}")
    return row


def _walk(row: JSON, steps: list[str], path: str, where: str) -> JSON:
    for step in steps:
        if isinstance(row, dict) and step in row:
            row = row[step]
        elif isinstance(row, list) and step.isdecimal() and int(step) < len(row):
            row = row[int(step)]
        else:
            raise ChangeError(f"{where} has no place {path[:80]!r}: {step[:80]!r} is not there")
    return row


# -- checks ---------------------------------------------------------------------------------------------


def check_keyed_changes(
    state: JSON,
    changes: Sequence[KeyedChange],
    schema: StateSchema | None = None,
    *,
    writes: Collection[str] | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Check changes against a state and the pack's schema.

    Arguments:
        writes: tables that the called tool may change, by its declaration; None: any.

    Returns:
        The state after the changes, and a list of faults in words for the model that wrote the changes. If there is any fault, the
        unchanged state is returned. Faults that the state had before are not listed.
    """
    schema = schema or NO_SCHEMA
    names = list_table_names(state, schema)
    if wrong := [
        explain_unknown_table(name, names)
        for name in dict.fromkeys(each["table"] for each in changes)
        if name not in names
    ]:
        return state, wrong[:MOST_REASONS]
    try:
        after = apply_keyed_changes(state, changes, schema)
    except ChangeError as error:
        return state, [str(error)]
    found: list[str] = []
    if writes is not None:
        for table in dict.fromkeys(change["table"] for change in changes):
            if table not in writes:
                allowed = f"changes {', '.join(writes)} only" if writes else "changes nothing"
                found.append(f"the tool {allowed}, so it cannot change {table}")
    if broken := schema.find_violations(after):
        before = set(schema.find_violations(state))
        found += [line for line in broken if line not in before]
    return (state if found else after), found[:MOST_REASONS]


def explain_unknown_table(table: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(table, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(names))[:400]}"
    return f"there is no table {table[:80]!r}; {hint}"


def join_path(steps: Sequence[str]) -> str:
    """A path as text: steps between `/`, escaped as in a JSON Pointer (RFC 6901)."""
    return "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)


def split_path(path: str) -> list[str]:
    """The steps of a path."""
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")]
