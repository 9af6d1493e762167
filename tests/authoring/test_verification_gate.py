"""The gate lets good tasks through, and each kind of bad one is refused by name."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from simia.authoring import gate_agents, pack_coverage, reference_checks, verification_gate
from simia.authoring.findings import Fault
from simia.authoring.gate_report import GateReport, TaskVerdict
from simia.authoring.pack_coverage import check_coverage
from simia.authoring.scaffold import PACK, TASKS, TOOLS
from simia.authoring.verification_gate import verify_tasks
from simia.envs.opening import open_environment
from simia.pack import Pack
from simia.trajectory import Trajectory
from tests.command import run_simia
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


BOTH = """def check(f, i):
    texts = [todo["text"] for todo in f["todos"].values()]
    return f["todos"]["T-1001"]["done"] and "Buy milk" in texts"""


CASES: dict[Fault, dict[str, Any]] = {
    Fault.NOTHING_SCORES: task(READ, reward={"parts": [{"kind": "answer", "expect": ["sorry"]}]}),
    Fault.NOTHING_TO_VERIFY: task(READ, reward={"parts": [{"kind": "state"}]}),
    Fault.NO_SOLUTION: {"id": "odd", "instruction": "Put bread on the list."},
    Fault.ECHO_SCORES: task(READ, script=[*READ["script"][:2], {"agent": "Still open: the plants."}], reward={"parts": [{"kind": "state"}, {"kind": "answer", "expect": ["open"]}]}),
    Fault.CANNED_SCORES: task(READ, reward={"parts": [{"kind": "answer", "expect": ["taken care"]}]}),
    Fault.POLICY_SCORES: task(READ, reward={"parts": [{"kind": "answer", "expect": ["one person"]}]}),
    Fault.REFERENCE_FAILS: task(READ, reward={"parts": [{"kind": "answer", "expect": ["bread"]}]}),
    Fault.UNKNOWN_TOOL: task(GOOD, script=[{"user": "a"}, {"calls": [{"name": "burn"}]}, {"agent": "b"}]),
    Fault.INCOMPLETE_SCORES: task(ADD, reward={"parts": [{"kind": "answer", "expect": ["Done"]}]}),
    Fault.OTHER_SCORES: task(ADD, reward={"parts": [{"kind": "checklist", "code": {"any": "def check(f, i):\n    return f != i"}}]}),
    Fault.ALL_CALLS_SCORE: task(
        GOOD,
        script=[*GOOD["script"][:2], {"calls": [{"name": "add_todo", "arguments": {"text": "Buy milk"}}]}, *GOOD["script"][2:]],
        reward={"parts": [{"kind": "checklist", "code": {"both": BOTH}}]},
    ),
    Fault.RANDOM_SCORES: task(ADD, reward={"parts": [{"kind": "checklist", "code": {"any": "def check(f, i):\n    return f != i"}}]}),
    Fault.SIDE_EFFECT_SCORES: task(
        ADD, reward={"parts": [{"kind": "checklist", "code": {"bread": "def check(f, i):\n    return any(t['text'] == 'Buy bread' for t in f['todos'].values())"}}]}
    ),
    Fault.MUTATED_SCORES: task(ADD, reward={"parts": [{"kind": "checklist", "code": {"free": "def check(f, i):\n    return True"}}]}),
    Fault.IMPURE_CHECK: task(
        ADD,
        reward={"parts": [{"kind": "checklist", "code": {"odd": "import os\ndef check(f, i):\n    return os.urandom(1)[0] % 2 == 0"}}] * 1},
    ),
    Fault.TRUE_AT_RESET: task(ADD, reward={"parts": [{"kind": "checklist", "code": {"free": "def check(f, i):\n    return True"}}]}),
    Fault.UNJUDGED: task(GOOD, reward={"parts": [{"kind": "state"}], "unjudged": ["politeness"]}),
}  # fmt: skip


async def gate(pack: Pack) -> GateReport:
    async with await open_environment(pack, user="none") as environment:
        return await verify_tasks(environment, pack.tasks)


async def faults(folder: Path, *tasks: dict[str, Any], **files: Any) -> dict[str, set[Fault]]:
    report = await gate(small(folder, tasks_jsonl=list(tasks), **files))
    return {verdict.task: {finding.fault for finding in verdict.findings} for verdict in report.verdicts}


async def test_good_tasks_pass(tmp_path: Path) -> None:
    assert await faults(tmp_path / "p", GOOD, READ, ADD) == {"todo-1": set(), "todo-2": set(), "add": set()}


@pytest.mark.parametrize("fault", [f for f in CASES if f is not Fault.IMPURE_CHECK], ids=str)
async def test_a_bad_task_is_refused_by_name(tmp_path: Path, fault: Fault) -> None:
    found = await faults(tmp_path / "p", GOOD, ADD, CASES[fault])
    assert fault in found["odd"]
    assert found["todo-1"] == set()


async def test_a_solution_whose_tool_fails_names_the_tool(tmp_path: Path) -> None:
    small(tmp_path / "p")
    old = "if any(todo.text == text for todo in self.state.todos.values()):"
    code = (tmp_path / "p/tools.py").read_text().replace(old, "if {}['x']:")
    pack = small(tmp_path / "q", tasks_jsonl=[ADD], tools_py=code)
    (verdict,) = (await gate(pack)).verdicts
    [detail] = [finding.detail for finding in verdict.findings if finding.fault is Fault.REFERENCE_FAILS]
    assert detail.startswith("add_todo failed, see tool_failed; reward 0")


async def test_a_refused_call_of_a_solution_is_a_remark(tmp_path: Path) -> None:
    guess = {"calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-4711"}}]}
    asked = {
        **copy.deepcopy(ADD),
        "id": "asked",
        "script": [{"user": "Buy bread; T-4711 is done."}, *ADD["script"][1:]],
    }
    odd = task(ADD, script=[*ADD["script"][:2], guess, ADD["script"][2]])
    asked["script"].insert(2, guess)
    report = await gate(small(tmp_path / "p", tasks_jsonl=[GOOD, ADD, odd, asked]))
    assert report.passed
    found = {each.where: each.detail for each in report.list_findings() if each.fault is Fault.REFUSED_CALL}
    assert found.keys() == {"odd", "asked"}
    assert found["odd"].startswith("call 2 of the solution, finish_todo, is refused: ")
    assert found["odd"].endswith("; no message before it has T-4711")
    assert "no message before it" not in found["asked"], "the user may be mistaken"


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


QUICK = {
    "id": "quick", "instruction": "The plants are watered: mark that.",
    "script": [
        {"user": "The plants are watered: mark that."},
        {"calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}]},
        {"agent": "Done."},
    ],
}  # fmt: skip


async def test_the_solution_of_another_task_may_have_the_same_effect(tmp_path: Path) -> None:
    """Both finish T-1001, one after a look: neither is at fault because the other's calls solve it too."""
    assert await faults(tmp_path / "p", GOOD, QUICK) == {"todo-1": set(), "quick": set()}


