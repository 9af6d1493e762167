"""The entities in a simulated world's answers, by table and key, and contradictions of a new answer with them.

A model that simulates tools forgets: a pending order is shipped two answers later, or an id that did not exist appears. So the
entities of every answer are kept here. They come from the changes that the model reports, as keyed upserts (small models miscount
the positions of a JSON Patch), and from the results themselves. A new answer is compared with them before it is returned.

Only clear cases count. An entity is an object with one identifying field, or with several taken together. Nested objects are
entities of their own; without an identifying field, they are fields of their parent. An object under another noun than its
identifying field's (a refund that names its order) is an entity of that noun, and says nothing about the order. A field that
differs from an earlier answer is a contradiction if the call only reads, or if no change of the field was reported.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from simia.prompt_quoting import escape_unprintable, quote_label
from simia.trajectory import write_compact_json

Scalar = str | int | float | bool | None
READS = re.compile(
    r"^(get|list|find|search|read|show|check|look|look_up|lookup|count|calculate|view|query|describe|fetch)(_|$)", re.I
)
# Changes of what is there already.
CHANGES_KNOWN = re.compile(
    r"^(cancel|delete|remove|return|exchange|refund|close|reschedule|archive|withdraw|complete|finish)(_|$)", re.I
)
MISSING = re.compile(
    r"not found|no such|does(?: not|n't) exist|unknown|cannot be found|there is no|no .{1,40} found", re.I
)
KEY = re.compile(r"(^id$|_id$|^uuid$)", re.I)
LIKE_A_KEY = re.compile(r"^(?=.*\d)[\w.@-]{2,}\Z")
# A date, an amount or a phone number has no letter. An address of mail may be searched for before it is registered.
NAMED_KEY = re.compile(r"^(?!\d{4}-\d\d-\d\d)(?=.*\d)(?=.*[^\W\d_])[\w.-]{2,}\Z")
VOLATILE = re.compile(r"(time|timestamp|_at|age|elapsed|now|count|total_results|page)$", re.I)
SHOWN = 6_000  # characters of the ledger in a prompt
MOST_NESTED = 400  # characters of a list or an object that is kept as a field
DATE = re.compile(r"\d{4}-\d\d-\d\d")
GENERIC = {"item", "result", "data", "row", "entry", "record", "match", "hit", "value", "object", "list", "detail"}


class Entity(NamedTuple):
    """An object of a result. `names`: the entity that it only refers to, as a refund refers to its order."""

    table: str
    key: str
    fields: dict[str, Any]
    names: tuple[str, str] | None = None


@dataclass
class EntityLedger:
    """Tables of entities: table → key → field → value. `closed`: tables that are known completely (`knowledge: state`)."""

    tables: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    gone: set[tuple[str, str]] = field(default_factory=set)
    """(table, key) of removed entities."""
    missing: set[str] = field(default_factory=set)
    """Keys that do not exist according to an answer."""
    closed: frozenset[str] = frozenset()
    touched: dict[tuple[str, str], None] = field(default_factory=dict)
    """Entities that answers mentioned, the most recent one last."""

    @classmethod
    def from_state(cls, state: Any) -> EntityLedger:
        """Take all tables of a pack's state: objects of objects."""
        made = cls()
        names = []
        for name, rows in state.items() if isinstance(state, dict) else ():
            if isinstance(rows, dict) and rows and all(isinstance(row, dict) for row in rows.values()):
                names.append(to_singular(name))
                made.tables[to_singular(name)] = {str(key): dict(row) for key, row in rows.items()}
        made.closed = frozenset(names)
        return made

    def copy(self) -> EntityLedger:
        """Copy it; values are shared, since no field's value is changed in place."""
        tables = {table: {key: dict(row) for key, row in rows.items()} for table, rows in self.tables.items()}
        return EntityLedger(tables, set(self.gone), set(self.missing), self.closed, dict(self.touched))

    def put(self, table: str, key: str, fields: dict[str, Any]) -> None:
        row = self.tables.setdefault(table, {}).setdefault(key, {})
        row.update(flatten_fields(fields))
        self.touched.pop((table, key), None)
        self.touched[table, key] = None
        self.gone.discard((table, key))
        self.missing.discard(key)

    def apply(self, changes: list[dict[str, Any]]) -> None:
        """Apply keyed upserts; `set: null` removes the entity."""
        for change in changes:
            table, key, fields = to_singular(change["table"]), change["key"], change["set"]
            if fields is None:
                self.tables.get(table, {}).pop(key, None)
                self.touched.pop((table, key), None)
                self.gone.add((table, key))
            else:
                self.put(table, key, fields)
                self.missing.difference_update(iterate_scalars(fields))

    def take(
        self, name: str, arguments: dict[str, Any], content: Any, *, failed: bool, changes: list[dict[str, Any]]
    ) -> None:
        """Record an answer: its entities are true from now on."""
        self.apply(changes)
        if failed:
            text = content if isinstance(content, str) else write_compact_json(content)
            if MISSING.search(text):
                self.missing |= {key for key in iterate_keys(arguments) if key in text and NAMED_KEY.match(key)}
            return
        self.missing.difference_update(iterate_scalars(content))
        reads = READS.match(name) is not None
        for each in self._find_entities(name, content):
            self.put(each.table, each.key, each.fields)
            if each.names is not None and not reads:
                self._doubt(*each.names, each.fields)

    def _find_entities(self, tool: str, content: Any) -> Iterator[Entity]:
        """Yield the result's entities. If the tool may change something, an object under another noun with no fields beyond those of the
        entity that it refers to counts as that entity: the result of `change_address` shows the order."""
        reads = READS.match(tool) is not None
        for each in iterate_entities(content, extract_noun(tool)):
            known = self.tables.get(each.names[0], {}).get(each.names[1], {}) if each.names and not reads else {}
            said = {name for name in each.fields if not KEY.search(name)}
            yield Entity(*each.names, each.fields) if each.names and said <= known.keys() else each

    def _doubt(self, table: str, key: str, fields: dict[str, Any]) -> None:
        """Forget the fields of an entity that contradict the result of a change under another noun, which may have changed them."""
        row = self.tables.get(table, {}).get(key, {})
        for name, value in fields.items():
            if name in row and not are_compatible(row[name], value):
                del row[name]

    def find_contradictions(
        self, name: str, arguments: dict[str, Any], content: Any, *, failed: bool, changes: list[dict[str, Any]]
    ) -> list[str]:
        """Describe where an answer contradicts earlier ones, for the model that is asked again; empty if nowhere."""
        if failed:
            return []
        found = []
        made = {change["key"] for change in changes if change["set"] is not None}
        reads = READS.match(name) is not None
        needed = reads or CHANGES_KNOWN.match(name) is not None  # another change may create it
        for value in iterate_keys(arguments) if needed else ():
            if value in self.missing - made:
                found.append(f"{name} succeeded for {value!r}, which an earlier answer said does not exist")
        texts = [(each, value) for each, value in arguments.items() if isinstance(value, str) and each.endswith("_id")]
        for each, value in texts:
            if (each[:-3], value) in self.gone and value not in made:
                found.append(f"{name} succeeded for {each} {value!r}, which was taken away before")
        for each, value in texts:
            if each[:-3] in self.closed and value not in made and value not in self.tables.get(each[:-3], {}):
                found.append(f"{name} succeeded for {each} {value!r}, and there is none such")
        for each, value in arguments.items():
            told = content.get(each) if isinstance(content, dict) else None
            both = told is not None and is_scalar(told) and is_scalar(value)
            if KEY.search(each) and both and str(told) != str(value):
                found.append(f"{name} was asked about {each} {value!r}, and the answer is about {told!r}")
        # A value that a change was asked to set is no contradiction.
        wanted = [] if reads else list(iterate_scalars(arguments))
        changed = {(change["key"], each) for change in changes for each in change["set"] or ()}
        for table, key, row, _ in self._find_entities(name, content):
            if (table, key) in self.gone and key not in made:
                found.append(f"the answer shows {key!r}, which was taken away before")
                continue
            known = self.tables.get(table, {}).get(key, {})
            for each, value in row.items():
                was = known.get(each, value)
                expected = are_compatible(was, value) or value in wanted or self._said(key, each, value)
                if expected or VOLATILE.search(each):
                    continue
                if reads or (key, each.partition(".")[0]) not in changed:
                    found.append(f"{each} of {key!r} was {was!r} before and is {value!r} in this answer")
        return found[:5]

    def _said(self, key: str, name: str, value: Any) -> bool:
        """Return whether another row that refers to this entity has the value. `remove_item`, for example, returns the order's new
        total with the item."""
        rows = (
            row for table in self.tables.values() for of, row in table.items() if of != key and key in of.split("|")
        )
        return any(row.get(name) == value for row in rows)

    def render(self, room: int = SHOWN) -> str:
        """Write one line for each entity, the last touched first, up to `room` characters."""
        lines: list[str] = []
        for table, key in reversed(self.touched):
            row = escape_unprintable(write_compact_json(self.tables[table][key]))
            line = f"{quote_label(table)} {quote_label(key)}: {row}"
            room -= len(line) + 1
            if room < 0:
                lines.append(f"({len(self.touched) - len(lines)} more)")
                break
            lines.append(line)
        lines += [f"does not exist: {quote_label(value)}" for value in sorted(self.missing)[:20]]
        return "\n".join(lines)

    def dump(self) -> dict[str, Any]:
        """Return the ledger as JSON values, for snapshots."""
        return {
            "tables": self.tables, "gone": sorted(list(place) for place in self.gone), "missing": sorted(self.missing),
            "closed": sorted(self.closed), "touched": [list(place) for place in self.touched],
        }  # fmt: skip

    @classmethod
    def load(cls, data: dict[str, Any]) -> EntityLedger:
        touched: dict[tuple[str, str], None] = dict.fromkeys((table, key) for table, key in data["touched"])
        return cls(
            data["tables"],
            {(table, key) for table, key in data["gone"]},
            set(data["missing"]),
            frozenset(data["closed"]),
            touched,
        )


