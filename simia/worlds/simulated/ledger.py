"""What a simulated world has said so far, by table and key, and what would contradict it.

A model that plays the tools forgets: an order that was pending is shipped two answers later, an id that did not exist does.
So every answer's entities are kept here. They come from the changes that the model names, keyed upserts (small models
miscount the positions of a JSON Patch), and from the results themselves. A new answer is compared before anybody sees it.

Only what is sure counts: an entity is an object with one identifying field, or with several taken together; lists and
nested objects are entities of their own; a difference is a contradiction when the call only reads, or when the field is
said to be something else without a change being named.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from simia.trajectory import compact

Scalar = str | int | float | bool | None
READS = re.compile(
    r"^(get|list|find|search|read|show|check|look|look_up|lookup|count|calculate|view|query|describe|fetch)(_|$)", re.I
)
MISSING = re.compile(
    r"not found|no such|does(?: not|n't) exist|unknown|cannot be found|there is no|no .{1,40} found", re.I
)
KEY = re.compile(r"(^id$|_id$|^uuid$)", re.I)
LIKE_A_KEY = re.compile(r"^(?=.*\d)[\w.@-]{2,}$")
VOLATILE = re.compile(r"(time|timestamp|_at|age|elapsed|now|count|total_results|page)$", re.I)
SHOWN = 6_000  # characters of the ledger in a prompt


@dataclass
class Ledger:
    """Tables of entities: table → key → field → value. `closed`: tables that are known in whole (`knowledge: state`)."""

    tables: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    gone: set[tuple[str, str]] = field(default_factory=set)
    """(table, key) of what was taken away."""
    missing: set[str] = field(default_factory=set)
    """Values that an answer said do not exist."""
    closed: frozenset[str] = frozenset()
    touched: dict[tuple[str, str], None] = field(default_factory=dict)
    """Entities that answers spoke of, in the order in which they last did."""

    @classmethod
    def of_state(cls, state: Any) -> Ledger:
        """All tables of a pack's state: objects of objects."""
        made = cls()
        names = []
        for name, rows in state.items() if isinstance(state, dict) else ():
            if isinstance(rows, dict) and rows and all(isinstance(row, dict) for row in rows.values()):
                names.append(singular(name))
                made.tables[singular(name)] = {str(key): dict(row) for key, row in rows.items()}
        made.closed = frozenset(names)
        return made

    def copy(self) -> Ledger:
        return copy.deepcopy(self)

    def put(self, table: str, key: str, fields: dict[str, Any]) -> None:
        row = self.tables.setdefault(table, {}).setdefault(key, {})
        row.update(fields)
        self.touched.pop((table, key), None)
        self.touched[table, key] = None
        self.gone.discard((table, key))
        self.missing.discard(key)

    def apply(self, changes: list[dict[str, Any]]) -> None:
        """Keyed upserts; `set: null` takes the entity away."""
        for change in changes:
            table, key, fields = singular(change["table"]), change["key"], change["set"]
            if fields is None:
                self.tables.get(table, {}).pop(key, None)
                self.touched.pop((table, key), None)
                self.gone.add((table, key))
            else:
                self.put(table, key, fields)

    def take(self, arguments: dict[str, Any], content: Any, *, failed: bool, changes: list[dict[str, Any]]) -> None:
        """An answer was given: what it says is true from now on."""
        self.apply(changes)
        if failed:
            text = content if isinstance(content, str) else compact(content)
            if MISSING.search(text):
                said = {value for value in scalars(arguments) if isinstance(value, str) and value in text}
                self.missing |= {value for value in said if LIKE_A_KEY.match(value)}
            return
        for table, key, row in entities(content):
            self.put(table, key, row)

    def contradictions(
        self, name: str, arguments: dict[str, Any], content: Any, *, failed: bool, changes: list[dict[str, Any]]
    ) -> list[str]:
        """In words, for the model that is asked anew; empty when the answer fits what was said before."""
        found: list[str] = []
        if failed:
            return found
        made = {change["key"] for change in changes if change["set"] is not None}
        for value in scalars(arguments):
            if not isinstance(value, str) or value in made:
                continue
            if value in self.missing:
                found.append(f"{name} succeeded for {value!r}, which an earlier answer said does not exist")
        for each, value in arguments.items():
            if each.endswith("_id") and (each[:-3], value) in self.gone and value not in made:
                found.append(f"{name} succeeded for {each} {value!r}, which was taken away before")
        found += self._unknown(name, arguments, made)
        for each, value in arguments.items():
            told = content.get(each) if isinstance(content, dict) else None
            if KEY.search(each) and plain(value) and told is not None and plain(told) and str(told) != str(value):
                found.append(f"{name} was asked about {each} {value!r}, and the answer is about {told!r}")
        reads = READS.match(name) is not None
        changed = {(change["key"], each) for change in changes for each in change["set"] or ()}
        for table, key, row in entities(content):
            if (table, key) in self.gone and key not in made:
                found.append(f"the answer shows {key!r}, which was taken away before")
                continue
            known = self.tables.get(table, {}).get(key)
            for each, value in row.items() if known else ():
                was = known.get(each, value) if known else value
                if was == value or not (plain(was) and plain(value)) or VOLATILE.search(each):
                    continue
                if reads or (key, each) not in changed:
                    found.append(f"{each} of {key!r} was {was!r} before and is {value!r} in this answer")
        return found[:5]

    def _unknown(self, name: str, arguments: dict[str, Any], made: set[str]) -> list[str]:
        """Arguments that name an entity of a table that is known in whole, and is not there."""
        found = []
        for argument, value in arguments.items():
            if not isinstance(value, str) or not argument.endswith("_id") or value in made:
                continue
            table = argument[:-3]
            if table in self.closed and value not in self.tables.get(table, {}):
                found.append(f"{name} succeeded for {argument} {value!r}, and there is none such")
        return found

    def render(self, room: int = SHOWN) -> str:
        """A line for each entity, those touched last first, as many as there is room for."""
        lines: list[str] = []
        for table, key in reversed(self.touched):
            line = f"{table} {key}: {compact(self.tables[table][key])}"
            room -= len(line) + 1
            if room < 0:
                lines.append(f"({len(self.touched) - len(lines)} more)")
                break
            lines.append(line)
        lines += [f"does not exist: {value}" for value in sorted(self.missing)[:20]]
        return "\n".join(lines)

    def dump(self) -> dict[str, Any]:
        """As JSON, for snapshots."""
        return {
            "tables": self.tables, "gone": sorted(list(place) for place in self.gone), "missing": sorted(self.missing),
            "closed": sorted(self.closed), "touched": [list(place) for place in self.touched],
        }  # fmt: skip

    @classmethod
    def load(cls, data: dict[str, Any]) -> Ledger:
        touched: dict[tuple[str, str], None] = dict.fromkeys((table, key) for table, key in data["touched"])
        return cls(
            data["tables"],
            {(table, key) for table, key in data["gone"]},
            set(data["missing"]),
            frozenset(data["closed"]),
            touched,
        )