async def test_a_look_up_with_the_same_answer_is_no_fault(tmp_path: Path) -> None:
    other = {
        **copy.deepcopy(READ),
        "id": "again",
        "script": [{"user": "List all."}, {"calls": [{"name": "list_todos"}]}, READ["script"][2]],
    }
    assert await faults(tmp_path / "p", GOOD, READ, other) == {"todo-1": set(), "todo-2": set(), "again": set()}


async def test_an_answer_that_stands_in_another_solutions_words_is_a_fault(tmp_path: Path) -> None:
    weak = task(READ, reward={"parts": [{"kind": "state"}, {"kind": "answer", "expect": ["done"]}]})
    weak["script"][1]["calls"][0]["arguments"] = {"open_only": False}
    weak["script"][2] = {"agent": "One thing is done."}
    talker = {
        **copy.deepcopy(READ),
        "id": "talker",
        "script": [
            {"user": "a"},
            {"calls": [{"name": "list_todos", "arguments": {"open_only": True}}]},
            {"agent": "It is done: water the plants."},
        ],
    }
    assert Fault.OTHER_SCORES in (await faults(tmp_path / "p", talker, weak))["odd"]


async def test_agents_that_do_not_read_the_task_earn_nothing_and_are_reported(tmp_path: Path) -> None:
    report = await gate(small(tmp_path / "p", tasks_jsonl=[GOOD, READ, ADD]))
    assert report.passed
    assert set(report.floors) == {"nothing", "canned", "echo", "policy", "random", "all_calls"}
    assert set(report.floors.values()) == {0.0}


