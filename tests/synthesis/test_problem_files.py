"""Coding problems are read from files of any format; a row that cannot be used costs that row only."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from simia.errors import UserError
from simia.synthesis.gyms.answer_comparison import answers_match
from simia.synthesis.gyms.function_runs import Ending, FunctionLimits, FunctionRunner
from simia.synthesis.gyms.problem_code import adopt_unified
from simia.synthesis.gyms.problem_files import read_problems
from tests.hub_server import start_hub

KODCODE = {
    "style": "instruct",
    "question_id": "Filter_1234_I",
    "question": "Add two numbers.",
    "solution": "def add(a, b):\n    return a + b",
    "test": "from solution import add\n\ndef test_add():\n    assert add(1, 2) == 3",
    "test_info": [{"function_name": "add", "parameter_list": "(a, b)"}],
}


def write_rows(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_rows_of_kodcode_and_others(tmp_path: Path) -> None:
    rows = [
        KODCODE,
        {"title": "Two Sum!", "problem": "Find two numbers.", "code": "```python\ndef f(x):\n    return x\n```"},
        {
            "prompt": "Double it.",
            "answer": "def g(x):\n    return 2 * x",
            "test_list": ["assert g(1) == 2", "assert g(0) == 0"],
        },
        {
            "task_id": 7,
            "statement": "s",
            "solutions": ["def a(): ...", "def b(): ..."],
            "entry_point": "a",
            "license": "MIT",
        },
    ]
    found = read_problems(str(write_rows(tmp_path / "p.jsonl", rows)))
    assert [each.id for each in found] == ["filter-1234-i", "two-sum", "row-3", "7"]
    assert (found[0].entry, found[0].tests.startswith("from solution")) == ("add", True)
    assert found[1].solution == "def f(x):\n    return x"
    assert found[2].tests == "assert g(1) == 2\nassert g(0) == 0"
    assert (found[3].solution, found[3].entry, found[3].licence) == ("def a(): ...", "a", "MIT")
    assert not any(each.reason for each in found)


def test_tests_with_input_and_output(tmp_path: Path) -> None:
    base = {"question": "Echo.", "solution": "print(input())"}
    forms: list[dict[str, Any]] = [
        {"test": [{"input": "a\n", "output": "a\n"}]},
        {"tests": {"inputs": ["a\n"], "outputs": ["a\n"]}},
        {"input_output": json.dumps({"inputs": ["a\n"], "outputs": ["a\n"]})},
    ]
    for each in read_problems(str(write_rows(tmp_path / "p.jsonl", [{**base, **form} for form in forms]))):
        assert [(test.input, test.output) for test in each.stdin_tests] == [("a\n", "a\n")]
        assert each.tests == ""


def test_a_bad_row_costs_that_row_only(tmp_path: Path) -> None:
    rows: list[Any] = [
        KODCODE, '{"question": "cut', ["no", "object"], {"question": "no solution"}, {"solution": "def f(): ..."},
        {**KODCODE, "question": "x" * 50_000}, KODCODE,
    ]  # fmt: skip
    found = read_problems(str(write_rows(tmp_path / "p.jsonl", rows)))
    assert [each.id for each in found if not each.reason] == ["filter-1234-i", "filter-1234-i-3"]
    details = [each.detail for each in found if each.reason]
    assert {each.reason for each in found if each.reason} == {"bad_problem"}
    assert [detail.partition(": ")[0] for detail in details] == [f"p.jsonl:{line}" for line in (2, 3, 4, 5, 6)]
    assert "it has no solution; keys: question" in details[2]
    assert "it has no statement" in details[3]
    assert "40,000 characters" in details[4]


def test_lists_parquet_markdown_and_python(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([KODCODE]))
    assert read_problems(str(tmp_path / "list.json"))[0].statement == "Add two numbers."
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    parquet.write_table(pa.Table.from_pylist([KODCODE]), tmp_path / "rows.parquet")
    assert read_problems(str(tmp_path / "rows.parquet"))[0].id == "filter-1234-i"
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.md").write_text("# Doubling\n\nDouble a number.\n\n```python\ndef f(x):\n    return 2 * x\n```\n")
    (folder / "two.py").write_text('"""Halve a number."""\n\ndef h(x):\n    return x / 2\n')
    (folder / "bad.py").write_text("def (")
    (folder / "README.md").write_text("Two problems.")
    found = read_problems(str(folder))
    assert [(each.id, each.reason) for each in found] == [("row-1", "bad_problem"), ("one", ""), ("two", "")]
    assert found[1].statement == "# Doubling\n\nDouble a number."
    assert found[1].solution == "def f(x):\n    return 2 * x"
    assert found[2].statement == "Halve a number."


def test_a_data_set_of_the_hub_and_a_folder_of_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    (tmp_path / "data").mkdir()
    shard = tmp_path / "data" / "train-00000-of-00001.parquet"
    parquet.write_table(pa.Table.from_pylist([KODCODE, {**KODCODE, "solution": None}]), shard)
    assert [each.reason for each in read_problems(str(tmp_path / "data"))] == ["", "bad_problem"]
    with start_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "simia-cache"))
        monkeypatch.setattr(import_module("huggingface_hub.constants"), "HF_HUB_CACHE", str(tmp_path / "hub-cache"))
        card = b"---\nlicense: cc-by-nc-4.0\n---\n"
        hub.add("kod/code", {"README.md": card, "data/train-00000-of-00001.parquet": shard.read_bytes()})
        first, second = read_problems("hf:kod/code")
    assert (first.licence, first.source, first.reason) == ("cc-by-nc-4.0", "code:1", "")
    assert second.detail.startswith("code:2: it has no solution")


def test_a_limit_and_a_missing_file(tmp_path: Path) -> None:
    path = str(write_rows(tmp_path / "p.jsonl", [KODCODE] * 5))
    assert len(read_problems(path, limit=2)) == 2
    with pytest.raises(UserError, match="there is no such file"):
        read_problems(str(tmp_path / "q.jsonl"))
    with pytest.raises(UserError, match="it holds no problem"):
        read_problems(str(write_rows(tmp_path / "empty.jsonl", [])))


def test_the_ten_problems_have_the_unified_form_and_solve_their_examples(tmp_path: Path) -> None:
    found = read_problems("problems/problems.jsonl")
    assert len({each.id for each in found}) == 10
    assert {each.licence for each in found} == {"Apache-2.0"}

    async def solve_all() -> list[list[Any]]:
        async with FunctionRunner(tmp_path / "runs", FunctionLimits(seconds=1)) as runner:
            answers = []
            for each in found:
                unified = adopt_unified(each)
                assert unified is not None, each.id
                runs = [await runner.run(unified.code, "solve", inputs) for inputs in unified.examples]
                assert {run.ended for run in runs} == {Ending.RETURNED}, each.id
                answers.append([run.value for run in runs])
            return answers

    answers = dict(zip([each.id for each in found], asyncio.run(solve_all()), strict=True))
    assert all(any(not answers_match(row[0], other) for other in row) for row in answers.values())
    # worked out by hand
    assert answers["cold-cells"][:2] == [2, 8]
    assert answers["ferry-trip"][:2] == [30, -1]
    assert answers["unwatched-minutes"][0] == 15
    assert answers["shortest-ribbon"][:2] == [3, 6]
    assert answers["tank-cascade"][0] == {"lost": 2, "left": 5}
    assert answers["bakery-shelf"][0] == {"wasted": 1, "unmet": 1}
    assert answers["guild-pairs"][0] == [1, 0]
    assert answers["score-formula"][:2] == [9, 9]
    assert answers["parcel-vans"][:2] == [{"fares": 27, "left": 0}, {"fares": 60, "left": 1}]
