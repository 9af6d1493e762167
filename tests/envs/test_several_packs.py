"""Several packs in one environment, and the bound on running sandboxes."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import simia
from simia.authoring.scaffold import scaffold_pack
from simia.envs.opening import open_environment
from simia.envs.pack_patterns import expand_pack_patterns
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.several_packs import PackTasks, mix_tasks
from simia.envs.worlds import worker_parents
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.pack_requests import choose_isolation
from simia.errors import UserError
from simia.pack import Pack
from simia.rollouts.session import resume_rollout
from simia.sandbox.zygote import ForkServer
from simia.search_path import list_names
from simia.task import Task


def make_packs(folder: Path, count: int) -> list[str]:
    found = []
    for number in range(count):
        scaffold_pack(folder / f"todo_{number}")
        found.append(str(folder / f"todo_{number}"))
    return found


async def test_tasks_of_both_packs_are_played_each_in_its_own(tmp_path: Path) -> None:
    packs: list[Any] = [{"pack": "customer_service", "limit": 3}, *make_packs(tmp_path, 1)]
    async with await open_environment({"packs": packs, "user": "scripted"}) as environment:
        ids = [task.id for task in environment.tasks]
        assert {name.partition("/")[0] for name in ids} == {"customer_service", "todo_0"}
        for task in environment.tasks:
            trajectory = await play(await environment.reset(task.id), ReferenceAgent(task))
            assert trajectory.reward is not None
            assert trajectory.reward.value == 1.0
            assert (trajectory.pack, trajectory.task_id) == (task.id.partition("/")[0], task.id)
        with pytest.raises(UserError, match="no pack 'other' here"):
            await environment.reset("other/x")
        with pytest.raises(UserError, match="no pack 'x' here for task 'x': write PACK/ID"):
            await environment.reset(Task(id="x", instruction="A task without the name of its pack."))
        with pytest.raises(UserError, match="todo_0 has no task 'x'"):
            await environment.reset("todo_0/x")


async def test_a_rollout_over_two_packs(tmp_path: Path) -> None:
    settings = {"packs": [{"pack": "customer_service", "limit": 4}, *make_packs(tmp_path, 1)], "agent": "reference"}
    result = await simia.rollout(settings, runs=tmp_path / "runs")
    assert result.complete
    played = Counter(trajectory.pack for trajectory in result.trajectories())
    assert played["customer_service"] == 4
    assert played["todo_0"] >= 1


async def test_a_sandbox_that_the_machine_ends_at_its_start_costs_no_episode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pack starts with its first task. An episode without a sandbox was settled as one whose task cannot be set up."""
    launch, left = ForkServer._launch, [2]

    def launch_and_kill(server: ForkServer, channel: int) -> None:
        launch(server, channel)
        if left[0]:
            left[0] -= 1
            assert server._process is not None
            os.killpg(server._process.pid, signal.SIGKILL)

    monkeypatch.setattr(ForkServer, "_launch", launch_and_kill)
    packs = [{"pack": name, "limit": 3} for name in make_packs(tmp_path, 2)]
    result = await simia.rollout({"packs": packs, "agent": "reference"}, name="killed", runs=tmp_path / "runs")
    assert left == [0]
    assert result.stop.kind == "aborted"
    assert "the sandbox ended at its start" in result.stop.detail
    again = await resume_rollout("killed", runs=tmp_path / "runs", say=lambda _: None)
    assert again.complete
    scores = again.scores
    assert scores.mean is not None
    assert (scores.scored, scores.aborted, scores.mean.value) == (result.scores.episodes, 0, 1.0)


def tasks_of(name: str, count: int, weight: float | None) -> PackTasks:
    return PackTasks(Pack(name=name), [Task(id=str(n)) for n in range(count)], weight)


def test_weights_are_shares_of_every_prefix() -> None:
    mixed = [task.id.partition("/")[0] for task in mix_tasks([tasks_of("a", 90, 3), tasks_of("b", 100, 1)])]
    assert Counter(mixed) == {"a": 90, "b": 30}
    for end in range(4, len(mixed), 4):
        assert abs(Counter(mixed[:end])["b"] / end - 0.25) <= 1 / end
    everything = mix_tasks([tasks_of("a", 5, None), tasks_of("b", 2, None)])
    assert Counter(task.id for task in everything).most_common(1)[0][1] == 1
    assert len(everything) == 7
    with pytest.raises(UserError, match="b has no weight"):
        mix_tasks([tasks_of("a", 5, 1), tasks_of("b", 2, None)])
    with pytest.raises(UserError, match="two packs are named 'a'"):
        mix_tasks([tasks_of("a", 5, None), tasks_of("a", 2, None)])


async def test_the_sandbox_used_longest_ago_is_ended_and_its_episode_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = worker_parents.WorkerParents(most=2)
    monkeypatch.setattr("simia.envs.worlds.executable.parents", held)
    released: list[str] = []
    release = ExecutableBackend.release

    async def note(self: ExecutableBackend) -> None:
        released.append(self.pack.name)
        await release(self)

    monkeypatch.setattr(ExecutableBackend, "release", note)
    async with await open_environment({"packs": make_packs(tmp_path, 4), "user": "scripted"}) as environment:
        tasks = {task.id.partition("/")[0]: task for task in environment.tasks}
        open_episode = await environment.reset(tasks["todo_0"])
        agent = ReferenceAgent(tasks["todo_0"])
        message, _ = await agent.act(open_episode.view)
        await open_episode.step(message)
        for name in ("todo_1", "todo_2", "todo_3"):
            trajectory = await play(await environment.reset(tasks[name]), ReferenceAgent(tasks[name]))
            assert trajectory.reward is not None
            assert trajectory.reward.value == 1.0
        assert len(held) <= 2
        assert released == ["todo_1", "todo_2"]  # idle ones first
        others = [await environment.reset(tasks[name]) for name in ("todo_1", "todo_2")]
        assert "todo_0" in released  # all are busy now: the one used longest ago
        while open_episode.end is None:
            message, _ = await agent.act(open_episode.view)
            await open_episode.step(message)
        assert open_episode.reward is not None
        assert open_episode.reward.value == 1.0
        for each in others:
            await each.close()


def test_a_foreign_pack_does_not_share_a_process_by_its_own_word(tmp_path: Path) -> None:
    folder = Path(make_packs(tmp_path, 1)[0])
    (folder / "pack.yaml").write_text(
        (folder / "pack.yaml").read_text().replace("isolation: process", "isolation: shared")
    )
    pack = Pack.load(folder)
    assert choose_isolation(pack) == "process"
    assert choose_isolation(Pack.load("customer_service")) == "shared"
    assert not ExecutableBackend(pack, isolation="shared").isolated
    assert json.dumps(pack.executable and pack.executable.isolation) == '"shared"'


def test_a_pattern_names_bundled_packs_where_no_folder_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bundled = [Path(share["pack"]).name for share in expand_pack_patterns(["gyms/*"])]
    assert len(bundled) >= 9
    assert {"cold-cells", "tank-cascade"} <= set(bundled)
    assert [f"gyms/{name}" for name in bundled] == [name for name in list_names("seeds") if name.startswith("gyms/")]
    scaffold_pack(tmp_path / "gyms" / "own")
    assert expand_pack_patterns(["gyms/*"]) == [{"pack": "./gyms/own"}]
    with pytest.raises(ValueError, match=r"no folder with a pack\.yaml matches"):
        expand_pack_patterns(["./others/*"])
