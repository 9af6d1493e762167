"""ACEBench-Agent as packs: a small folder of ours in its form; and, where its repository is at hand, its own verdicts beside simia's rewards."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import Code, UserError
from simia.importers import acebench
from simia.pack import Pack
from simia.task import Task
from simia.trajectory import Message, ToolCall, Trajectory
from tests.command import run_simia
from tests.importers.small_acebench import write_folder

BENCHMARK = Path(os.environ.get("SIMIA_ACEBENCH") or Path(__file__).parents[3] / "shared/data/ACEBench")
benchmark = pytest.mark.skipif(not BENCHMARK.is_dir(), reason=f"ACEBench's repository is not at {BENCHMARK}")
PROBE = Path(__file__).parent / "acebench_probe.py"
SIZE = {"multi_step": 20, "multi_turn_phone": 20, "multi_turn_travel": 10}
Calls = list[tuple[str, dict[str, Any]]]


class CallsAgent:
    """Makes these calls, then says a word."""

    def __init__(self, calls: Calls) -> None:
        self._calls = list(calls)

    async def act(self, view: Any) -> tuple[Message, None]:
        if not self._calls:
            return Message(role="assistant", content="Done."), None
        name, arguments = self._calls.pop(0)
        return Message(role="assistant", calls=[ToolCall(id="1", name=name, arguments=arguments)]), None


async def play_all(pack: Path, episodes: Sequence[tuple[str, Any]]) -> list[Trajectory]:
    """Play task and agent, one after the other; the user says the instruction."""
    environment = await open_environment(str(pack), backend="executable", user="scripted")
    tasks = {task.id: task for task in environment.tasks}
    played = [await play(await environment.reset(tasks[name]), agent) for name, agent in episodes]
    await environment.close()
    return played


def values(played: list[Trajectory]) -> list[float | None]:
    return [each.reward.value if each.reward else None for each in played]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "folder")


@pytest.mark.parametrize("part", acebench.PARTS)
async def test_references_score_one_and_doing_nothing_zero(folder: Path, tmp_path: Path, part: str) -> None:
    out = acebench.import_part(folder, part, tmp_path / "pack")
    (task,) = Pack.load(out).tasks
    played = await play_all(out, [(task.id, ReferenceAgent(task)), (task.id, NothingAgent(task))])
    assert values(played) == [1.0, 0.0]


async def test_end_states_are_compared_as_in_acebench(folder: Path, tmp_path: Path) -> None:
    out = acebench.import_part(folder, "multi_step", tmp_path / "pack")
    on, send = ("turn_on_wifi", {}), ("send_message", {"message": "It's late"})
    more: Calls = [on, send, ("send_message", {"message": "More"})]
    ways: list[Calls] = [
        more,
        [on, ("send_message", {"message": "Its late"})],
        [send],
        [on],
        [on, ("search_reminders", {"keyword": "x"}), send],
    ]
    played = await play_all(out, [("agent_multi_step_0", CallsAgent(calls)) for calls in ways])
    assert values(played) == [1.0, 0.0, 0.0, 0.0, 1.0], "what a dictionary has more is allowed"
    errors = [message.error for message in played[4].messages if message.role == "tool"]
    assert errors == [None, Code.TOOL_ERROR, None], "a tool that no class has"
    assert played[2].messages[2].text == '{"status": false}'


def test_the_pack_has_the_benchmarks_words_and_tools(folder: Path, tmp_path: Path) -> None:
    phone = Pack.load(acebench.import_part(folder, "multi_turn_phone", tmp_path / "phone"))
    travel = Pack.load(acebench.import_part(folder, "multi_turn_travel", tmp_path / "travel"))
    assert phone.policy == "Be kind."
    assert travel.policy == "Fly."
    assert (tmp_path / "phone" / "user.md").read_text() == "- One line.\n"
    assert [task.id for task in travel.tasks] == ["agent_multi_turn_1"]
    assert travel.tools[0].parameters["properties"]["seats"]["type"] == "array"
    assert phone.evaluation
    assert phone.tasks[0].actions[1].arguments == {"message": "It's late"}
    assert run_simia("pack", "validate", tmp_path / "phone").returncode == 0


@pytest.mark.parametrize(
    ("remove", "part", "said"),
    [
        ("", "multi_steps", "has no part 'multi_steps'; did you mean 'multi_step'?"),
        ("data_all", "multi_step", r"data_agent_multi_step.json cannot be read: .*; give the path of a checkout of"),
        ("model_inference/multi_turn/scenariosen/travel.py", "multi_step", "travel.py cannot be read"),
        ("model_inference/prompt_en.py", "multi_turn_phone", "prompt_en.py cannot be read"),
    ],
)
def test_a_wrong_folder_is_one_line(folder: Path, tmp_path: Path, remove: str, part: str, said: str) -> None:
    if remove:
        (folder / remove).rename(folder / "elsewhere")
    with pytest.raises(UserError, match=said):
        acebench.import_part(folder, part, tmp_path / "pack")
    assert not (tmp_path / "pack").exists()


def test_data_that_are_not_in_its_form_are_one_line(folder: Path, tmp_path: Path) -> None:
    path = folder / "data_all/data_en/possible_answer/data_agent_multi_step.json"
    path.write_text(json.dumps({"id": "agent_multi_step_0", "ground_truth": []}))
    with pytest.raises(
        UserError, match="task 'agent_multi_step_0' of ACEBench cannot be converted: KeyError: 'mile_stone'"
    ):
        acebench.import_part(folder, "multi_step", tmp_path / "pack")
    (folder / "model_inference" / "apimodel_inference.py").write_text("SAVED_CLASS = dict()\n")
    with pytest.raises(UserError, match="SAVED_CLASS is not a Python literal"):
        acebench.import_part(folder, "multi_turn_phone", tmp_path / "pack")


def test_the_suite_plays_all_parts(folder: Path, tmp_path: Path) -> None:
    words = ("eval", "acebench", "--data", folder, "--agent", "reference", "--name", "r")
    done = run_simia(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    parts = json.loads(run_simia("report", "r", "--json", cwd=tmp_path).stdout)["scores"]["parts"]
    assert {name: part["figures"]["avg@1"]["value"] for name, part in parts.items()} == dict.fromkeys(
        acebench.PARTS, 1.0
    )
    table = run_simia("eval", "table", "envscaler", "main", "--run", "r", cwd=tmp_path).stdout
    ours = next(line for line in table.splitlines() if line.startswith("r (reference)"))
    assert ours.split()[2:] == ["100.00", "100.00", "100.00"]


# -- the benchmark itself -------------------------------------------------------------------------------------------


@benchmark
@pytest.mark.parametrize("part", acebench.PARTS)
async def test_all_references_score_one_and_doing_nothing_zero(tmp_path: Path, part: str) -> None:
    out = acebench.import_part(BENCHMARK, part, tmp_path / "pack")
    tasks = Pack.load(out).tasks
    assert len(tasks) == SIZE[part]
    assert values(await play_all(out, [(task.id, ReferenceAgent(task)) for task in tasks])) == [1.0] * SIZE[part]
    assert values(await play_all(out, [(task.id, NothingAgent(task)) for task in tasks])) == [0.0] * SIZE[part]


@benchmark
@pytest.mark.parametrize("part", acebench.PARTS)
async def test_rewards_are_acebenchs_own_on_altered_references(tmp_path: Path, part: str) -> None:
    out = acebench.import_part(BENCHMARK, part, tmp_path / "pack")
    episodes = [(task.id, calls) for task in Pack.load(out).tasks for calls in alter(task)]
    rows = [{"id": name, "calls": calls} for name, calls in episodes]
    verdicts = ask_acebench(rows)
    assert values(await play_all(out, [(name, CallsAgent(calls)) for name, calls in episodes])) == [
        float(v) for v in verdicts
    ]
    assert 0 < sum(verdicts) < len(verdicts)


def ask_acebench(rows: list[dict[str, Any]]) -> list[bool]:
    """ACEBench's own verdicts, computed in another process."""
    command = [sys.executable, str(PROBE), str(BENCHMARK)]
    done = subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True, check=True)
    found: list[bool] = json.loads(done.stdout)
    return found


def alter(task: Task) -> list[Calls]:
    """The reference, and it without a call, with the last call twice, in another order, with a wrong text, and its first call alone."""
    calls: Calls = [(call.name, call.arguments) for call in task.actions]
    source = random.Random(task.id)
    gone = source.randrange(len(calls))
    wrong: Calls = [
        (name, {key: f"{value}?" if isinstance(value, str) else value for key, value in given.items()})
        for name, given in calls
    ]
    return [
        calls,
        calls[:gone] + calls[gone + 1 :],
        [*calls, calls[-1]],
        source.sample(calls, len(calls)),
        [*calls[:-1], wrong[-1]],
        calls[:1],
    ]
