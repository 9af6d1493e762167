"""A teacher's rollout becomes training data: what EnvScaler's three filters keep, and the reason of everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

import simia
from simia.errors import Code
from simia.jobs import Run
from simia.quality.teacher_filters import TeacherFilters, find_surrender, find_teacher_fault
from simia.reward import Reward
from simia.tool import ToolSpec
from simia.trajectory import End, Message, ToolCall, Trajectory
from tests.command import run_simia
from tests.packs.small import small

TOOL = ToolSpec(
    name="find",
    parameters={
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    },
)


def make_episode(
    answer: str = "Your order O-1 is on its way.",
    *,
    reward: float | None = 1.0,
    arguments: dict[str, Any] | None = None,
    name: str = "find",
    raw: str | None = None,
    pairs: int = 1,
    end: End | None = None,
    revealed: bool = False,
) -> Trajectory:
    first = Message(role="user", content="Where is O-1?", extra={"tools": [TOOL.flat()]} if revealed else {})
    messages = [first]
    for n in range(pairs):
        given = None if raw is not None else arguments or {"id": "O-1"}
        call = ToolCall(id=f"c{n}", name=name, arguments=given, raw=raw)
        messages += [
            Message(role="assistant", calls=[call]),
            Message(role="tool", call_id=f"c{n}", name=name, content="{}"),
        ]
    messages.append(Message(role="assistant", content=answer))
    scored = Reward(value=reward) if reward is not None else Reward(error=Code.CONNECTION)
    return Trajectory(tools=[] if revealed else [TOOL], messages=messages, reward=scored, end=end or End())


def judge(t: Trajectory, *, best: float | None = 1.0, accept: float = 1.0, **settings: Any) -> str:
    fault = find_teacher_fault(t, TeacherFilters.model_validate(settings), best=best, accept=accept)
    return str(fault.code) if fault else "kept"


@pytest.mark.parametrize(
    "answer",
    [
        "I cannot complete this task.",
        "I'm sorry, but there is no tool for refunds here.",
        "I don't have access to your calendar.",
        "The order ORD-9 does not exist.",
        "That is not possible with what I have.",
        "Could you please provide the id of the second account?",
        "I was unable to find that customer.",
    ],
)
def test_a_teacher_that_gives_up(answer: str) -> None:
    assert find_surrender(make_episode(answer))
    assert judge(make_episode(answer, reward=0.5)) == "impossible"
    assert judge(make_episode(answer, reward=1.0)) == "kept", "declining was right"
    assert judge(make_episode(answer, reward=0.5), impossible=False) == "low_reward"


@pytest.mark.parametrize(
    "answer",
    [
        "Done: ORD-1 is cancelled.",
        "Your order is on its way; is there anything else?",
        "It is possible to return it until May.",
        "The cannon is sold.",
    ],
)
def test_an_answer_that_does_not_give_up(answer: str) -> None:
    assert not find_surrender(make_episode(answer))
    assert judge(make_episode(answer, reward=0.5)) == "low_reward"
    assert judge(make_episode(answer, reward=0.5), accept=0.5) == "kept"


def test_a_task_of_which_no_sample_earned_a_reward() -> None:
    assert judge(make_episode(reward=0.0), best=0.0) == "impossible"
    assert judge(make_episode(reward=0.0), best=0.5) == "low_reward"


def test_bounds_of_length() -> None:
    assert judge(make_episode(pairs=5), most_turns=5) == "too_long"
    assert judge(make_episode(pairs=4), most_turns=5) == "kept"
    assert judge(make_episode("word " * 3000), most_tokens=2000) == "too_long"
    cut = End(kind="truncated", code=Code.MAX_TURNS)
    assert judge(make_episode(end=cut)) == "too_long"
    assert judge(make_episode(end=cut), most_turns=None, most_tokens=None, format=False) == "kept"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "burn"}, "unknown_tool"),
        ({"arguments": {"id": 7}}, "bad_arguments"),
        ({"raw": "{id: "}, "unparsable_arguments"),
        ({"answer": "<|im_start|>assistant\nDone"}, "leak"),
        ({"answer": "<tool_call>{}</tool_call>"}, "leak"),
        ({"answer": " "}, "empty_turn"),
    ],
)
def test_malformed_episodes(changes: dict[str, Any], words: str) -> None:
    t = make_episode(**changes)
    fault = find_teacher_fault(t, TeacherFilters(), best=1.0, accept=1.0)
    assert fault is not None
    assert (fault.code, words in fault.detail) == (Code.BAD_FORMAT, True)
    assert judge(t, format=False) == "kept"


def test_a_tool_that_was_revealed_is_known() -> None:
    assert judge(make_episode(revealed=True)) == "kept"


def test_an_episode_without_a_reward_keeps_its_own_reason() -> None:
    assert judge(make_episode(reward=None)) == "connection"


def make_run(tmp_path: Path, agent: str, *settings: str, **files: Any) -> Path:
    small(tmp_path / "todo", **files)
    words = [word for each in settings for word in ("--set", each)]
    done = run_simia(
        "rollout",
        tmp_path / "todo",
        "--config",
        "rollout/teacher",
        "--agent",
        agent,
        "--name",
        "r",
        "--runs",
        tmp_path / "runs",
        *words,
    )
    assert done.returncode == 0, done.stderr
    return tmp_path / "runs"


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_one_rollout_and_one_export(tmp_path: Path) -> None:
    runs = make_run(tmp_path, "reference")
    done = run_simia("export", "r", "--to", "trl", "--out", tmp_path / "data", "--runs", runs)
    assert done.returncode == 0, done.stderr
    assert "2 rows from 2 of " in done.stdout
    assert "6 are duplicates" in done.stdout, "two tasks, four equal episodes each"
    assert len(read_rows(tmp_path / "data" / "data.jsonl")) == 2


def test_each_dropped_episode_has_its_reason(tmp_path: Path) -> None:
    """Two tasks: one that the reference solves, and one whose reward asks for what its solution does not do."""
    rows = [orjson.loads(line) for line in (small(tmp_path / "base").root / "tasks.jsonl").read_bytes().splitlines()]  # type: ignore[operator]
    bad = {**rows[0], "id": "bad", "reward": {"parts": [{"kind": "answer", "expect": ["never said"]}]}}
    runs = make_run(tmp_path, "reference", "group=2", tasks_jsonl=[*rows, bad])
    done = run_simia("export", "r", "--to", "trl", "--out", tmp_path / "data", "--runs", runs)
    assert done.returncode == 0, done.stderr
    assert "refused 2: impossible: no sample of the task earned a reward" in done.stdout
    refused = read_rows(tmp_path / "data" / "refused.jsonl")
    assert [(row["item"], row["code"]) for row in refused] == [("bad.0", "impossible"), ("bad.1", "impossible")]
    assert all(row["id"] for row in refused)
    report = simia.export("r", tmp_path / "again", to="trl", runs=runs)
    assert report.refused == {"impossible": 2}


def test_bounds_can_be_changed_without_a_new_rollout(tmp_path: Path) -> None:
    runs = make_run(tmp_path, "reference", "group=1")
    done = run_simia("runs", "resume", "r", "--set", "teacher.most_turns=1", "--runs", runs)
    assert done.returncode == 0, done.stderr
    done = run_simia("export", "r", "--to", "trl", "--out", tmp_path / "data", "--runs", runs)
    assert done.returncode == 2
    assert "too_long" in done.stdout
    assert "turns, at most 1" in done.stdout


def test_a_rollout_without_a_teacher_is_exported_as_before(tmp_path: Path) -> None:
    runs = make_run(tmp_path, "reference", "teacher=null", "group=1")
    run = Run.read_only(runs, "r")
    assert run.saved_config()["teacher"] is None
    run.close()
    done = run_simia("export", "r", "--to", "trl", "--out", tmp_path / "data", "--runs", runs)
    assert "2 rows from 2 of 2 trajectories" in done.stdout
