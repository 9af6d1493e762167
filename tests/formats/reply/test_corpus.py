"""The corpus of malformed replies: its rows are well formed, and the parser keeps its bounds on them."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests" / "corpus"
FILES = ("made", "unseen", "replies")
ROLES = {"system", "user", "assistant", "tool"}
SORTS = {(form, source) for form in ("json", "tagged") for source in ("made", "model")}
LEAST_RIGHT = 0.95


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / f"{name}.jsonl").read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize("name", FILES)
def test_rows_are_well_formed(name: str) -> None:
    found = rows(name)
    assert found
    assert len({row["id"] for row in found}) == len(found)
    for row in found:
        assert row["kind"], row["id"]
        assert (row["form"], row["source"]) in SORTS, row["id"]
        for message in row["expect"] or []:
            assert message["role"] in ROLES, row["id"]
            assert all(set(call) == {"name", "arguments"} for call in message.get("calls", [])), row["id"]


@pytest.mark.parametrize("name", ["unseen", "replies"])
def test_a_refusal_says_why(name: str) -> None:
    assert [row["id"] for row in rows(name) if (row["expect"] is None) != bool(row.get("why"))] == []


def test_enough_of_it_is_real() -> None:
    assert sum(row["source"] == "model" for row in rows("replies")) >= 70
    assert sum(len(rows(name)) for name in FILES) >= 210


def test_the_parser_reads_it_right_and_nothing_silently_wrong() -> None:
    bench = runpy.run_path(str(ROOT / "eval" / "bench" / "repair.py"))
    found = {row["id"]: bench["verdict"](row, bench["ours"](row)) for row in bench["rows"]()}
    assert [name for name, verdict in found.items() if verdict == "wrong"] == []
    assert sum(verdict == "right" for verdict in found.values()) >= LEAST_RIGHT * len(found)