def entities(value: Any, name: str = "item") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Objects of a result that say which entity they are: (table, key, their plain fields)."""
    if isinstance(value, list):
        for each in value:
            yield from entities(each, singular(name))
        return
    if not isinstance(value, dict):
        return
    keys = [
        each
        for each, held in value.items()
        if KEY.search(each) and isinstance(held, str | int) and not isinstance(held, bool)
    ]
    fields = {each: held for each, held in value.items() if plain(held)}
    if keys:
        single = len(keys) == 1
        table = (name if keys[0].lower() in ("id", "uuid") else keys[0][:-3]) if single else "+".join(sorted(keys))
        yield singular(table), "|".join(str(value[each]) for each in (keys if single else sorted(keys))), fields
    for each, held in value.items():
        if (
            isinstance(held, dict)
            and held
            and all(isinstance(row, dict) and LIKE_A_KEY.match(str(k)) for k, row in held.items())
        ):
            for key, row in held.items():
                if not any(KEY.search(inner) for inner in row):
                    yield singular(each), str(key), {inner: kept for inner, kept in row.items() if plain(kept)}
                yield from entities(row, singular(each))
        elif isinstance(held, dict | list):
            yield from entities(held, each)


def singular(name: str) -> str:
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def scalars(value: Any) -> Iterator[Scalar]:
    """Every plain value within."""
    if isinstance(value, dict):
        for each in value.values():
            yield from scalars(each)
    elif isinstance(value, list):
        for each in value:
            yield from scalars(each)
    elif plain(value):
        yield value
