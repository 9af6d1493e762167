"""tau2's domains as packs: what the importer writes, and the driver beside tau2's own environment and evaluators.

The comparison itself runs in tau2's environment (`tau2_probe.py`), which is built once and kept in the cache.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from simia.authoring.gate_agents import play_task
from simia.authoring.reference_checks import find_writes, remove_action, value_or_zero
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.users import ScriptedUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.importers import tau2
from simia.pack import Pack
from simia.sandbox.capabilities import probe_isolation
from simia.trajectory import ToolCall
from simia.venvs import RECIPES, Recipe

PROBE = Path(__file__).parent / "tau2_probe.py"
SIZES = {"retail": (114, 15, 0), "airline": (50, 14, 0), "telecom": (2285, 13, 30)}  # tasks, tools, users' tools
STEP = {"retail": 10, "airline": 4, "telecom": 190}  # every so many-th task is compared: twelve or thirteen of each
DOMAINS = pytest.mark.parametrize("domain", list(SIZES))


@pytest.fixture(scope="session")
def packs(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("tau2")
    return {domain: tau2.import_domain(domain, root / domain, print) for domain in SIZES}


def test_an_unknown_domain_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^tau2 has no domain 'retial'; did you mean 'retail'[?]$"):
        tau2.import_domain("retial", tmp_path / "out")
    with pytest.raises(UserError, match=r"^tau2 has no domain 'banking'; there are: retail, airline, telecom$"):
        tau2.import_domain("banking", tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    out = tmp_path / "mine"
    (out / "inner").mkdir(parents=True)
    with pytest.raises(UserError, match=r"exists and is not empty: remove it or choose another folder$"):
        tau2.import_domain("retail", out)
    assert [path.name for path in out.iterdir()] == ["inner"]


@pytest.mark.usefixtures("environments")
def test_an_environment_that_cannot_be_built_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from simia.cli.imports import app

    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))
    broken = Recipe(
        name="tau2",
        size="nothing",
        steps=(("--no-index", "--find-links=/nowhere", "no-such-thing-as-this==1"),),
        stubs=(),
        probe="",
    )
    monkeypatch.setitem(RECIPES, "tau2", broken)
    done = CliRunner().invoke(app, ["tau2", "airline", "--out", str(tmp_path / "out")])
    assert isinstance(done.exception, UserError)
    assert "could not be built" in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_reward_is_what_the_basis_names() -> None:
    criteria: dict[str, Any] = {
        "actions": [
            {"requestor": "assistant", "name": "note", "arguments": {"id": "1", "text": "x"}, "compare_args": ["id"]},
            {"requestor": "user", "name": "look", "arguments": {"at": "it"}, "compare_args": None},
        ],
        "env_assertions": [{"env_type": "user", "func_name": "on", "arguments": {"n": 1}, "assert_value": False}],
        "communicate_info": ["12.50"],
        "nl_assertions": ["The agent is kind."],
        "reward_basis": ["DB", "ENV_ASSERTION", "COMMUNICATE", "ACTION", "NL_ASSERTION"],
    }
    assert tau2.convert_reward(criteria) == {
        "parts": [
            {"kind": "state"},
            {"kind": "checklist", "calls": [{"name": "on", "by": "user", "arguments": {"n": 1}, "expect": False}]},
            {"kind": "answer", "match": "contains", "expect": ["12.50"]},
            {"kind": "trace", "mask": {"note": ["text"]}},
        ],
        "combine": "product",
        "unjudged": ["The agent is kind."],
    }
    # What the basis does not name is no part, and what it finds nothing to compare in is none either.
    assert tau2.convert_reward({**criteria, "reward_basis": ["ACTION"]})["parts"] == [
        {"kind": "trace", "mask": {"note": ["text"]}}
    ]
    empty = {**criteria, "communicate_info": [], "reward_basis": ["DB", "COMMUNICATE"]}
    anything = {
        "kind": "answer",
        "match": "regex",
        "expect": ["\\S"],
    }  # a state alone would earn nothing where none changes
    assert tau2.convert_reward(empty) == {"parts": [{"kind": "state"}, anything], "combine": "product"}
    nothing = {**criteria, "actions": None, "env_assertions": None, "reward_basis": ["DB"]}
    assert tau2.convert_reward(nothing)["parts"] == []


def test_masks_that_differ_are_named_as_not_judged() -> None:
    action = {"requestor": "assistant", "name": "note", "arguments": {"id": "1", "text": "x"}}
    mask, odd = tau2.find_argument_masks([{**action, "compare_args": ["id"]}, {**action, "compare_args": []}])
    assert mask == {"note": ["text"]}
    assert odd == ["the arguments that count differ between the reference's calls of note"]


def test_a_task_that_has_nothing_to_judge_is_named() -> None:
    task = {
        "id": "7",
        "instruction": "",
        "description": None,
        "ticket": None,
        "initial_state": None,
        "evaluation_criteria": None,
    }
    with pytest.raises(UserError, match=r"^task '7' of tau2 cannot be converted: reward.parts: "):
        tau2.convert_task(task, [])


@DOMAINS
def test_the_pack_is_whole(packs: dict[str, Path], domain: str) -> None:
    pack = Pack.load(packs[domain])
    assert (len(pack.tasks), len(pack.tools), len(pack.user_tools)) == SIZES[domain]
    assert "Evaluation only" in pack.description
    assert pack.match == {}, "whatever tau2 compares exactly stays exact"
    assert "Copyright (c) 2025 Sierra Research" in (packs[domain] / "LICENSE").read_text()
    assert "Apache License" in (packs[domain] / "LICENSE").read_text()
    known = {"agent": {t.name: t for t in pack.tools}, "user": {t.name: t for t in pack.user_tools}}
    wrong = [
        (task.id, action.name)
        for task in pack.tasks
        for action in task.actions
        if action.name not in known[action.by] or known[action.by][action.name].argument_errors(action.arguments)
    ]
    assert wrong == [], "references fit the schemas of their tools"
    kinds = Counter(part.kind for task in pack.tasks for part in task.reward.parts)
    if domain == "telecom":
        assert kinds == {"checklist": 2285, "trace": 32}
        assert all(
            "transfer_to_human_agents" in p.mask for t in pack.tasks for p in t.reward.parts if p.kind == "trace"
        )
        assert "<tech_support_policy>" in str(pack.policy)
    else:
        assert kinds == {"state": SIZES[domain][0], "answer": SIZES[domain][0]}
        told = [
            part for task in pack.tasks for part in task.reward.parts if getattr(part, "expect", ["\\S"]) != ["\\S"]
        ]
        assert len(told) == {"retail": 38, "airline": 6}[domain]
    assert all(task.tags[-1] == "no_change" for task in pack.tasks if not task.actions)
    assert {task.split for task in pack.tasks} >= {"train", "test"}
    assert all(task.instruction.startswith(("Instructions:\n\tDomain: ", "Persona:\n")) for task in pack.tasks)
    assert yaml.safe_load((packs[domain] / "pack.yaml").read_text())["executable"]["python"] == "tau2"


@pytest.mark.parametrize("domain", [d if d == "telecom" else pytest.param(d, marks=pytest.mark.all) for d in SIZES])
def test_the_driver_is_tau2(environments: Callable[[str], Path], packs: dict[str, Path], domain: str) -> None:
    """Texts, states, assertions and resets of references equal tau2's own; and tau2's evaluators give them full marks."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(
        [environments("tau2"), "-s", "-P", "-B", PROBE, packs[domain], str(STEP[domain])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr == "", "tau2's logger is silent"
    found = json.loads(done.stdout)
    print(f"{domain}: built in {found['built']} s; {found['speed']}")
    tasks = found["tasks"]
    assert len(tasks) >= 12
    assert found["ids"]
    assert found["policy"]
    assert found["reads"], "a tool that is said to read changed the state"
    assert {t["task"]: t["differs"] for t in tasks if t["differs"]} == {}
    assert {t["task"]: t["reward"] for t in tasks if t["reward"] != 1} == {}
    assert all(all(t["checks"]) for t in tasks)
    if domain == "telecom":
        assert all(t["checks"] for t in tasks)
        assert found["kinds"]["user"]["toggle_data"]
        assert not found["kinds"]["user"]["check_status_bar"]
    else:
        assert all(t["gold_same"] for t in tasks)
        assert not any(found["kinds"]["agent"][name] for name in ("calculate", "transfer_to_human_agents"))
    assert found["episode"] == [], "what tau2 draws or keeps belongs to an episode"


@DOMAINS
async def test_it_runs_in_the_sandbox(packs: dict[str, Path], domain: str) -> None:
    pack = Pack.load(packs[domain])
    backend = ExecutableBackend(pack, unsafe=not probe_isolation().works)
    try:
        task = next(task for task in pack.tasks if any(backend_writes(action.name) for action in task.actions))
        world = await backend.open(task)
        for number, action in enumerate(task.actions):
            call = ToolCall(id=str(number), name=action.name, arguments=action.arguments)
            (result,) = await world.call([call], by=action.by)
            assert result.error is None, result.content
        evidence = await world.evidence()
        assert evidence["changes"]
        assert evidence["changes"] == await backend.expected(task, 0)
        assert all(value is True for value in evidence.get("checks", {}).values())
        assert ("checks" in evidence) is (domain == "telecom")
        before = await world.state()
        arguments: dict[str, dict[str, Any]] = {
            "retail": {"order_id": "#W0", "reason": "no longer needed"},
            "airline": {"reservation_id": "NONE00"},
            "telecom": {"customer_id": "C0", "line_id": "L0"},
        }
        name = {"retail": "cancel_pending_order", "airline": "cancel_reservation", "telecom": "resume_line"}[domain]
        (refused,) = await world.call([ToolCall(id="no", name=name, arguments=arguments[domain])])
        assert (
            refused.content
            == {
                "retail": "Error: Order not found",
                "airline": "Error: Reservation NONE00 not found",
                "telecom": "Error: Customer with ID C0 not found",
            }[domain]
        )
        assert await world.state() == before, "a refusal sets the state back to what it was"
        await world.close()
    finally:
        await backend.close()


def backend_writes(name: str) -> bool:
    return name.startswith(("cancel_", "modify_", "update_", "return_", "exchange_", "book_", "toggle_", "reseat_"))


@DOMAINS
async def test_references_score_and_less_does_not(packs: dict[str, Path], domain: str) -> None:
    """A sample of what eval/bench/tau2.py does with every task."""
    async with await open_environment(str(packs[domain]), user="none") as environment:
        assert isinstance(environment.backend, ExecutableBackend)
        await environment.backend.start_zygote()
        tasks = environment.tasks[:: len(environment.tasks) // 8][:8]
        short = 0
        for task in tasks:
            full = await play_task(environment, task, ReferenceAgent(task), ScriptedUser(task))
            assert value_or_zero(full.reward) == 1, (task.id, full.reward)
            last = next(iter(find_writes(environment, task, full)), None)
            if last is not None and (full.evidence or {})["changes"]:
                less = remove_action(task, last)
                assert (
                    value_or_zero((await play_task(environment, task, ReferenceAgent(less), ScriptedUser(less))).reward)
                    == 0
                ), task.id
                short += 1
        assert short >= 3
