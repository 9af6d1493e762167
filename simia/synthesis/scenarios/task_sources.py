"""Read task texts from any source: packs, trajectories in every dialect, rows with a text, lines (EnvScaler's existing tasks).

A row that cannot be read does not affect the others: such rows are counted, and the first ones are named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia import formats, search_path
from simia.errors import Code, UserError
from simia.formats.dialect import RefusedRow, RowLimits
from simia.formats.json_rows import open_text
from simia.formats.row_conversion import FileRow
from simia.formats.row_files import SUFFIXES, open_rows
from simia.pack import Pack
from simia.terminal import write_count
from simia.trajectory import Trajectory

FIELDS = ("task", "instruction", "query", "question", "prompt")
LINES = (".txt", ".md", ".text")
DIALECTS = (*formats.SUITE_DIALECTS.values(), *formats.DIALECTS.values())
NAMED = 5  # unreadable rows that messages name


@dataclass(slots=True)
class TaskTexts:
    """The texts of a source, each once, and the rows that gave none."""

    texts: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """`FILE:LINE: why` for each row without a text."""
    repeated: int = 0
    """Rows whose text an earlier row has."""

    def describe(self) -> list[str]:
        """Lines for the user: how many tasks were read, and the first rows that were not."""
        more = f", {write_count(self.repeated, 'repeated one')} left out" if self.repeated else ""
        lines = [f"{write_count(len(self.texts), 'task')} read{more}"]
        if self.skipped:
            lines.append(f"{write_count(len(self.skipped), 'row')} without a task; the first:")
        return [*lines, *(f"  {line}" for line in self.skipped[:NAMED])]


def is_task_source(source: str) -> bool:
    """Whether `source` names a file, a pack or a data set of tasks; otherwise it is a domain in words.

    Raises `UserError` for a path that does not exist.
    """
    if formats.is_hub_name(source) or search_path.find_named_resource("seeds", source):
        return True
    if not source.strip():
        raise UserError("source is empty: give a domain in words, or a file of tasks")
    path = Path(source).expanduser()
    if path.is_dir():
        return (path / "pack.yaml").is_file() or formats.is_data_set(path)
    if path.exists():
        return True
    meant_as_path = path.suffix.lower() in (*SUFFIXES, *LINES) or search_path.looks_like_path(source)
    if meant_as_path or ("/" in source and " " not in source):
        raise UserError(f"no such file or folder: {source!r}; give a file of tasks, or a domain in words")
    return False


def read_task_texts(source: str | Path, *, text_field: str | None = None, limit: int | None = None) -> TaskTexts:
    """Read the task texts of a source in its order.

    Args:
        source: A pack, a data set, or a file of trajectories (the user's first message is the text), of rows, or of lines.
        text_field: The field of a row that holds its text. None: the first of `FIELDS` that a row has.
        limit: How many texts are read at most.

    Raises:
        UserError: The source cannot be read, or none of its rows has a text.
    """
    found = TaskTexts()
    seen: set[str] = set()
    keys: list[str] = []
    for place, value in iterate_task_rows(source, as_fields=text_field is not None):
        text = find_task_text(value, text_field)
        if isinstance(text, RefusedRow):
            found.skipped.append(f"{place}: {text.detail}")
            keys = keys or (list(value) if isinstance(value, Mapping) else [])
        elif (plain := " ".join(text.split())) in seen:
            found.repeated += 1
        else:
            seen.add(plain)
            found.texts.append(text.strip())
            if len(found.texts) == limit:
                break
    if not found.texts:
        raise UserError(explain_no_texts(str(source), text_field, keys, found.skipped))
    return found


def explain_no_texts(source: str, text_field: str | None, keys: list[str], skipped: list[str]) -> str:
    if keys:
        looked = repr(text_field) if text_field else ", ".join(FIELDS)
        return f"{source}: no row has a text under {looked}; its first row has {', '.join(keys[:8])}: name the field with --set discovery.field=NAME"
    return f"{source} has no tasks" + (
        f": {skipped[0]}" if skipped else "; give a file with a task in each row or line"
    )


def iterate_task_rows(source: str | Path, *, as_fields: bool) -> Iterator[tuple[str, Any]]:
    """(place, value) of each row: a text, a JSON value, a `RefusedRow`, or a trajectory unless rows are taken `as_fields`."""
    named = None if isinstance(source, Path) else search_path.find_named_resource("seeds", source)
    path = named or Path(source).expanduser()
    if formats.is_hub_name(source) or (not named and formats.is_data_set(path)):
        rows = formats.open_data_set(source).rows(RowLimits())
        yield from ((f"{source}:{row.line}", read_task_row(row, as_fields)) for row in rows)
    elif path.is_dir() or path.name == "pack.yaml":
        yield from iterate_pack(Pack.load(path))
    elif path.suffix.lower() in SUFFIXES:
        yield from ((f"{path.name}:{row.line}", read_task_row(row, as_fields)) for row in open_rows(path, RowLimits()))
    elif path.suffix.lower() in (*LINES, ""):
        yield from iterate_lines(path)
    else:
        raise UserError(f"{path}: tasks are read from packs, {', '.join(SUFFIXES)} and {LINES[0]} files")


def iterate_pack(pack: Pack) -> Iterator[tuple[str, Any]]:
    """Yield the tasks of a pack; if it has none, its seeds."""
    for task in pack.tasks:
        first = task.opening or task.instruction or next((goal.query for goal in task.goals), "")
        yield f"{pack.name}: task {task.id}", {"task": first}
    if not pack.tasks:
        yield from ((f"{pack.name}: seed {number}", seed) for number, seed in enumerate(pack.seeds, 1))


def iterate_lines(path: Path) -> Iterator[tuple[str, Any]]:
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            if text := line.strip():
                broken = any("\ud800" <= letter <= "\udfff" or letter == "\0" for letter in text)
                yield f"{path.name}:{number}", refuse_row("it is not UTF-8 text") if broken else text


def read_task_row(row: FileRow, as_fields: bool) -> Any:
    """Return the value of a row; a trajectory if it is one in any dialect."""
    if row.error is not None:
        return row.refused(row.error)
    if not as_fields and isinstance(row.value, dict) and any(dialect.sniff(row.value) for dialect in DIALECTS):
        return next(formats.read_rows([row.value]))
    return row.value


def refuse_row(detail: str) -> RefusedRow:
    return RefusedRow(line=1, index=1, code=Code.BAD_ROW, detail=detail)


def find_task_text(value: Any, text_field: str | None) -> str | RefusedRow:
    """The text of a row, or why it has none."""
    if isinstance(value, RefusedRow):
        return value
    if isinstance(value, Trajectory):
        first = next((message.text for message in value.messages if message.role == "user"), "")
        return first if first.strip() else refuse_row("the trajectory has no message of the user")
    if isinstance(value, Mapping):
        names = FIELDS if text_field is None else (text_field,)
        texts = (value[name] for name in names if isinstance(value.get(name), str))
        value = next((text for text in texts if text.strip()), None)
        if value is None:
            return refuse_row(f"it has no text under {' or '.join(names)}")
    return value if isinstance(value, str) and value.strip() else refuse_row("it is neither a text nor an object")