def iterate_entities(value: Any, name: str = "item") -> Iterator[Entity]:
    """Yield the objects of a result that identify an entity. `name`: the field that holds them."""
    for table, key, row, names in list_entity_rows(value, name):
        yield Entity(table, key, flatten_fields(row), names)


EntityRow = tuple[str, str, dict[str, Any], tuple[str, str] | None]
CONTAINER = (dict, list)


def list_entity_rows(value: Any, name: str = "item", shapes: set[tuple[str, ...]] | None = None) -> list[EntityRow]:
    """Return the objects of a result that identify an entity, each as (table, key, the object, the entity that it refers to).
    The names of every object's fields are added to `shapes`."""
    found: list[EntityRow] = []
    if isinstance(value, CONTAINER):
        collect_entity_rows(value, name, "", found, set() if shapes is None else shapes)
    return found


def collect_entity_rows(
    value: Any, name: str, holder: str, found: list[EntityRow], shapes: set[tuple[str, ...]]
) -> None:
    """Append the entities of a list or an object. `holder`: the key of their parent."""
    if isinstance(value, list):
        name = to_singular(name)
        for each in value:
            if isinstance(each, CONTAINER):
                collect_entity_rows(each, name, holder, found, shapes)
        return
    shape = tuple(value)
    shapes.add(shape)
    named = select_keys(shape)
    if keys := named and [
        each for each in named if isinstance(value[each], (str, int)) and not isinstance(value[each], bool)
    ]:
        if len(keys) == 1:
            table, refers_to = name_table(keys[0], name)
            key = str(value[keys[0]])
            place = (refers_to, key) if refers_to else None
            key = f"{holder}|{key}" if place and holder else key
            found.append((table, key, value, place))
        else:
            key = "|".join(str(value[each]) for each in sorted(keys))
            found.append(("+".join(sorted(keys)), key, value, None))
        holder = key
    for each, held in value.items():
        if not isinstance(held, CONTAINER):
            continue
        if (
            isinstance(held, dict)
            and held
            and isinstance(next(iter(held.values())), dict)
            and all(isinstance(row, dict) and LIKE_A_KEY.match(str(k)) for k, row in held.items())
        ):
            for key, row in held.items():
                if not has_key(row):
                    found.append((to_singular(each), str(key), row, None))
                collect_entity_rows(row, to_singular(each), holder, found, shapes)
        else:
            collect_entity_rows(held, each, holder, found, shapes)


