"""A broken row of a JSON list costs no row after it, wherever it is broken and however the list is printed; memory stays bounded."""

from __future__ import annotations

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.errors import Code
from simia.formats import RefusedRow, RowLimits
from simia.formats.json_rows import CHUNK
from simia.trajectory import Trajectory


def make_row(number: int, words: int = 3) -> dict[str, Any]:
    call = {
        "id": f"c{number}",
        "type": "function",
        "function": {"name": "look", "arguments": json.dumps({"id": number})},
    }
    return {
        "id": number,
        "messages": [
            {"role": "user", "content": f'Is number {number} there? {{"x": ["größe"]}} ' + "word " * words},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": json.dumps({"id": number, "found": [{"id": 1}]})},
            {"role": "assistant", "content": "Yes."},
        ],
        "tools": [
            {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
        ],
    }


BREAKS: dict[str, Callable[[str], str]] = {
    "an opening quote is missing": lambda text: text.replace('"Yes."', 'Yes."'),
    "a closing quote is missing": lambda text: text.replace('"user"', '"user'),
    "a brace is missing": lambda text: text.replace('}, {"role"', ', {"role"', 1),
    "a bracket is missing": lambda text: text.replace("], ", ", ", 1),
    "a brace too many": lambda text: text.replace("{", "{{", 2),
    "a closing brace too many": lambda text: text + "}",
    "the row is cut": lambda text: text[: len(text) // 2],
    "the row is cut in a string": lambda text: text[: text.index("number") + 3],
    "a raw line break": lambda text: text.replace("Is number", "Is\nnumber"),
    "a word": lambda text: text.replace('"Yes."', "Yes"),
    "words in its place": lambda text: "this is no row",
    "Python": lambda text: repr(json.loads(text)),
    "nothing": lambda text: "",
}
PRINTS: dict[str, Callable[[list[str]], str]] = {
    "lines": lambda rows: "[\n" + ",\n".join(rows) + "\n]\n",
    "one line": lambda rows: "[" + ", ".join(rows) + "]",
    "dense": lambda rows: "[" + ",".join(rows) + "]",
    "no list": lambda rows: "{" + "\n".join(rows)[1:],
}


def numbers(rows: list[Trajectory | RefusedRow]) -> list[Any]:
    return [row.extra["id"] if isinstance(row, Trajectory) else None for row in rows]


@pytest.mark.parametrize("printed", PRINTS)
@pytest.mark.parametrize("broken", BREAKS)
@pytest.mark.parametrize("at", [1, 3])
def test_a_broken_row_costs_no_other(tmp_path: Path, printed: str, broken: str, at: int) -> None:
    texts = [json.dumps(make_row(n), ensure_ascii=False) for n in range(6)]
    texts[at] = BREAKS[broken](texts[at])
    path = tmp_path / "rows.json"
    path.write_text(PRINTS[printed](texts), encoding="utf-8")
    rows = list(formats.read(path))
    kept = broken == "a closing brace too many" and printed != "no list"  # it follows a row that is whole
    assert [n for n in numbers(rows) if n is not None] == [n for n in range(6) if n != at or kept]
    bad = [row for row in rows if isinstance(row, RefusedRow)]
    if broken != "nothing" or "no" not in printed:
        assert bad
    assert {row.code for row in bad} <= {Code.BAD_JSON, Code.BAD_ROW}
    assert len(bad) <= 2
    assert all(row.index == at + 1 or row.index == at + 2 for row in bad)


@pytest.mark.parametrize("broken", ["a closing quote is missing", "the row is cut", "a brace is missing"])
def test_the_first_row_may_be_broken(tmp_path: Path, broken: str) -> None:
    texts = [json.dumps(make_row(n)) for n in range(4)]
    texts[0] = BREAKS[broken](texts[0])
    path = tmp_path / "rows.json"
    path.write_text(PRINTS["lines"](texts), encoding="utf-8")
    assert numbers(list(formats.read(path))) == [None, 1, 2, 3]


def test_rows_printed_on_several_lines(tmp_path: Path) -> None:
    text = json.dumps([make_row(n) for n in range(5)], indent=2)
    broken = text.replace('"Is number 2 there?', "Is number 2 there?", 1)
    path = tmp_path / "rows.json"
    path.write_text(broken, encoding="utf-8")
    rows = list(formats.read(path))
    assert numbers(rows) == [0, 1, None, 3, 4]
    line = text[: text.index('"id": 2,')].count("\n")
    assert isinstance(rows[2], RefusedRow)
    assert (rows[2].line, rows[2].index) == (line, 3)


@pytest.mark.parametrize("seed", range(40))
def test_characters_that_are_lost_at_random(tmp_path: Path, seed: int) -> None:
    """A character is removed from every seventh row of a list that is larger than what is read at once."""
    rng = random.Random(seed)
    texts = [json.dumps(make_row(n, rng.randint(0, 400)), ensure_ascii=rng.random() < 0.5) for n in range(400)]
    hurt = set(range(rng.randint(0, 6), 400, 7))
    for n in sorted(hurt):
        at = rng.randrange(len(texts[n]))
        texts[n] = texts[n][:at] + texts[n][at + 1 :]
    path = tmp_path / "rows.json"
    path.write_text(PRINTS["dense" if seed % 2 else "lines"](texts), encoding="utf-8")
    assert path.stat().st_size > CHUNK
    whole = [n for n in range(400) if n not in hurt]
    found = [row.extra.get("id") for row in formats.read(path) if isinstance(row, Trajectory)]
    assert [n for n in whole if n not in found] == []


def test_a_list_in_a_file_of_lines_is_read_as_its_rows(tmp_path: Path) -> None:
    rows = [make_row(n) for n in range(5)]
    for text in (json.dumps(rows), json.dumps(rows, indent=1), "\n" + PRINTS["lines"](list(map(json.dumps, rows)))):
        path = tmp_path / "rows.jsonl"
        path.write_text(text, encoding="utf-8")
        assert numbers(list(formats.read(path))) == [0, 1, 2, 3, 4]


def test_objects_printed_on_several_lines_in_a_file_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(make_row(n), indent=2) for n in range(3)), encoding="utf-8")
    assert numbers(list(formats.read(path))) == [0, 1, 2]


