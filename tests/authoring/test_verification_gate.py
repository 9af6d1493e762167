"""The gate lets good tasks through, and each kind of bad one is refused by name."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.findings import Fault
from simia.authoring.scaffold import TASKS
from simia.authoring.verification_gate import verify_tasks
from simia.envs.opening import open_environment
from tests.packs.small import small

GOOD, READ = copy.deepcopy(TASKS[0]), copy.deepcopy(TASKS[1])
ADD = {
    "id": "add", "instruction": "Put bread on the list.",
    "script": [
        {"user": "Put bread on the list."},
        {"calls": [{"name": "add_todo", "arguments": {"text": "Buy bread"}}]},
        {"agent": "Done."},
    ],
}  # fmt: skip


def task(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(base), "id": "odd", **changes}


CASES: dict[Fault, dict[str, Any]] = {
    Fault.NOTHING_SCORES: task(READ, reward={"parts": [{"kind": "state"}]}),
    Fault.ECHO_SCORES: task(READ, script=[*READ["script"][:2], {"agent": "Still open: the plants."}], reward={"parts": [{"kind": "state"}, {"kind": "answer", "expect": ["open"]}]}),
    Fault.CANNED_SCORES: task(READ, reward={"parts": [{"kind": "answer", "expect": ["taken care"]}]}),
    Fault.POLICY_SCORES: task(READ, reward={"parts": [{"kind": "answer", "expect": ["one person"]}]}),
    Fault.REFERENCE_FAILS: task(READ, reward={"parts": [{"kind": "answer", "expect": ["bread"]}]}),
    Fault.UNKNOWN_TOOL: task(GOOD, script=[{"user": "a"}, {"calls": [{"name": "burn"}]}, {"agent": "b"}]),
    Fault.INCOMPLETE_SCORES: task(ADD, reward={"parts": [{"kind": "answer", "expect": ["Done"]}]}),
    Fault.OTHER_SCORES: task(ADD, reward={"parts": [{"kind": "checklist", "code": {"any": "def check(f, i):\n    return f != i"}}]}),
    Fault.IMPURE_CHECK: task(
        ADD,
        reward={"parts": [{"kind": "checklist", "code": {"odd": "import os\ndef check(f, i):\n    return os.urandom(1)[0] % 2 == 0"}}] * 1},
    ),
    Fault.TRUE_AT_RESET: task(ADD, reward={"parts": [{"kind": "checklist", "code": {"free": "def check(f, i):\n    return True"}}]}),
    Fault.UNJUDGED: task(GOOD, reward={"parts": [{"kind": "state"}], "unjudged": ["politeness"]}),
}  # fmt: skip


async def faults(folder: Path, *tasks: dict[str, Any], **files: Any) -> dict[str, set[Fault]]:
    pack = small(folder, tasks_jsonl=list(tasks), **files)
    async with await open_environment(pack, user="none") as environment:
        verdicts = await verify_tasks(environment, pack.tasks)
    return {verdict.task: {finding.fault for finding in verdict.findings} for verdict in verdicts}


async def test_good_tasks_pass(tmp_path: Path) -> None:
    assert await faults(tmp_path / "p", GOOD, READ, ADD) == {"todo-1": set(), "todo-2": set(), "add": set()}


@pytest.mark.parametrize("fault", [f for f in CASES if f is not Fault.IMPURE_CHECK], ids=str)
async def test_a_bad_task_is_refused_by_name(tmp_path: Path, fault: Fault) -> None:
    found = await faults(tmp_path / "p", GOOD, CASES[fault])
    assert fault in found["odd"]
    assert found["todo-1"] == set()


async def test_a_check_that_tosses_a_coin_is_found_out(tmp_path: Path) -> None:
    """Ten coins: that all fall alike twice is one in a thousand."""
    coins = {f"odd{i}": CASES[Fault.IMPURE_CHECK]["reward"]["parts"][0]["code"]["odd"] for i in range(10)}
    found = await faults(tmp_path / "p", task(ADD, reward={"parts": [{"kind": "checklist", "code": coins}]}))
    assert {Fault.IMPURE_CHECK, Fault.NOT_REPEATABLE} <= found["odd"]


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("self.now.isoformat()", "__import__('time').time_ns().__str__()", Fault.NOT_REPEATABLE),
        ("self.new_id(\"T-\", 4, taken=self.state.todos)", "'T-' + str(__import__('os').urandom(4).hex())", Fault.NOT_REPEATABLE),
        ("if any(todo.text == text for todo in self.state.todos.values()):", "if {}['x']:", Fault.TOOL_FAILED),
        ("class Todo(BaseModel):", "class Todo(BaseModel):\n    made: float = Field(default_factory=__import__('time').time)", Fault.NOT_REPEATABLE),
    ],
)  # fmt: skip
async def test_code_that_cannot_be_repeated_or_fails_is_found_out(
    tmp_path: Path, old: str, new: str, fault: Fault
) -> None:
    small(tmp_path / "p")
    code = (
        (tmp_path / "p" / "tools.py")
        .read_text()
        .replace(old, new)
        .replace("import BaseModel", "import BaseModel, Field")
    )
    found = await faults(tmp_path / "q", ADD, tools_py=code)
    assert fault in found["add"]
