"""Rows that another library streams: values of tables become JSON, nulls of Arrow are absent, one bad row costs no other row."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from simia import formats
from simia.errors import Code, UserError
from simia.formats import RefusedRow
from simia.quality.check import Checks, check_trajectory
from simia.trajectory import Trajectory

ARGUMENTS = {"id": 7, "on": datetime.date(2026, 3, 1), "price": Decimal("2.5"), "count": Decimal(3), "note": None}
CALL = {"id": "a", "type": "function", "function": {"name": "look", "arguments": ARGUMENTS}}
NULL = {"tool_calls": None, "tool_call_id": None, "name": None}
MESSAGES = [
    {"role": "user", "content": "Is 7 there?", **NULL},
    {"role": "assistant", "content": None, **NULL, "tool_calls": (CALL,)},
    {"role": "tool", "content": "yes", **NULL, "tool_call_id": "a"},
    {"role": "assistant", "content": "Yes.", **NULL},
]


def test_nulls_of_columns_are_absent_and_values_become_json() -> None:
    (found,) = formats.read_rows([{"messages": MESSAGES, "tools": None}], source="shop", from_columns=True)
    assert isinstance(found, Trajectory)
    assert found.messages[1].calls[0].arguments == {"id": 7, "on": "2026-03-01", "price": 2.5, "count": 3}
    assert found.provenance.source == "shop:1"
    assert json.loads(json.dumps(found.to_row())) == found.to_row()


def test_nulls_stay_in_rows_that_are_no_columns() -> None:
    (found,) = formats.read_rows([{"messages": MESSAGES}])
    assert isinstance(found, Trajectory)
    assert found.messages[1].calls[0].arguments == {**ARGUMENTS, "on": "2026-03-01"}


def test_turns_may_be_json_text() -> None:
    rows = [{"messages": json.dumps(MESSAGES[:1])}, {"messages": "[{"}, {"messages": json.dumps(MESSAGES[:1])}]
    first, bad, last = formats.read_rows(rows, "openai")
    assert isinstance(bad, RefusedRow)
    assert (bad.line, bad.code) == (2, Code.BAD_ROW)
    assert "messages is a text that is not JSON" in bad.detail
    assert isinstance(first, Trajectory)
    assert isinstance(last, Trajectory)
    assert first.messages[0].content == "Is 7 there?"


def test_a_value_that_is_not_json_refuses_its_row() -> None:
    good = {"messages": MESSAGES}
    rows = list(formats.read_rows([good, {"messages": [{"role": "user", "content": b"x"}]}, good]))
    assert [type(row) for row in rows] == [Trajectory, RefusedRow, Trajectory]
    assert isinstance(rows[1], RefusedRow)
    assert "bytes" in rows[1].detail


def test_rows_are_streamed() -> None:
    taken = 0

    def rows() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for _ in range(10_000):
            taken += 1
            yield {"messages": MESSAGES}

    found = formats.read_rows(rows())
    assert taken <= 50
    next(found)
    assert taken <= 51


def test_a_mixed_source_is_one_line_with_the_choices() -> None:
    sharegpt = {"conversations": [{"from": "human", "value": "hi"}, {"from": "function_call", "value": "{}"}]}
    rows = [{"messages": MESSAGES}] * 6 + [sharegpt] * 4
    with pytest.raises(UserError) as error:
        formats.read_rows(rows, source="both")
    line = "both: mixed formats: of the first 10 rows 6 are openai and 4 are apigen; split the file, or name one of openai, apigen"
    assert str(error.value).startswith(line)
    assert sum(isinstance(row, Trajectory) for row in formats.read_rows(rows, "openai")) == 6


def test_pairs_of_preferences_are_named() -> None:
    with pytest.raises(UserError, match="preference pairs: write the chosen messages as 'messages'"):
        formats.read_rows([{"chosen_messages": [], "rejected_messages": []}])


@pytest.mark.parametrize("column", ["images", "videos", "audios"])
@pytest.mark.parametrize("dialect", ["apigen", "openai", "hermes"])
def test_a_row_with_a_column_of_media_is_refused(dialect: str, column: str) -> None:
    if dialect == "openai":
        turns: dict[str, Any] = {"messages": [{"role": "user", "content": "<image>\nWhat is this?"}]}
    else:
        turns = {"conversations": [{"from": "human", "value": "<image>\nWhat is this?"}]}
    refused, *read = formats.read_rows(
        [{**turns, column: ["a.png"]}, {**turns, column: []}, {**turns, column: [None]}, turns],
        source="shop",
        dialect=dialect,
    )
    assert isinstance(refused, RefusedRow)
    assert refused.code is Code.UNKNOWN_PART
    assert refused.detail == f"the row has {column}; simia reads text alone"
    assert all(isinstance(row, Trajectory) for row in read)


def read_calls_of_turns(*turns: list[tuple[str, str]]) -> tuple[list[str], list[str | None], list[Code]]:
    """The ids of calls and of results, and the issues, of a row whose turns have these (id of a call, id of a result)."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    for turn in turns:
        calls = [{"id": each, "function": {"name": "f", "arguments": "{}"}} for each, _ in turn]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages += [{"role": "tool", "content": "ok", "tool_call_id": each} for _, each in turn if each]
    messages.append({"role": "assistant", "content": "Done."})
    (t,) = formats.read_rows([{"messages": messages, "tools": [{"name": "f"}]}])
    assert isinstance(t, Trajectory)
    ids = [call.id for _, _, call in t.calls()]
    issues = [issue.code for issue in check_trajectory(t, Checks()) if issue.code is Code.UNPAIRED_CALL]
    return ids, [m.call_id for m in t.messages if m.role == "tool"], issues


def test_ids_that_count_from_one_in_every_turn_are_renumbered() -> None:
    ids, answered, issues = read_calls_of_turns([("1", "2"), ("2", "1")], [("1", "1")], [("1_2", "1_2")], [("1", "1")])
    assert ids == ["1", "2", "1_3", "1_2", "1_4"]
    assert answered == ["2", "1", *ids[2:]]
    assert not issues


def test_an_id_that_repeats_before_its_result_is_still_refused() -> None:
    assert read_calls_of_turns([("1", "1"), ("1", "1")])[2]
    assert read_calls_of_turns([("1", "")], [("1", "1")])[2]