async def test_a_single_task_is_solved_by_all_calls(tmp_path: Path) -> None:
    """Its effect is the solution's: the floor says so, and it is no fault."""
    report = await gate(small(tmp_path / "p", tasks_jsonl=[GOOD]))
    assert report.passed
    assert report.floors["all_calls"] == 1.0


GOALS = {
    "id": "goals", "instruction": "Two things.",
    "goals": [
        {"query": "I have watered the plants.", "calls": [{"name": "finish_todo", "arguments": {"todo_id": "T-1001"}}]},
        {"query": "Add bread.", "calls": [{"name": "add_todo", "arguments": {"text": "Buy bread"}}]},
    ],
}  # fmt: skip


async def test_tasks_with_goals_pass_turn_by_turn(tmp_path: Path) -> None:
    lax = {**copy.deepcopy(GOALS), "id": "lax"}
    lax["goals"][1]["parts"] = [{"kind": "answer", "expect": ["Done"]}]
    pack = small(tmp_path / "p", tasks_jsonl=[GOOD, GOALS, lax])
    report = await gate(pack)
    found = {verdict.task: {finding.fault for finding in verdict.findings} for verdict in report.verdicts}
    assert found == {"todo-1": set(), "goals": set(), "lax": {Fault.INCOMPLETE_SCORES}}
    assert {verdict.floor for verdict in report.verdicts} == {0.0}


SCHEMA = """
format: 2
schema:
  tables:
    todos: {columns: {text: {required: true}, owner: {references: people}}}
    people: {}
  constraints: [few]
checks: checks.py
"""


def with_schema(folder: Path, *, few: int, state: dict[str, Any] | None = None) -> Pack:
    head = {**yaml.safe_load(PACK.format(name="p")), **yaml.safe_load(SCHEMA)}
    code = f"def few(final, initial):\n    return len(final['todos']) <= {few}\n"
    small(folder)
    tools = (
        (folder / "tools.py")
        .read_text()
        .replace("todos: dict[str, Todo] = {}", "todos: dict[str, Todo] = {}\n    people: dict[str, str] = {}")
    )
    tools = tools.replace('    added: str = ""', '    added: str = ""\n    owner: str | None = None')
    files: dict[str, Any] = {"checks_py": code, "tools_py": tools, "tasks_jsonl": [GOOD, ADD]}
    given = state or {"todos": {"T-1001": {"text": "Water the plants"}}, "people": {"ann": "Ann"}}
    for name, content in {**files, "state_json": orjson.dumps(given)}.items():
        path = folder / ".".join(name.rsplit("_", 1))
        rows = content if isinstance(content, list) else None
        text = b"".join(orjson.dumps(row) + b"\n" for row in rows) if rows else content
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (folder / "pack.yaml").write_text(yaml.safe_dump(head))
    return Pack.load(folder)


