"""Convert the rows of any source to trajectories: recognise the dialect, then read each row or refuse it with its line and a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from itertools import chain, islice
from typing import Any

from simia.errors import Code, UserError
from simia.formats.dialect import Dialect, RefusedRow, RowError, RowLimits, dump_json, find_fault, parse_json
from simia.terminal import write_count
from simia.trajectory import VERSION, Message, Trajectory

SAMPLE = 50
SHOWN = 200
MIXED = 0.2  # a file is mixed if more than this share of the first rows fits only another dialect
TURN_COLUMNS = ("messages", "conversations")  # columns of turns, which some data sets hold as JSON text


@dataclass(frozen=True, slots=True)
class FileRow:
    """A row of a file: its value, or the error. `shown`: its first characters for messages; empty: those of its value."""

    line: int
    index: int
    shown: str
    value: Any = None
    error: RowError | None = None

    def refused(self, error: RowError) -> RefusedRow:
        shown = self.shown if self.value is None or self.shown else dump_json(self.value)[:SHOWN]
        shown = shown.encode("utf-8", "replace").decode("utf-8")
        return RefusedRow(line=self.line, index=self.index, code=error.code, detail=error.detail, row=shown)


def convert_source(
    rows: Iterator[FileRow], place: str, name: str, dialects: Sequence[Dialect], chosen: Dialect | None
) -> Iterator[Trajectory | RefusedRow]:
    """Convert the rows of a source to trajectories. Without `chosen`, use the dialect that most of the first readable rows fit.

    `place`: name of the source in messages; `name`: its name in the provenance of a trajectory.
    """
    rows = map(open_text_columns, rows)
    others: Sequence[Dialect] = dialects
    if chosen is None:
        first = list(islice(rows, SAMPLE))
        chosen = vote_dialect(place, [row.value for row in first if row.error is None], dialects)
        rows, others = chain(first, rows), ()
    return convert_rows(rows, name, chosen, others)


def convert_rows(
    rows: Iterator[FileRow], name: str, dialect: Dialect | None, others: Sequence[Dialect] = ()
) -> Iterator[Trajectory | RefusedRow]:
    """Convert rows to trajectories. `others`: dialects that a row may be in although the caller chose `dialect`."""
    for row in rows:
        if row.error is not None or dialect is None:
            yield row.refused(row.error or RowError(Code.BAD_ROW, "the row is not a JSON object"))
            continue
        try:
            if not isinstance(row.value, dict):
                raise RowError(Code.BAD_ROW, f"the row is a JSON {type(row.value).__name__}, not an object")
            trajectory = dialect.read(row.value)
            refuse_lost_calls(row.value, trajectory, dialect, others)
            renumber_repeated_ids(trajectory.messages)
        except RowError as error:
            yield row.refused(error)
            continue
        if trajectory.provenance.source is None and dialect.name != "simia":
            trajectory.provenance.source = f"{name}:{row.line}"
        yield trajectory


def refuse_lost_calls(row: dict[str, Any], found: Trajectory, chosen: Dialect, others: Sequence[Dialect]) -> None:
    """Raise `RowError` for a row of another dialect if the chosen dialect does not read all of its calls and would lose them silently.

    A row that fits the chosen dialect is read by it, except a `simia` row, whose messages fit other dialects too.
    """
    suspects = [other for other in others if other is not chosen and (other.name == "simia" or not chosen.sniff(row))]
    for other in suspects:
        if not other.sniff({"version": VERSION, **row}):
            continue
        try:
            calls = len(list(other.read(row).calls()))
        except RowError:
            continue
        read = len(list(found.calls()))
        if calls > read:
            detail = f"this row is in the {other.name} format, not {chosen.name}: {calls - read} of its {write_count(calls, 'call')} would be lost"
            raise RowError(Code.BAD_ROW, detail)


def renumber_repeated_ids(messages: Sequence[Message]) -> None:
    """Give a call whose id an earlier, answered call has another id: ids that count from 1 in every turn. The others stay."""
    taken = {call.id for message in messages for call in message.calls}
    uses: Counter[str] = Counter()
    waiting: set[str] = set()
    renamed: dict[str, str] = {}
    for message in messages:
        if message.role == "tool" and message.call_id is not None:
            waiting.discard(message.call_id)
            message.call_id = renamed.get(message.call_id, message.call_id)
        for call in message.calls:
            given = call.id
            uses[given] += 1
            if uses[given] > 1 and given not in waiting:
                numbers = range(uses[given], uses[given] + len(taken) + 1)
                call.id = renamed[given] = next(each for n in numbers if (each := f"{given}_{n}") not in taken)
                taken.add(call.id)
            waiting.add(given)


def vote_dialect(place: str, values: list[Any], dialects: Sequence[Dialect]) -> Dialect | None:
    """Return the dialect that most rows fit, the first of `dialects` if several do; None if no row is an object.

    Raises `UserError` if no dialect fits, or if more than a share of `MIXED` of the rows fits only another dialect.
    """
    objects = [value for value in values if isinstance(value, dict)]
    if not objects:
        return None
    fits = [[dialect.sniff(row) for dialect in dialects] for row in objects]
    votes = Counter({d.name: sum(fit[n] for fit in fits) for n, d in enumerate(dialects)})
    best = max(dialects, key=lambda d: votes[d.name])
    names = ", ".join(d.name for d in dialects)
    if not votes[best.name]:
        raise UserError(
            f"{place}: unknown format: the first row has {describe_keys(objects[0])}; known formats: {names}"
        )
    at = list(dialects).index(best)
    left = [fit for fit in fits if not fit[at]]
    rival = max(dialects, key=lambda d: sum(fit[list(dialects).index(d)] for fit in left))
    count = sum(fit[list(dialects).index(rival)] for fit in left)
    if count > MIXED * len(objects):
        raise UserError(
            f"{place}: mixed formats: of the first {len(objects)} rows {votes[best.name]} are {best.name} and {count} are "
            f"{rival.name}; split the file, or name one of {best.name}, {rival.name} to refuse the rows of the other"
        )
    return best


def describe_keys(row: Mapping[str, Any]) -> str:
    keys = ", ".join(list(row)[:8]) or "no keys"
    hint = ""
    if "chosen_messages" in row or ("chosen" in row and "rejected" in row):
        hint = " (preference pairs: write the chosen messages as 'messages')"
    return f"{keys:.200}{hint}"


def open_text_columns(row: FileRow) -> FileRow:
    """Parse turns that are the JSON text of a list, as data sets of tables hold them."""
    if not isinstance(row.value, dict):
        return row
    texts = {key: row.value[key] for key in TURN_COLUMNS if isinstance(row.value.get(key), str)}
    for key, text in texts.items():
        try:
            value = parse_json(text)
        except ValueError as error:
            detail = f"{key} is a text that is not JSON: {error}"
            return FileRow(row.line, row.index, row.shown, error=RowError(Code.BAD_ROW, detail))
        row = FileRow(row.line, row.index, row.shown, {**row.value, key: value})
    return row


def number_rows(rows: Iterable[Any], limits: RowLimits, *, from_columns: bool) -> Iterator[FileRow]:
    """Number the rows of a source in memory from 1, as JSON values."""
    for number, row in enumerate(rows, start=1):
        try:
            value = make_json(row, drop_null=from_columns)
        except RowError as error:
            yield FileRow(number, number, repr(row)[:SHOWN], error=error)
            continue
        yield FileRow(number, number, "", value, find_fault(value, limits.depth))


def make_json(value: Any, *, drop_null: bool) -> Any:
    """Return a value of a table or data set as JSON: dates as text, arrays as lists.

    `drop_null`: a null member of an object is absent. Arrow gives every object of a column all the members of the column.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        members = {str(key): make_json(member, drop_null=drop_null) for key, member in value.items()}
        return {key: member for key, member in members.items() if member is not None} if drop_null else members
    if isinstance(value, list | tuple):
        return [make_json(item, drop_null=drop_null) for item in value]
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if hasattr(value, "tolist"):  # numpy
        return make_json(value.tolist(), drop_null=drop_null)
    raise RowError(Code.BAD_ROW, f"a value of type {type(value).__name__} is not JSON")
