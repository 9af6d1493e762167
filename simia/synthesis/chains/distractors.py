"""Distractors: additional rows of the initial state that have nothing to do with the task (ScaleEnv §4.2.1).

Code makes them from existing rows, so they cost no tokens. A distractor is a copy of a row with a new key, new texts and new references;
columns that depend on each other keep their values. It refers to other distractors, or to rows that the chain does not touch. Rows that
the schema refuses are left out. The chain is executed again to check that it still has the same effect.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from simia.json_values import iterate_plain_values
from simia.state_schema import ColumnSpec, StateSchema, TableSpec
from simia.synthesis.building.state_model import describe_row_schema
from simia.synthesis.chains.chain_code import holds_value
from simia.synthesis.chains.chain_runs import PlayedChain
from simia.tool import compile_schema

MOST = 40  # distractors of a table
TRIES = 8  # attempts to make a row that the schema allows
SHORTEST = 3  # characters from which on a known text must not occur within a distractor's text
CALLS = 10  # calls of a chain whose complexity is 1
PHRASE = range(2, 5)  # words of a text that is treated as a name or a title, whose parts are recombined
TIME = re.compile(r"\d{4}-\d{2}-\d{2}.*|\d{1,2}:\d{2}.*")
DIGIT = re.compile(r"\d")
Rows = dict[str, dict[str, Any]]


def count_distractors(alpha: float, calls: int, rows: int) -> int:
    """How many distractors a table gets: alpha · complexity · rows, where the complexity is a tenth of the chain's calls."""
    return min(MOST, round(alpha * calls / CALLS * rows))


def list_touched(state: Mapping[str, Any], played: PlayedChain) -> set[str]:
    """Keys of rows that the chain's arguments or changes name."""
    named = [call.arguments for call in played.calls] + [[c["path"], c.get("new")] for c in played.changes]
    return {key for rows in state.values() if isinstance(rows, Mapping) for key in rows if holds_value(named, key)}


def order_tables(schema: StateSchema) -> list[str]:
    """Order the tables so that each follows the tables that it refers to, as far as possible."""
    needs = {
        name: {each.references for each in table.columns.values() if each.references} - {name}
        for name, table in schema.tables.items()
    }
    found: list[str] = []
    while left := [name for name in needs if name not in found]:
        found.append(next((name for name in left if needs[name] <= set(found)), left[0]))
    return found


class DistractorMaker:
    """Makes the distractors of one state, table by table."""

    def __init__(
        self,
        schema: StateSchema,
        state: Mapping[str, Any],
        played: PlayedChain,
        known: Mapping[str, Any],
        alpha: float,
        rng: random.Random,
    ) -> None:
        """
        Args:
            schema: the schema of the state.
            state: an initial state in which the chain executes.
            played: the chain as it was executed there.
            known: what the user knows; no text of a distractor may equal such a value.
            alpha: distractors for each row, at complexity 1.
            rng: source of all random choices.
        """
        self._schema, self._state, self._rng = schema, state, rng
        self._touched = list_touched(state, played)
        self._avoided = {leaf.casefold() for leaf in iterate_plain_values(known) if isinstance(leaf, str)}
        filled = [name for name in order_tables(schema) if isinstance(state.get(name), Mapping) and state[name]]
        self._numbers = {name: count_distractors(alpha, len(played.calls), len(state[name])) for name in filled}
        self._made: dict[str, Rows] = {}

    @property
    def tables(self) -> list[str]:
        """Tables that get distractors, those that others refer to first."""
        return [name for name, number in self._numbers.items() if number]

    def make_all(self) -> dict[str, Rows]:
        """Make distractors for every table: table → new rows by key."""
        for name in self.tables:
            self.keep(name, self.make_table(name))
        made, self._made = self._made, {}
        return {name: rows for name, rows in made.items() if rows}

    def make_table(self, name: str) -> Rows:
        """Make distractors of one table. They may refer to those that are kept."""
        kept = self._made.get(name, {})
        found: Rows = {}
        for place in range(self._numbers[name]):
            self._made[name] = {**kept, **found}
            if made := self.make_row(name, place):
                found[made[0]] = made[1]
        self._made[name] = kept
        return found

    def keep(self, name: str, rows: Rows) -> None:
        """Keep rows of a table, to which later ones may refer."""
        self._made[name] = {**self._made.get(name, {}), **rows}

    def make_row(self, table: str, place: int) -> tuple[str, dict[str, Any]] | None:
        """A key and a row that the schema allows; None if several tries give none. `place`: number among the table's distractors."""
        spec, rows = self._schema.tables[table], self._state[table]
        taken = {*rows, *self._made.get(table, {})}
        check = compile_schema(describe_row_schema(spec))
        for _ in range(TRIES):
            base = rows[self._rng.choice(list(rows))]
            row = {
                column: self._vary(table, spec, column, value, place)
                for column, value in base.items()
                if column in spec.columns
            }
            adapt_addresses(row, base)
            key = make_row_key(list(rows), taken, self._rng)
            if key is not None and check.valid(row) and self._is_new(table, spec, row):
                return key, row
        return None

    def _vary(self, table: str, spec: TableSpec, column: str, value: Any, place: int) -> Any:
        each = spec.columns[column]
        if each.references is not None:
            return self._refer(each.references, value, place)
        if isinstance(value, str) and not is_fixed_text(each, value):
            others = [row[column] for row in self._state[table].values() if isinstance(row.get(column), str)]
            return vary_text(value, others, self._rng)
        if each.unique and isinstance(value, int) and not isinstance(value, bool):
            return self._rng.randint(1, 10 ** max(2, len(str(abs(value)))) - 1)
        return value

    def _refer(self, table: str, value: Any, place: int) -> Any:
        """Return equally many references to distractors; without any, to rows that the chain does not touch."""
        own = list(self._made.get(table, {}))
        free = own or [key for key in self._state.get(table, {}) if key not in self._touched]
        if isinstance(value, list) and free:
            return self._rng.sample(free, min(len(value), len(free)))
        if isinstance(value, str) and free:
            return free[place % len(free)] if own else self._rng.choice(free)
        return value

    def _is_new(self, table: str, spec: TableSpec, row: Mapping[str, Any]) -> bool:
        """Whether values of unique columns are new, and no free text equals or contains a value that the user knows."""
        others = [*self._state[table].values(), *self._made[table].values()]
        for column, each in spec.columns.items():
            if each.unique and any(other.get(column) == row.get(column) for other in others):
                return False
            value = row.get(column)
            if isinstance(value, str) and not is_fixed_text(each, value):
                text = value.casefold()
                if any(text == known or (len(known) >= SHORTEST and known in text) for known in self._avoided):
                    return False
        return True