async def test_states_satisfy_the_schema_and_its_constraints(tmp_path: Path) -> None:
    sound = await gate(with_schema(tmp_path / "a", few=2))
    assert sound.passed, sound.list_findings()
    assert [finding.fault for finding in sound.findings] == [Fault.UNCOVERED, Fault.UNCOVERED, Fault.UNCOVERED][
        : len(sound.findings)
    ]
    full = await gate(with_schema(tmp_path / "b", few=1))
    assert [str(f) for f in full.list_findings() if f.refuses] == [
        "add: integrity: after the solution: constraint few: False"
    ]
    dangling = {"todos": {"T-1001": {"text": "Water the plants", "owner": "bob"}}, "people": {"ann": "Ann"}}
    broken = await gate(with_schema(tmp_path / "c", few=2, state=dangling))
    assert any("refers to 'bob', which is not in people" in str(finding) for finding in broken.list_findings())


async def test_what_no_solution_touches_is_named(tmp_path: Path) -> None:
    report = await gate(with_schema(tmp_path / "a", few=2))
    words = [finding.detail for finding in report.findings if finding.fault is Fault.UNCOVERED]
    assert "no solution touches the tables people" in words


def test_fields_of_a_gym_are_no_tables() -> None:
    played = Trajectory.model_validate({"messages": [{"role": "user", "content": "Find it."}]})
    found = check_coverage(Pack.load("gyms/cold-cells"), {"temperatures": [3, 4], "limit": 2, "answer": None}, [played])
    assert not any("tables" in finding.detail for finding in found)


async def test_a_call_keeps_to_its_contract(tmp_path: Path) -> None:
    tools = [{**tool, "writes": []} if tool["name"] == "add_todo" else {**tool, "writes": ["todos"]} for tool in TOOLS]
    found = await faults(tmp_path / "p", GOOD, ADD, tools_json=orjson.dumps(tools))
    assert found == {"todo-1": set(), "add": {Fault.CONTRACT}}


BLIND = """
class Memory:
    def __init__(self, folder):
        self.notes = []

    def tools(self):
        return {"agent": {"list_todos": False, "add_todo": True, "finish_todo": True}, "user": {}}

    def reset(self, initial, seed):
        self.notes = []

    def call(self, by, name, arguments, index):
        self.notes.append(arguments)
        return "done"

    def dump(self):
        return {}

    def restore(self, state):
        pass
"""


async def test_a_state_that_rewards_cannot_see_is_one_finding(tmp_path: Path) -> None:
    head = yaml.safe_load(PACK.format(name="p"))
    head["executable"] = {"code": "tools.py", "object": "Memory", "isolation": "process"}
    del head["state"], head["tests"], head["schema"]
    checked = task(
        ADD, reward={"parts": [{"kind": "checklist", "code": {"free": "def check(f, i):\n    return True"}}]}
    )
    pack = small(tmp_path / "p", pack_yaml=yaml.safe_dump(head), tools_py=BLIND, tasks_jsonl=[GOOD, ADD, checked])
    report = await gate(pack)
    assert {str(verdict.findings) for verdict in report.verdicts if verdict.passed} == set()
    assert [f.fault for f in report.list_findings() if f.refuses] == [Fault.STATE_UNSEEN]
    assert "in 3 tasks" in report.list_findings()[0].detail


async def test_code_that_reads_the_clock_is_a_finding_on_the_pack(tmp_path: Path) -> None:
    pack = small(tmp_path / "p", tasks_jsonl=[GOOD, ADD])
    tools = tmp_path / "p" / "tools.py"
    tools.write_text("import time\n" + tools.read_text())
    report = await gate(Pack.load(tmp_path / "p"))
    assert all(verdict.passed for verdict in report.verdicts)
    assert not report.passed
    assert [(f.fault, f.where) for f in report.findings if f.refuses] == [(Fault.CLOCK, "tools.py, line 1")]
    assert pack.name == "p"


