"""Files: one bad row costs no other row, and says its line; the dialect is made out; the user's mistakes are one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.errors import Code, UserError
from simia.formats import RefusedRow, RowLimits
from simia.pack import Pack
from simia.trajectory import Trajectory

GOOD = {"conversations": [{"from": "human", "value": "hi ü"}, {"from": "gpt", "value": "hello"}]}
GOOD_TEXT = json.dumps(GOOD, ensure_ascii=False)


def deep(levels: int) -> str:
    return '{"conversations": [], "x": ' + "[" * levels + "]" * levels + "}"


BAD: list[tuple[bytes, Code, str]] = [
    (b'{"conversations": [}', Code.BAD_JSON, "column"),
    (b'{"conversations": [], "x": NaN}', Code.BAD_JSON, "nan"),
    (b'{"conversations": [], "x": -Infinity}', Code.BAD_JSON, "inf"),
    (b'{"conversations": [], "x": 1e999}', Code.BAD_JSON, "inf"),
    (b'{"conversations": [], "x": "\\u0000"}', Code.BAD_ROW, "NUL"),
    (b'{"conversations": [], "x": "a\x00b"}', Code.BAD_JSON, "control character"),
    (b'{"conversations": [], "\\ud83d": 1}', Code.BAD_JSON, "surrogate"),
    ('{"conversations": [], "x": "größe"}'.encode("latin-1"), Code.BAD_JSON, "save the file as UTF-8"),
    ('{"conversations": [], "x": "返却日"}'.encode("shift_jis"), Code.BAD_JSON, "save the file as UTF-8"),
    (deep(200).encode(), Code.TOO_LARGE, "deeper than 100"),
    (deep(100_000).encode(), Code.TOO_LARGE, "deep"),
    (b'{"conversations": [], "x": ' + b"9" * 5000 + b"}", Code.BAD_JSON, "digits"),
    (b'{"conversations": [{"from": "robot", "value": ""}]}', Code.UNKNOWN_ROLE, "robot"),
    (b'{"conversations": [], "x": "' + b"y" * 600_000 + b'"}', Code.TOO_LARGE, "500000"),
    (b"[]", Code.BAD_ROW, "list"),
    (b"17", Code.BAD_ROW, "int"),
]
LIMITS = RowLimits(row_bytes=500_000)
IDS = [f"{n}-{code}" for n, (_, code, _) in enumerate(BAD)]


def refused(rows: list[Trajectory | RefusedRow]) -> list[RefusedRow]:
    return [row for row in rows if isinstance(row, RefusedRow)]


@pytest.mark.parametrize(("bad", "code", "said"), BAD, ids=IDS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
def test_a_bad_line_costs_no_other_line(tmp_path: Path, bad: bytes, code: Code, said: str, mark: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    good = GOOD_TEXT.encode()
    path.write_bytes(mark + good + b"\n\n" + bad + b"\r\n" + good + b"\n" + bad)
    rows = list(formats.read(path, limits=LIMITS))
    assert [type(row) for row in rows] == [Trajectory, RefusedRow, Trajectory, RefusedRow]
    assert [(row.line, row.index, row.code) for row in refused(rows)] == [(3, 2, code), (5, 4, code)]
    assert said in refused(rows)[0].detail
    assert all(len(row.row) <= 200 for row in refused(rows))
    assert bad[:20].decode("utf-8", "replace") == refused(rows)[0].row[:20]
    json.dumps(refused(rows)[0].model_dump(mode="json")).encode()


@pytest.mark.parametrize(("bad", "code", "said"), BAD, ids=IDS)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "bom"])
def test_a_bad_row_of_a_list_costs_no_other_row(tmp_path: Path, bad: bytes, code: Code, said: str, mark: bytes) -> None:
    if bad == b'{"conversations": [}':
        bad, said = b'{"conversations": [], "x": tru, }', "column"
    path = tmp_path / "rows.json"
    good = GOOD_TEXT.encode()
    path.write_bytes(mark + b"\n[" + good + b",\n\n  " + bad + b"\n, " + good + b",\n" + bad + b"]\n")
    rows = list(formats.read(path, limits=LIMITS))
    assert [type(row) for row in rows] == [Trajectory, RefusedRow, Trajectory, RefusedRow]
    assert [(row.line, row.index, row.code) for row in refused(rows)] == [(4, 2, code), (6, 4, code)]
    assert said in refused(rows)[0].detail


def test_the_deepest_row_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{deep(100)}\n{deep(101)}\n", encoding="utf-8")
    deepest, deeper = formats.read(path, "apigen")
    assert isinstance(deepest, Trajectory)
    assert isinstance(deeper, RefusedRow)
    assert Trajectory.from_row(deepest.to_row()) == deepest


def test_the_largest_line_that_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{GOOD_TEXT}\n{GOOD_TEXT} \n{GOOD_TEXT}\n", encoding="utf-8")
    rows = list(formats.read(path, limits=RowLimits(row_bytes=len(GOOD_TEXT.encode()))))
    assert [type(row) for row in rows] == [Trajectory, RefusedRow, Trajectory]


def test_rows_say_where_they_came_from(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([GOOD, GOOD], indent=1), encoding="utf-8")
    sources = [row.provenance.source for row in formats.read(path) if isinstance(row, Trajectory)]
    assert sources == ["rows.json:2", "rows.json:14"]


@pytest.mark.parametrize(
    ("tail", "line", "said"),
    [
        ('{"conversations": [{"from": "human"', 3, "no row follows"),
        ('{"conversations": "unclosed}, \n{}]', 3, "no row follows"),
        ("", 3, "ends before its list"),
        ("nonsense]", 3, "no row follows"),
    ],
)
def test_a_list_that_breaks_is_read_up_to_there(tmp_path: Path, tail: str, line: int, said: str) -> None:
    path = tmp_path / "rows.json"
    path.write_text(f"[{GOOD_TEXT},\n{GOOD_TEXT},\n{tail}", encoding="utf-8")
    rows = list(formats.read(path))
    assert [type(row) for row in rows] == [Trajectory, Trajectory, RefusedRow]
    (last,) = refused(rows)
    assert (last.line, last.index, last.code) == (line, 3, Code.BAD_JSON)
    assert said in last.detail


def test_a_missing_comma_costs_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(f"[{GOOD_TEXT}\n{GOOD_TEXT}]", encoding="utf-8")
    assert [type(row) for row in formats.read(path)] == [Trajectory, Trajectory]


@pytest.mark.parametrize("text", [json.dumps(GOOD, indent=2), f"{GOOD_TEXT}\n\n{GOOD_TEXT}\n"])
def test_a_json_file_without_a_list(tmp_path: Path, text: str) -> None:
    """One object, or JSON lines under the wrong name."""
    path = tmp_path / "rows.json"
    path.write_text(text, encoding="utf-8")
    rows = list(formats.read(path))
    assert rows
    assert all(isinstance(row, Trajectory) for row in rows)


@pytest.mark.parametrize("name", ["empty.json", "empty.jsonl", "list.json", "blank.jsonl"])
def test_no_rows_are_no_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text({"list.json": "[ ]", "blank.jsonl": "\n \n"}.get(name, ""), encoding="utf-8")
    assert list(formats.read(path)) == []


def test_a_file_of_broken_lines_is_refused_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("{,\n}\n7\n", encoding="utf-8")
    assert [row.line for row in refused(list(formats.read(path)))] == [1, 2, 3]


SEEDS = Pack.load("office").seeds


@pytest.mark.parametrize("name", list(formats.DIALECTS))
@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_the_dialect_is_made_out(tmp_path: Path, name: str, suffix: str) -> None:
    """Also where the first rows are plain talk that any dialect could hold."""
    plain = SEEDS[0].model_copy(update={"tools": [], "messages": [m for m in SEEDS[0].messages if m.role == "user"]})
    written = list(formats.write([plain, plain, *SEEDS], name))
    path = tmp_path / f"rows{suffix}"
    path.write_text(json.dumps(written) if suffix == ".json" else "\n".join(map(json.dumps, written)), encoding="utf-8")
    rows = list(formats.read(path))
    assert [row.id for row in rows if isinstance(row, Trajectory)] == [t.id for t in (plain, plain, *SEEDS)]
    assert list(formats.write((row for row in rows if isinstance(row, Trajectory)), name)) == written


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.jsonl", b'{"question": "a"}\n', "apigen, openai, hermes"),
        ("rows.csv", b"a,b\n", ".jsonl, .json and .parquet"),
        ("rows.jsonl", "\ufeff{}".encode("utf-16-le"), "UTF-16: save it as UTF-8"),
        ("rows.jsonl", (GOOD_TEXT + "\n").encode("utf-16-le"), "UTF-16: save it as UTF-8"),
        ("rows.json", f"[{GOOD_TEXT}]".encode("utf-16-be"), "UTF-16: save it as UTF-8"),
    ],
)
def test_the_users_mistakes_are_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError) as error:
        formats.read(path)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_files_and_unknown_dialects_are_told_at_once(tmp_path: Path) -> None:
    for path, dialect in ((tmp_path / "none.json", None), (tmp_path / "none.json", "apigen"), (tmp_path, "sharegpt")):
        with pytest.raises(UserError):
            formats.read(path, dialect)
    with pytest.raises(UserError, match="simia, apigen, openai, hermes"):
        formats.get("sharegpt")


def test_lines_are_streamed(tmp_path: Path) -> None:
    """The reader takes rows as it is asked for them: a row that is appended meanwhile is still read."""
    path = tmp_path / "rows.jsonl"
    path.write_text(GOOD_TEXT + "\n", encoding="utf-8")
    rows: Any = formats.read(path, "apigen")
    next(rows)
    with path.open("a", encoding="utf-8") as file:
        file.write(GOOD_TEXT + "\n")
    assert isinstance(next(rows), Trajectory)


CALL = {"id": "c", "name": "look", "arguments": {}}
OWN_ROW = {
    "version": 1,
    "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "calls": [CALL], "content": "y"}],
}


@pytest.mark.parametrize("version", [{"version": 1}, {}])
def test_a_row_of_another_dialect_loses_no_calls_silently(tmp_path: Path, version: dict[str, int]) -> None:
    row = {"messages": OWN_ROW["messages"], **version}
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(
        UserError, match=r"own\.jsonl:1: bad_row: this row is in the simia format, not openai: 1 of its 1"
    ):
        formats.load_trajectories(path, format="openai")
    assert len(list(formats.load_trajectories(path, format="simia")[0].calls())) == 1


def test_tagged_calls_are_not_read_as_text_by_a_wrong_choice(tmp_path: Path) -> None:
    tagged = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    path = tmp_path / "tagged.jsonl"
    path.write_text(
        json.dumps({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": tagged}]})
    )
    with pytest.raises(UserError, match="in the hermes format, not openai"):
        formats.load_trajectories(path, format="openai")
