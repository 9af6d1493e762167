"""A rollout as a run: rewards, acceptance, resumption, export; and agents without a model."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia.cli import build_app
from simia.config import load_config
from simia.envs.opening import open_environment
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.player import play
from simia.envs.play.random_arguments import Sampler
from simia.errors import UserError
from simia.jobs import Run
from simia.pack import Pack
from simia.report.rollout_report import rank_tasks
from simia.rollouts.session import RolloutResult as RolledOut
from simia.rollouts.session import resume_rollout, start_rollout
from simia.rollouts.settings import RolloutConfig
from simia.tool import compile_schema
from simia.trajectory import Trajectory
from tests.packs.small import small


async def rolled(tmp_path: Path, *settings: str, **fields: Any) -> RolledOut:
    config = load_config(RolloutConfig, "rollout/default", settings, pack=str(tmp_path / "todos"), **fields)
    return await start_rollout(config, runs=tmp_path / "runs", name="r", say=lambda _: None)


def trajectories(tmp_path: Path) -> list[Trajectory]:
    run = Run.read_only(tmp_path / "runs", "r")
    found = [Trajectory.from_row(body["trajectory"]) for body in run.ledger.accepted()]
    run.close()
    return found


@pytest.mark.parametrize(
    ("agent", "mean"), [("reference", 1.0), ("nothing", 0.0), ("canned", 0.0), ("echo", 0.0), ("policy", 0.0)]
)
async def test_agents_without_a_model_get_what_they_deserve(tmp_path: Path, agent: str, mean: float) -> None:
    small(tmp_path / "todos")
    done = await rolled(tmp_path, agent=agent, group=2)
    assert done.complete
    assert done.scores.mean is not None
    assert (done.scores.episodes, done.scores.mean.value) == (4, mean)
    assert done.accepted == (2 if mean else 0), "equal conversations are accepted once"
    for t in trajectories(tmp_path):
        assert t.system
        assert t.tools
        assert t.reward is not None
        assert (t.reward.value, t.provenance.run, t.provenance.licence) == (1.0, "r", "unknown")


async def test_the_random_agent_makes_well_formed_calls_and_the_same_ones_again(tmp_path: Path) -> None:
    pack = Pack.load("customer_service")
    specs = {tool.name: tool for tool in pack.tools}
    async with await open_environment(pack, user="none") as environment:
        made = []
        for _ in range(2):
            for task in pack.tasks[:12]:
                made.append(await play(await environment.reset(task), AGENTS["random"](task, 0)))
    assert [t.id for t in made[:12]] == [t.id for t in made[12:]]
    calls = [call for t in made for _, _, call in t.calls()]
    assert len(calls) > 40
    for call in calls:
        assert call.arguments is not None
        assert specs[call.name].argument_errors(call.arguments) == []


def test_the_sampler_draws_what_schemas_allow() -> None:
    import random

    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 3, "maximum": 5},
            "b": {"enum": ["x", "y"]},
            "c": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/row"}]},
            "d": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}, "minItems": 1},
            "e": {"type": ["boolean", "null"]},
            "f": {"type": "string", "format": "email"},
        },
        "required": ["a", "b", "c", "d"],
        "additionalProperties": False,
        "$defs": {"row": {"type": "object", "properties": {"n": {"type": "number", "minimum": 0}}, "required": ["n"]}},
    }
    compiled, source = compile_schema(schema), random.Random(0)
    for _ in range(200):
        value = Sampler(source).object(schema)
        assert compiled.errors(value) == []


async def test_a_split_or_task_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    for fields, words in (({"split": "tset"}, "its splits: test, train"), ({"tasks": ["todo-3"]}, "did you mean")):
        with pytest.raises(UserError, match=words):
            await rolled(tmp_path, agent="reference", **fields)
    assert (await rolled(tmp_path, agent="reference", split="test")).scores.episodes == 1


async def test_what_a_rollout_accepts_is_exported_as_training_data(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    await rolled(tmp_path, agent="reference")
    out = tmp_path / "data"
    words = ["export", "r", "--to", "llamafactory", "--out", str(out), "--runs", str(tmp_path / "runs")]
    result = CliRunner().invoke(build_app(), words)
    assert result.exit_code == 0, result.output
    assert "finish_todo" in "".join(path.read_text() for path in out.glob("*.json*"))


def simia(*words: str, cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "simia", *words], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_a_rollout_that_was_stopped_goes_on_and_ends_like_any_other(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the run names its pack as it was given
    slow = (
        "    @read\n    def list_todos(self, open_only: bool = False) -> list[dict]:\n",
        "    @read\n    def list_todos(self, open_only: bool = False) -> list[dict]:\n        sum(range(10**6))\n",
    )
    small(tmp_path / "todos")
    code = tmp_path / "todos" / "tools.py"
    code.write_text(code.read_text().replace(*slow))
    words = ["rollout", "todos", "--agent", "reference", "--group", "150", "--name", "r", "--set", "concurrency=4"]
    process = simia(*words, cwd=tmp_path)
    wait_for_some(process, tmp_path)
    os.kill(process.pid, number)
    said = process.communicate(timeout=240)[0].decode()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert [line.partition(",")[0] for line in said.splitlines() if line.startswith(("stopping", "next:"))] == [
            "stopping",
            "next: simia runs resume r",
        ]
    before = progress(tmp_path)
    assert 5 < before < 300
    done = await resume_rollout("r", runs=tmp_path / "runs", say=lambda _: None)
    assert done.complete
    assert done.scores.mean is not None
    assert (done.scores.episodes, done.scores.mean.value) == (300, 1.0)
    assert done.accepted == 2


def test_a_narrow_terminal_cuts_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    name = "a_task_with_a_long_name_that_a_narrow_terminal_has_no_room_for"
    tasks = tmp_path / "todos" / "tasks.jsonl"
    tasks.write_text(tasks.read_text().replace('"todo-1"', f'"{name}"'))
    runner, app = CliRunner(env={"COLUMNS": "40"}), build_app()
    runner.invoke(app, ["rollout", "todos", "--agent", "reference", "--name", "r"])
    shown = runner.invoke(app, ["runs", "show", "r"]).output
    assert name in re.sub(r"[\s│]|\d+|\.", "", shown)
    assert "…" not in shown


async def test_a_check_that_times_out_is_played_again_by_a_resume(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    tasks = tmp_path / "todos" / "tasks.jsonl"
    rows = [json.loads(line) for line in tasks.read_text().splitlines()]
    rows[0]["reward"] = {"parts": [{"kind": "checklist", "functions": ["is_done"]}]}
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    head = tmp_path / "todos" / "pack.yaml"
    head.write_text(head.read_text() + "\nchecks: checks.py\n")
    checks = tmp_path / "todos" / "checks.py"
    checks.write_text("def is_done(final, initial):\n    while True:\n        pass\n")
    limits = {"limits": {"wall": 1, "start": 4}}
    done = await rolled(tmp_path, agent="reference", backend_settings=limits)
    assert (done.stop.kind, done.accepted) == ("aborted", 1)
    assert "1 aborted, mostly: check_timeout: checklist: is_done" in done.stop.detail
    assert "no answer within 4 s" in done.stop.detail
    checks.write_text(
        "def is_done(final, initial):\n    return any(each['done'] for each in final['todos'].values())\n"
    )
    done = await resume_rollout("r", runs=tmp_path / "runs", say=lambda _: None)
    assert (done.stop.kind, done.accepted) == ("complete", 2)


def wait_for_some(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ledger, deadline = tmp_path / "runs" / "r" / "ledger.db", time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None and not (ledger.exists() and progress(tmp_path) > 5):
        time.sleep(0.02)


def progress(tmp_path: Path) -> int:
    import sqlite3

    try:
        run = Run.read_only(tmp_path / "runs", "r")
    except (UserError, sqlite3.Error):
        return 0
    try:
        return sum(item.status == "passed" for item in run.ledger.items())
    except sqlite3.Error:
        return 0
    finally:
        run.close()


def test_the_command_says_what_to_do_next_and_runs_show_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runner, app = CliRunner(), build_app()
    assert runner.invoke(app, ["pack", "new", "todos"]).exit_code == 0
    assert runner.invoke(app, ["pack", "validate", "todos"]).exit_code == 0
    assert runner.invoke(app, ["pack", "gate", "todos"]).exit_code == 0
    shown = runner.invoke(app, ["pack", "show", "todos"])
    assert "executable (process)" in shown.output.replace("\n", " ")
    assert json.loads(runner.invoke(app, ["pack", "show", "todos", "todo-1"]).output)["id"] == "todo-1"
    done = runner.invoke(app, ["rollout", "todos", "--agent", "reference", "--name", "first"])
    assert done.exit_code == 0, done.output
    assert "next: simia export first" in done.output
    assert "pass@1" in runner.invoke(app, ["runs", "show", "first"]).output
    assert "first" in runner.invoke(app, ["runs", "list"]).output
    assert "finish_todo" in runner.invoke(app, ["runs", "show", "first", "--item", "todo-1.0"]).output
    assert "episodes with another reward than before: 0" in runner.invoke(app, ["runs", "recheck", "first"]).output
    runs = sorted(path.name for path in (tmp_path / "runs").iterdir())
    for words, line in (
        (["rollout", "todos", "--agent", "reference", "--set", "user=nobody"], "no user named"),
        (["rollout", "todos", "--agent", "reference", "--backend", "nobody"], "no back end named"),
        (["runs", "resume", "first", "--n", "5"], "--n is not supported"),
        (["pack", "new", "todos"], "is not empty"),
        (["rollout", "todoz"], "no pack named"),
        (["rollout", "todos", "--agent", "refrence"], "agent"),
    ):
        result = runner.invoke(app, words)
        assert isinstance(result.exception, UserError), words
        assert line in str(result.exception)
        assert "\n" not in str(result.exception)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == runs, "a mistake makes no run"


async def test_a_benchmarks_episodes_never_become_training_data(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    path = tmp_path / "todos" / "pack.yaml"
    path.write_text(path.read_text() + "evaluation: true\n")
    await rolled(tmp_path, agent="reference")
    words = ["export", "r", "--to", "llamafactory", "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    result = CliRunner().invoke(build_app(), words)
    assert "2 of todos were left out: its tasks are for evaluation only" in result.output.replace("\n", " ")
    assert not (tmp_path / "out" / "data.jsonl").exists() or not (tmp_path / "out" / "data.jsonl").read_text()


async def test_nor_do_those_of_single_tasks_that_are_a_benchmarks(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    path = tmp_path / "todos" / "tasks.jsonl"
    first, *others = [json.loads(line) for line in path.read_text().splitlines()]
    rows = [{**first, "tags": ["evaluation"]}, *others]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    await rolled(tmp_path, agent="reference")
    words = ["export", "r", "--to", "llamafactory", "--out", str(tmp_path / "out"), "--runs", str(tmp_path / "runs")]
    result = CliRunner().invoke(build_app(), words)
    assert "1 of todos were left out: its tasks are for evaluation only" in result.output.replace("\n", " ")
    assert result.exit_code == 0, result.output
    assert len((tmp_path / "out" / "data.jsonl").read_text().splitlines()) == 1


def test_what_reads_amplifications_says_what_a_rollout_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    runner, app = CliRunner(), build_app()
    assert runner.invoke(app, ["rollout", "todos", "--agent", "random", "--name", "r"]).exit_code == 0
    report = runner.invoke(app, ["report", "r"])
    assert report.exit_code == 0
    assert "hardest first" in report.output
    for words in (["judge", "r"], ["runs", "diff", "r", "r"]):
        result = runner.invoke(app, words)
        assert isinstance(result.exception, UserError), words
        assert "rollout" in str(result.exception)


def test_a_task_without_a_scored_episode_is_not_among_the_hardest() -> None:
    ranked, unscored = rank_tasks({"lost": [None, None], "half": [0.5, None], "never": [0.0], "always": [1.0, 1.0]})
    assert ranked == [(0.0, "never", 1), (0.5, "half", 2), (1.0, "always", 2)]
    assert unscored == ["lost"]


def test_an_endpoint_is_asked_with_its_own_tool_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake endpoint for the form of the request only: what it is sent, and that its answer becomes the agent's words."""
    from tests.fake_endpoint import FakeEndpoint

    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        words = ["rollout", "todos", "--name", "e", "--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=m"]
        result = CliRunner().invoke(build_app(), [*words, "--limit", "1"])
        assert result.exit_code == 0, result.output
        assert "runs resume" not in result.output
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["e"]
        body = endpoint.requests[0]["body"]
        assert [tool["function"]["name"] for tool in body["tools"]] == ["list_todos", "add_todo", "finish_todo"]
        assert [m["role"] for m in body["messages"]] == ["system", "user"]
        assert "<tools>" not in body["messages"][0]["content"]
    finally:
        endpoint.stop()


async def test_an_endpoint_that_answers_nobody_stops_the_run(tmp_path: Path) -> None:
    """The other roles would be paid for in vain, episode by episode."""
    from tests.fake_endpoint import FakeEndpoint

    small(tmp_path / "todos")
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    model = ["agent=llm", "llm.kind=openai", "llm.model=m", f"llm.base_url={endpoint.url}"]
    try:
        endpoint.plan(rate=1.0, mix=["401"])
        done = await rolled(tmp_path, *model, group=20, concurrency=4)
        assert (done.stop.kind, "HTTP 401" in done.stop.detail) == ("endpoint", True)
        assert endpoint.log()["count"] <= 8 + 4
        endpoint.plan()
        more = await resume_rollout("r", runs=tmp_path / "runs", say=lambda _: None)
        assert (more.stop.kind, more.scores.episodes) == ("complete", 40)
    finally:
        endpoint.stop()