def is_fixed_text(column: ColumnSpec, value: str) -> bool:
    """Whether a text must stay, since other columns may depend on it: it is a time, or its column allows only a few values."""
    return "enum" in str(column.values) or "const" in column.values or bool(TIME.fullmatch(value))


def vary_text(value: str, others: Sequence[str], rng: random.Random) -> str:
    """A text of the same kind: parts of two texts of the column, or the same text with other digits."""
    if "@" in value:
        local, _, domain = value.partition("@")
        return f"{DIGIT.sub('', local)}{rng.randint(10, 999)}@{domain}"
    if DIGIT.search(value):
        return DIGIT.sub(lambda _: str(rng.randint(0, 9)), value)
    words, other = value.split(), rng.choice(list(others)).split()
    if all(len(each) in PHRASE and each[-1][0].isupper() for each in (words, other)):
        return " ".join([*words[: (len(words) + 1) // 2], *other[len(other) // 2 + len(other) % 2 :]])
    return rng.choice(list(others))


def adapt_addresses(row: dict[str, Any], base: Mapping[str, Any]) -> None:
    """Replace the old name in an e-mail address by the new name of the row, if the address contains the old one."""
    names = {
        write_slug(old): write_slug(row[column])
        for column, old in base.items()
        if isinstance(old, str) and column in row
    }
    for column, value in row.items():
        if isinstance(value, str) and "@" in value:
            local, _, domain = value.partition("@")
            for old, new in names.items():
                local = re.sub(rf"^{re.escape(old)}(?=\d*$)", new, local) if old else local
            row[column] = f"{local}@{domain}"


def write_slug(text: Any) -> str:
    """The words of a name as an address has them."""
    return ".".join(re.findall(r"[a-z]+", str(text).casefold()))


def make_row_key(keys: Sequence[str], taken: Collection[str], rng: random.Random) -> str | None:
    """Return a free key in the form of the others; None if hardly any is left."""
    for _ in range(50):
        model = rng.choice(list(keys))
        key = (
            DIGIT.sub(lambda _: str(rng.randint(0, 9)), model)
            if DIGIT.search(model)
            else f"{model}-{rng.randint(2, 99)}"
        )
        if key not in taken:
            return key
    return None


def add_rows(state: Mapping[str, Any], rows: Mapping[str, Rows]) -> dict[str, Any]:
    """The state with further rows after its own."""
    return {
        name: {**table, **rows.get(name, {})} if isinstance(table, Mapping) else table for name, table in state.items()
    }