def test_lines_in_a_json_file_lose_broken_lines_alone(tmp_path: Path) -> None:
    texts = [json.dumps(make_row(n)) for n in range(6)]
    texts[2], texts[3] = texts[2][:50], texts[3].replace('"user"', '"user')
    path = tmp_path / "rows.json"
    path.write_text("\n".join(texts), encoding="utf-8")
    rows = list(formats.read(path))
    assert numbers(rows) == [0, 1, None, None, 4, 5]
    assert [row.line for row in rows if isinstance(row, RefusedRow)] == [3, 4]


def test_a_large_list_is_streamed(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    text = json.dumps(make_row(7, 2000))
    count = 40 * CHUNK // len(text)
    path.write_text(PRINTS["dense"]([text] * count), encoding="utf-8")
    tracemalloc.start()
    read = sum(isinstance(row, Trajectory) for row in formats.read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert read == count
    assert peak < path.stat().st_size / 2


def test_a_row_that_is_too_large_costs_no_other(tmp_path: Path) -> None:
    limits = RowLimits(row_bytes=20_000)
    for words in (5000, 2 * CHUNK):
        texts = [json.dumps(make_row(n, words if n == 2 else 3)) for n in range(5)]
        path = tmp_path / "rows.json"
        path.write_text(PRINTS["dense"](texts), encoding="utf-8")
        rows = list(formats.read(path, limits=limits))
        assert numbers(rows) == [0, 1, None, 3, 4]
        assert isinstance(rows[2], RefusedRow)
        assert rows[2].code is Code.TOO_LARGE
