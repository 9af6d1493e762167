"""`simia pack validate`: lints, agreement of code and description, the tools' tests."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.authoring.code_lint import lint_code
from simia.authoring.findings import Fault, Finding
from simia.authoring.scaffold import CODE, PACK, TASKS, TESTS, TOOLS
from simia.authoring.validate import validate_pack
from simia.errors import UserError
from tests.packs.small import small


async def found(folder: Path, **files: Any) -> list[Finding]:
    findings, facts = await validate_pack(small(folder, **files))
    assert facts
    return findings


async def test_the_first_pack_of_a_user_is_valid(tmp_path: Path) -> None:
    assert await found(tmp_path / "p") == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import requests", Fault.NETWORK),
        ("from urllib.request import urlopen", Fault.NETWORK),
        ("import random", Fault.RANDOMNESS),
        ("from datetime import datetime\nx = datetime.now()", Fault.CLOCK),
        ("import datetime\nx = datetime.date.today()", Fault.CLOCK),
        ("import time", Fault.CLOCK),
        ("def f(path):\n    return open(path)", Fault.FILES),
        ("def f(text):\n    return eval(text)", Fault.DYNAMIC_CODE),
        ("import subprocess", Fault.PROCESSES),
        ("N = 0\ndef f():\n    global N\n    N += 1", Fault.GLOBAL_STATE),
        ("def f(:", Fault.NOT_PYTHON),
    ],
)
def test_lints_name_the_line(tmp_path: Path, source: str, fault: Fault) -> None:
    path = tmp_path / "tools.py"
    path.write_text(source)
    findings = lint_code(path)
    assert [finding.fault for finding in findings] == [fault]
    assert "tools.py" in findings[0].where


def test_the_conventions_own_means_are_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "tools.py"
    path.write_text(
        "from datetime import datetime, timedelta\nfrom decimal import Decimal\nx = lambda s: s.now + timedelta(1)\n"
    )
    assert lint_code(path) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (("def finish_todo(self, todo_id: str)", "def end_todo(self, todo_id: str)"), Fault.MISSING_TOOL),
        (("def finish_todo(self, todo_id: str)", "def finish_todo(self, which: str)"), Fault.OTHER_ARGUMENTS),
        (("open_only: bool = False", "open_only: bool"), Fault.OTHER_ARGUMENTS),
        (("        self.state.todos[todo_id].done = True", "        self.state.todos[todo_id].done = 1 / 0"), Fault.TOOL_FAILED),
        (("there is no {todo_id}", "no"), Fault.TEST_FAILED),
        (("return [\n            {", "self.state.todos.clear()\n        return [\n            {"), Fault.READ_WRITES),
    ],
)  # fmt: skip
async def test_what_the_code_does_otherwise_than_it_says_is_found(
    tmp_path: Path, change: tuple[str, str], fault: Fault
) -> None:
    assert change[0] in CODE
    findings = await found(tmp_path / "p", tools_py=CODE.replace(*change))
    assert fault in {finding.fault for finding in findings}


@pytest.mark.parametrize(
    "expect",
    [
        {"result": {"todo_id": "T-0000"}},
        {"changes": {"todos.*": {"text": "Buy milk"}}},
        {"changes": {"todos.*": {"text": "Buy bread"}, "todos.T-1001.done": True}},
        {"changes": {}},
        {"outcome": "refusal"},
    ],
)
async def test_a_test_that_does_not_hold_is_named(tmp_path: Path, expect: dict[str, Any]) -> None:
    tests = [
        *TESTS,
        {"name": "mine", "call": {"name": "add_todo", "arguments": {"text": "Buy bread"}}, "expect": expect},
    ]
    findings = await found(tmp_path / "p", tests_jsonl=tests)
    assert [(f.fault, f.where) for f in findings] == [(Fault.TEST_FAILED, "mine")]


async def test_a_tool_without_a_test_is_a_remark(tmp_path: Path) -> None:
    findings = await found(tmp_path / "p", tests_jsonl=TESTS[:1])
    assert {(f.fault, f.where) for f in findings} == {(Fault.UNTESTED_TOOL, t["name"]) for t in TOOLS[1:]}
    assert not any(finding.refuses for finding in findings)


async def test_a_row_that_occurs_twice_in_the_state_is_refused(tmp_path: Path) -> None:
    state = '{"todos": {\n"T-1": {"text": "a"},\n"T-1": {"text": "b"}}}'
    with pytest.raises(UserError, match=r"state\.json, line 3: the key 'T-1' occurs twice in the same object"):
        await found(tmp_path / "p", state_json=state)


# -- names and settings ------------------------------------------------------------------------------------------------


def head(**changes: Any) -> str:
    found = {**yaml.safe_load(PACK.format(name="p")), **changes}
    return yaml.safe_dump({name: value for name, value in found.items() if value is not None})


def row(**changes: Any) -> list[dict[str, Any]]:
    return [{**copy.deepcopy(TASKS[0]), **changes}]


NAMES: dict[str, tuple[dict[str, Any], str]] = {
    "tools": ({"tasks_jsonl": row(tools=["list_todos", "burn"])}, "task todo-1: unknown_name: tools: burn"),
    "reveals": ({"tasks_jsonl": row(reveals=[{"turn": 2, "tools": ["burn"]}])}, "task todo-1: unknown_name: reveals: burn"),
    "penalties": (
        {"tasks_jsonl": row(reward={"parts": [{"kind": "state"}], "penalties": [{"tools": ["burn"]}]})},
        "task todo-1: unknown_name: penalties: burn",
    ),
    "regex": (
        {"tasks_jsonl": row(reward={"parts": [{"kind": "answer", "match": "regex", "expect": ["(?i)yes", "(15"]}]})},
        "task todo-1: bad_answer: expect: '(15' is no usable expression",
    ),
    "number": (
        {"tasks_jsonl": [{"id": "t", "goals": [{"query": "?", "parts": [{"kind": "answer", "match": "number", "expect": ["fifteen"]}]}]}]},
        "task t: bad_answer: expect: 'fifteen' is no number",
    ),
    "trace": (
        {"tasks_jsonl": row(reward={"parts": [{"kind": "trace", "mask": {"burn": ["x"]}}]})}, "task todo-1: unknown_name: trace: burn",
    ),
    "checklist": (
        {"tasks_jsonl": row(reward={"parts": [{"kind": "checklist", "functions": ["gone"]}]})},
        "task todo-1: unknown_name: checklist: gone",
    ),
    "limits": ({"tasks_jsonl": row(limits={"calls": 1})}, "task todo-1: too_few_calls: the solution makes 2 calls, and the limit is 1"),
    "graph": (
        {"pack_yaml": head(graph="graph.jsonl"), "graph_jsonl": [{"source": "list_todos", "target": "finish_todo", "argument": "id"}]},
        "graph list_todos → finish_todo: unknown_name: finish_todo.id",
    ),
    "edge": (
        {"pack_yaml": head(graph="graph.jsonl"), "graph_jsonl": [{"source": "burn", "target": "finish_todo"}]},
        "graph burn → finish_todo: unknown_name: burn",
    ),
    "contract": ({"tools_json": json.dumps([{**TOOLS[0], "reads": ["ashes"]}, *TOOLS[1:]])}, "tool list_todos: unknown_name: tables: ashes"),
    "schema": ({"pack_yaml": head(schema={"tables": {"ashes": {}}})}, "schema: unknown_name: tables: ashes"),
    "constraint": ({"pack_yaml": head(schema={"tables": {"todos": {}}, "constraints": ["gone"]})}, "schema: unknown_name: constraints: gone"),
    "state": (
        {"pack_yaml": head(schema={"tables": {"todos": {"columns": {"owner": {"required": True}}}}})},
        "state: integrity: todos.owner: row T-1001 lacks it",
    ),
    "user": (
        {
            "pack_yaml": head(user=None),
            "tasks_jsonl": row(script=[*TASKS[0]["script"], {"user": "Thanks."}, {"agent": "Bye."}]),
        },
        "pack.yaml: no_user: pack.yaml names no user, so the user's turns in the scripts of 1 task (todo-1, …) are not played: "
        "write user: scripted, or user: llm",
    ),
    "call": (
        {"tasks_jsonl": row(script=[{"user": "Done!"}, {"calls": [{"name": "finish_todo", "arguments": {"todo_id": "1"}}]}])},
        "task todo-1: bad_call: call 1 of the solution, finish_todo: todo_id: \"1\" does not match \"^T-[0-9]{4}$\"",
    ),
    "withheld": (
        {
            "tasks_jsonl": row(
                withheld=[{"fact": "Milk.", "asked": "what"}],
                script=[{"user": "Add it."}, {"agent": "Fine."}, {"user": "Milk."}, {"calls": [{"name": "add_todo", "arguments": {"text": "Milk"}}]}],
            )
        },
        "task todo-1: never_asked: the user says 'Milk.' after 'Fine.', which does not match asked: 'what'",
    ),
    "initial": (
        {"tasks_jsonl": row(initial={"patch": {"todos": {"T-1003": {"text": ""}}}})},
        "task todo-1: integrity: initial: todos.text: row T-1003: \"\" is shorter than 1 character",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
async def test_a_name_that_does_not_exist_is_found(tmp_path: Path, name: str) -> None:
    files, words = NAMES[name]
    assert words in [str(finding) for finding in await found(tmp_path / "p", **files)]


async def test_names_that_exist_are_no_finding(tmp_path: Path) -> None:
    """The same keys with the right names, and a user for a script of two turns."""
    files: dict[str, Any] = {
        "pack_yaml": head(graph="graph.jsonl", checks="checks.py", user="scripted", schema={"tables": {"todos": {}}, "constraints": ["ok"]}),
        "checks_py": "def ok(final, initial):\n    return True\n",
        "graph_jsonl": [{"source": "list_todos", "target": "finish_todo", "argument": "todo_id"}],
        "tools_json": json.dumps([{**TOOLS[0], "reads": ["todos"]}, *TOOLS[1:]]),
        "tasks_jsonl": row(
            tools=["list_todos", "finish_todo"], reveals=[{"turn": 2, "tools": ["add_todo"]}], limits={"calls": 2},
            reward={"parts": [{"kind": "state"}, {"kind": "checklist", "functions": ["ok"]}, {"kind": "trace", "mask": {"list_todos": ["open_only"]}}], "penalties": [{"tools": ["add_todo"]}]},
            script=[*TASKS[0]["script"], {"user": "Thanks."}, {"agent": "Bye."}],
        ),
    }  # fmt: skip
    assert await found(tmp_path / "p", **files) == []


@pytest.mark.parametrize(("without", "says"), [(0, None), (1, "the task alone"), (2, "knowledge=schema there")])
async def test_tasks_without_a_solution_are_counted(without: int, says: str | None, tmp_path: Path) -> None:
    rows = [{**copy.deepcopy(TASKS[0]), "id": f"t{n}"} for n in range(2)]
    for row in rows[:without]:
        for name in ("script", "actions", "reference"):
            row.pop(name, None)
    _, facts = await validate_pack(small(tmp_path / "p", tasks_jsonl=rows))
    line = next((fact for fact in facts if "without a solution" in fact), None)
    assert (line is None) is (says is None)
    assert line is None or (line.startswith(f"{without} of 2 tasks without a solution: ") and line.endswith(str(says)))