def flatten_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Return scalar fields, those of nested objects without identifier as `address.city`, and short lists without entities."""
    found: dict[str, Any] = {}
    for name, held in row.items():
        if is_scalar(held):
            found[name] = held
        elif isinstance(held, dict) and not has_key(held) and all(map(is_scalar, held.values())):
            found |= {f"{name}.{inner}": value for inner, value in held.items()}
        elif (
            isinstance(held, list)
            and not any(isinstance(each, dict) and has_key(each) for each in held)
            and len(write_compact_json(held)) <= MOST_NESTED
        ):
            found[name] = held
    return found


def are_compatible(was: Any, value: Any) -> bool:
    """Return whether two values of a field can both be true: equal, a day and a time on it, or not comparable."""
    if was == value or not (is_scalar(was) and is_scalar(value)):
        return True
    if isinstance(was, str) and isinstance(value, str):
        short, long = sorted((was, value), key=len)
        return DATE.fullmatch(short) is not None and long.startswith(short)
    return False


def extract_noun(tool: str) -> str:
    """Return the noun in a tool's name: `get_refund` → refund; `item` for a name of one word."""
    words = tool.split("_", 1)
    return to_singular(words[1]) if len(words) == 2 and words[1] else "item"


def has_key(row: dict[str, Any]) -> bool:
    return bool(select_keys(tuple(row)))


