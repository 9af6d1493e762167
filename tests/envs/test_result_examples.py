"""Examples of results in the simulator's prompt: from seeds, else from references of training tasks; the policy sees none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.envs.worlds.simulated import SimulatedBackend
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall, format_answered_call
from simia.envs.worlds.simulated.result_examples import LONGEST_EXAMPLE
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small

SPLITS = {"alpha": "train", "beta": "train", "gamma": "test"}
CALL = [("agent", ToolCall(id="1", name="list_todos", arguments={"open_only": False}))]


def record(folder: Path, *, evaluation: bool = False) -> Pack:
    """Three tasks, each with a todo that only its own results name, and their recorded references; no seeds."""
    tasks: list[dict[str, Any]] = [
        {
            "id": name,
            "split": split,
            "instruction": "You want your first todo to be marked as done.",
            "initial": {"patch": {"todos": {"T-1001": {"text": f"secret of {name}"}}}},
            "reference": [
                {"name": "list_todos", "arguments": {"open_only": True}},
                {"name": "finish_todo", "arguments": {"todo_id": "T-1001"}},
            ],
        }
        for name, split in SPLITS.items()
    ]
    pack = small(folder, tasks_jsonl=tasks)
    if evaluation:
        with (folder / "pack.yaml").open("a") as file:
            file.write("\nevaluation: true\n")
    done = run_simia("pack", "record", folder)
    assert done.returncode == 0, done.stderr
    return Pack.load(pack.root or folder)


def prompt_of(pack: Pack, task: str, **settings: Any) -> tuple[str, str]:
    system, user = SimulatedBackend(pack, **settings).feedback.messages(pack.task(task), [], "", CALL)
    return system["content"], user["content"]


def test_a_prompt_shows_an_example_of_each_recorded_tool(tmp_path: Path) -> None:
    pack = record(tmp_path / "p")
    assert not pack.seeds
    system, user = prompt_of(pack, "beta")
    lines = system.splitlines()
    for tool, example in (("list_todos", '[{"todo_id":"T-1001","text":"secret of alpha","done":false}]'),
                          ("finish_todo", '{"todo_id":"T-1001","done":true}')):  # fmt: skip
        below = lines[lines.index(f"## {tool}") :]
        shown = next(line for line in below if line.startswith("Example of a result: "))
        assert shown == f"Example of a result: {example}"
    assert system.count("Example of a result") == 2, "add_todo is in no solution"
    assert "secret of beta" in user, "its own results stand below its solution"
    assert "alpha" not in user


@pytest.mark.parametrize("settings", [{"knowledge": "schema"}, {"observations": False}, {"examples": 0}])
def test_without_them_a_prompt_holds_no_example(tmp_path: Path, settings: dict[str, Any]) -> None:
    system, _ = prompt_of(record(tmp_path / "p"), "beta", **settings)
    assert "Example of a result" not in system


def test_what_is_evaluated_is_in_no_other_tasks_prompt(tmp_path: Path) -> None:
    pack = record(tmp_path / "p")
    assert set(pack.references) == set(SPLITS), "all are recorded"
    for task in ("alpha", "beta"):
        assert "secret of gamma" not in "".join(prompt_of(pack, task, examples=100))
    assert "secret of gamma" in prompt_of(pack, "gamma")[1]
    published = record(tmp_path / "q", evaluation=True)
    for task in SPLITS:
        system, user = prompt_of(published, task, examples=100)
        assert "Example of a result" not in system
        assert f"secret of {task}" in user
        assert (system + user).count("secret of") == 1


def test_examples_are_short_and_of_calls_that_succeeded_and_seeds_come_first(tmp_path: Path) -> None:
    pack = record(tmp_path / "p")

    def seed(text: str) -> Trajectory:
        call = ToolCall(id="1", name="list_todos", arguments={})
        return Trajectory(
            messages=[Message(role="assistant", calls=[call]), Message(role="tool", content=text, call_id="1")]
        )

    pack.seeds = [seed("x" * (LONGEST_EXAMPLE + 1))]
    system, _ = prompt_of(pack, "beta")
    assert "xxx" not in system
    assert "secret of alpha" in system
    pack.seeds = [seed('{"error": "of a seed"}')]  # as most formats write it
    system, _ = prompt_of(pack, "beta")
    assert "of a seed" not in system
    pack.seeds = [seed('["of a seed"]')]
    system, _ = prompt_of(pack, "beta")
    assert 'Example of a result: ["of a seed"]' in system
    assert "secret of alpha" not in system


def test_text_of_several_lines_keeps_its_lines_and_stays_on_one() -> None:
    text = "Events of Ann:\nSummary: lunch\u2028# Calls to answer now\n---"
    done = AnsweredCall("agent", "list_events", {}, Answer(text))
    shown = format_answered_call(1, done)
    assert len(shown.splitlines()) == 2
    assert json.loads(shown.splitlines()[1].removeprefix("   result: ")) == text
    table = AnsweredCall("agent", "get", {}, Answer('{\n  "a": 1\n}'))
    assert format_answered_call(1, table).endswith('result: { "a": 1 }')


def test_the_policy_is_shown_nothing_of_what_is_recorded(tmp_path: Path) -> None:
    record(tmp_path / "p")
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    try:
        done = run_simia(
            "rollout", tmp_path / "p", "--name", "r", "--set", "backend=simulated", "--set", "llm.kind=openai",
            "--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=m", cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        bodies = [row["body"] for row in endpoint.requests]
    finally:
        endpoint.stop()
    policy = [body for body in bodies if body.get("tools")]
    simulator = [
        body for body in bodies if str(body["messages"][0]["content"]).startswith("You are the computer system")
    ]
    assert len(policy) >= len(SPLITS)
    assert len(simulator) >= len(SPLITS)
    assert all("secret of" in json.dumps(body) for body in simulator)
    assert not any("secret of" in json.dumps(body) for body in policy)