def test_a_record_of_other_results_is_named(tmp_path: Path) -> None:
    small(tmp_path / "p", tasks_jsonl=[GOOD, ADD])
    assert run_simia("pack", "record", tmp_path / "p").returncode == 0
    assert not asyncio.run(gate(Pack.load(tmp_path / "p"))).findings
    tools = tmp_path / "p" / "tools.py"
    tools.write_text(tools.read_text().replace('"done": True}', '"done": True, "left": 0}'))
    report = asyncio.run(gate(Pack.load(tmp_path / "p")))
    assert report.passed
    assert [(f.fault, f.where) for f in report.list_findings()] == [(Fault.STALE_REFERENCE, "todo-1")]


def test_the_docs_name_every_fault_of_the_gate() -> None:
    modules = (verification_gate, reference_checks, pack_coverage, gate_agents)
    sources = [Path(str(module.__file__)).read_text(encoding="utf-8") for module in modules]
    named = {Fault[name] for text in sources for name in re.findall(r"Fault\.([A-Z_]+)", text)}
    docs = (Path(__file__).parents[2] / "docs" / "packs.md").read_text(encoding="utf-8")
    assert {str(fault) for fault in named if f"`{fault}`" not in docs} == set()


def test_tasks_that_luck_solves_are_named() -> None:
    verdicts = [TaskVerdict(name, floors={"random": value}) for name, value in (("a", 0.0), ("b", 0.5), ("c", 1.0))]
    verdicts += [TaskVerdict(name, floors={"random": 1.0}) for name in "de"]
    line = GateReport(verdicts=verdicts).explain_random_calls()
    assert line == "random calls earn a reward on b, c, d and 1 more: an answer pattern may be too loose there"
    assert GateReport(verdicts=verdicts[:1]).explain_random_calls() == ""


# -- the command -------------------------------------------------------------------------------------------------------


def test_verdicts_are_json_and_the_passing_tasks_a_pack(tmp_path: Path) -> None:
    bad = task(READ, reward={"parts": [{"kind": "state"}]})
    small(tmp_path / "p", tasks_jsonl=[GOOD, bad, ADD])
    assert run_simia("pack", "record", tmp_path / "p").returncode == 0
    done = run_simia("pack", "gate", tmp_path / "p", "--json", "--write", tmp_path / "q")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert (report["pack"], report["tasks"], report["passed"]) == ("p", 3, 2)
    assert report["floors"] == {"nothing": 0, "canned": 0, "echo": 0, "policy": 0, "random": 0, "all_calls": 0}
    assert [v["task"] for v in report["verdicts"] if not v["passed"]] == ["odd"]
    assert report["verdicts"][1]["findings"][0]["fault"] == "nothing_to_verify"
    written = Pack.load(tmp_path / "q")
    assert [row.id for row in written.tasks] == ["todo-1", "add"]
    assert set(written.references) == {"todo-1", "add"}
    again = run_simia("pack", "gate", tmp_path / "q")
    assert again.returncode == 0, again.stdout
    assert "2 of 2 tasks passed; doing nothing earns 0.000 on average, random calls 0.000" in " ".join(
        again.stdout.split()
    )


def test_the_gate_explains_that_all_calls_solve_the_only_task(tmp_path: Path) -> None:
    small(tmp_path / "p", tasks_jsonl=[GOOD])
    done = run_simia("pack", "gate", tmp_path / "p")
    assert done.returncode == 0, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert "all calls 1.000" in words
    assert (
        "on the task it ends in the same state as the task's own solution, which is normal in a pack with a single solution"
        in words
    )


def test_the_copy_never_replaces_a_folder_and_never_lies_in_the_pack(tmp_path: Path) -> None:
    small(tmp_path / "p", tasks_jsonl=[GOOD, ADD])
    (tmp_path / "q").mkdir()
    (tmp_path / "q" / "mine.txt").write_text("mine")
    for folder, words in ((tmp_path / "q", "exists"), (tmp_path / "p" / "q", "inside the pack")):
        done = run_simia("pack", "gate", tmp_path / "p", "--write", folder)
        assert done.returncode == 2
        assert words in done.stderr
    assert (tmp_path / "q" / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "p" / "q").exists()
