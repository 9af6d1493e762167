"""Select the rows of a state that a simulator sees: those nearest to the call, up to a limit.

Only tables that the called tool reads or writes are shown. Their rows come in this order: rows that an argument names by their key or by a
value; rows that refer to these or are referred to by them (a value that is another row's key, at any depth), and so on; rows that share a
word with the arguments; all others. Rows are added while the limit allows, and rows whose key is an argument are always shown. The
number of omitted rows is shown for each table.

Prompts are made for every call of thousands of episodes, so the index of a table is cached by object identity: a change creates new
objects only for the tables and rows that it changes.
"""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from simia.keyed_changes import find_place, list_table_names, list_unique_keys
from simia.prompt_quoting import escape_unprintable, quote_label
from simia.state_schema import StateSchema, TableSpec

FEW = 20  # most rows that an argument's value may name; a value of more rows, such as a status, is not specific
WORD = re.compile(r"\w{3,}")
TABLES, ROWS = 512, 16_384  # tables and rows of which the texts are kept


@dataclass(frozen=True, slots=True)
class StateView:
    """The text of a state for a prompt, with the numbers of rows that it shows and omits."""

    text: str
    shown: int
    left_out: int


@dataclass(frozen=True, slots=True, eq=False)
class ShownRow:
    """A row of a table, or a value without rows (`key` None)."""

    table: str
    key: str | None
    line: str
    texts: frozenset[str]
    """All texts in it, nested keys included, in lower case."""
    all_texts: str
    """The same as one text, for the search of words."""


@dataclass(frozen=True, slots=True)
class TableIndex:
    """The rows of a table, by key and by every text in them."""

    value: Any
    rows: list[ShownRow]
    by_key: Mapping[str, list[ShownRow]]
    by_text: Mapping[str, list[ShownRow]]


class StateRenderer:
    """Writes the states of one pack for prompts."""

    def __init__(self, schema: StateSchema | None, limit: int) -> None:
        """`limit`: characters of the shown rows."""
        self._schema, self._limit = schema or StateSchema(), limit
        self._tables: OrderedDict[tuple[str, int], TableIndex] = OrderedDict()
        self._rows: OrderedDict[tuple[str, str, int], tuple[Any, ShownRow]] = OrderedDict()

    def render(
        self,
        state: Mapping[str, Any],
        tables: Collection[str] | None = None,
        arguments: Mapping[str, Any] | None = None,
    ) -> StateView:
        """Write a state, one row on a line. `tables`: those that the call reads or writes; None: unknown, so all. `arguments`: the call's."""
        names = list_table_names(state, self._schema)
        found = {name: self._read_table(state, name) for name in names if tables is None or name in tables}
        chosen, room = set[ShownRow](), self._limit
        given = frozenset(iterate_texts(list((arguments or {}).values())))
        named = {row for text in given for index in found.values() for row in index.by_key.get(text, ())}
        for row in iterate_nearest(list(found.values()), given, named):
            room -= len(row.line) + 1
            if room >= 0 or row in named:
                chosen.add(row)
            if room < 0 and named <= chosen:
                break
        lines = [row.line for index in found.values() for row in index.rows if row in chosen]
        for name, index in found.items():
            if left_out := sum(row not in chosen for row in index.rows):
                lines.append(f"({left_out} more rows of {quote_label(name)} are not shown)")
        if others := [name for name in names if name not in found]:
            lines.append(f"(the call touches no other tables: {', '.join(map(quote_label, others))})")
        total = sum(len(index.rows) for index in found.values())
        return StateView("\n".join(lines) or "(none)", len(chosen), total - len(chosen))

    def _read_table(self, state: Any, name: str) -> TableIndex:
        steps, spec = find_place(name, self._schema)
        value = state
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        place = (name, id(value))
        held = self._tables.get(place)
        if held is not None and held.value is value:
            self._tables.move_to_end(place)
            return held
        by_key, by_text = defaultdict[str, list[ShownRow]](list), defaultdict[str, list[ShownRow]](list)
        rows = [self._read_row(name, key, row) for key, row in list_keyed_rows(value, spec)]
        for row in rows:
            if row.key is not None:
                by_key[row.key.casefold()].append(row)
            for text in row.texts:
                by_text[text].append(row)
        found = self._tables[place] = TableIndex(value, rows, dict(by_key), dict(by_text))
        if len(self._tables) > TABLES:
            self._tables.popitem(last=False)
        return found

    def _read_row(self, table: str, key: str | None, value: Any) -> ShownRow:
        place = (table, key or "", id(value))
        held = self._rows.get(place)
        if held is not None and held[0] is value:
            return held[1]
        label = quote_label(table) if key is None else f"{quote_label(table)} {quote_label(key)}"
        body = escape_unprintable(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode())
        texts = frozenset(iterate_texts(value))
        row = ShownRow(table, key, f"{label}: {body}", texts, "\n".join(texts))
        self._rows[place] = (value, row)
        if len(self._rows) > ROWS:
            self._rows.popitem(last=False)
        return row


def list_keyed_rows(value: Any, spec: TableSpec | None) -> Iterable[tuple[str | None, Any]]:
    """Return (key, row) pairs of a table. A value without rows, or an empty table, gives one pair with the key None."""
    if isinstance(value, dict) and value:
        return value.items()
    if isinstance(value, list) and value:
        return zip(
            list_unique_keys(value, spec.key if spec else None) or map(str, range(len(value))), value, strict=True
        )
    return [(None, value)]


def iterate_texts(value: Any) -> Iterator[str]:
    """Texts and whole numbers of a JSON value, nested keys included, in lower case."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key).casefold()
            yield from iterate_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_texts(inner)
    elif isinstance(value, str):
        yield value.casefold()
    elif isinstance(value, int) and not isinstance(value, bool):
        yield str(value)


def iterate_nearest(
    tables: Sequence[TableIndex], given: frozenset[str], named: Collection[ShownRow]
) -> Iterator[ShownRow]:
    """Yield all rows, the nearest to a call first. `given`: the texts of its arguments; `named`: the rows whose key is one of these."""
    seen = dict.fromkeys(row for index in tables for row in index.rows if row in named)
    for text in sorted(given):
        found = [row for index in tables for row in index.by_text.get(text, ())]
        if len(found) <= FEW:
            seen |= dict.fromkeys(found)
    yield from list(seen)
    queue = deque(seen)
    while queue:
        row = queue.popleft()
        linked = [
            each for index in tables for text in sorted(row.texts & index.by_key.keys()) for each in index.by_key[text]
        ]
        if row.key is not None:  # rows that refer to this one
            linked += [each for index in tables for each in index.by_text.get(row.key.casefold(), ())]
        for each in linked:
            if each not in seen:
                seen[each] = None
                queue.append(each)
                yield each
    words = {word for text in given for word in WORD.findall(text)}
    rest = [row for index in tables for row in index.rows if row not in seen]
    yield from sorted(rest, key=lambda row: not any(word in row.all_texts for word in words))