@lru_cache(maxsize=4096)
def name_table(key: str, name: str) -> tuple[str, str]:
    """Return the table of an object with one identifying field, and the table that the field refers to, if that is another one.
    `name`: the field that holds the object."""
    under = to_singular(name)
    if key.lower() in ("id", "uuid"):
        return under, ""
    table = to_singular(key[:-3])
    return (table, "") if under in GENERIC or table in under.split("_") else (under, table)


@lru_cache(maxsize=4096)
def select_keys(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of identifying fields. Results are cached, since all rows of a list have the same names."""
    return tuple(name for name in names if KEY.search(name))


def to_singular(name: str) -> str:
    return name[:-1] if name.endswith("s") and not name.endswith("ss") else name


def is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))  # a bool is an int


def list_scalars(value: Any) -> list[Scalar]:
    """Return every scalar in a value: `iterate_scalars` at half its cost."""
    found: list[Scalar] = []
    waiting = [value]
    while waiting:
        held = waiting.pop()
        for each in held.values() if isinstance(held, dict) else held if isinstance(held, list) else (held,):
            if isinstance(each, CONTAINER):
                waiting.append(each)
            elif is_scalar(each):
                found.append(each)
    return found


def iterate_keys(value: Any, name: str = "") -> Iterator[str]:
    """Yield every text of arguments whose name is one of identifying fields, such as `order_id` and `order_ids`."""
    if isinstance(value, CONTAINER):
        for each, held in value.items() if isinstance(value, dict) else ((to_singular(name), held) for held in value):
            yield from iterate_keys(held, each)
    elif isinstance(value, str) and KEY.search(name):
        yield value


def iterate_scalars(value: Any) -> Iterator[Scalar]:
    """Yield every scalar in a value."""
    if isinstance(value, CONTAINER):
        for each in value.values() if isinstance(value, dict) else value:
            if isinstance(each, CONTAINER):
                yield from iterate_scalars(each)
            elif is_scalar(each):
                yield each
    elif is_scalar(value):
        yield value
