"""Many gym packs in one environment: named by a pattern, played at once, with a bound on running sandboxes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simia import event_loop
from simia.cli import build_app
from simia.config import parse_config
from simia.envs.config import EnvironmentConfig
from simia.envs.episode import Episode
from simia.envs.opening import open_environment
from simia.envs.several_packs import MultiPackEnvironment
from simia.envs.text_episode import share_environment
from simia.envs.worlds import worker_parents
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.task import Task
from simia.trajectory import Message, ToolCall
from tests.envs.gym_packs import write_gym_pack

PACKS, MOST = 7, 3


def count_sandboxes(backends: list[Any]) -> int:
    """Sandboxes whose first process runs now."""
    zygotes = [backend._zygote for backend in backends if backend._zygote is not None]
    return sum(zygote._process is not None and zygote._process.poll() is None for zygote in zygotes)


async def play_solution(episode: Episode, task: Task) -> float | None:
    """Make the calls of the task's solution, one a step, as slowly as a model; then return the reward."""
    for number, action in enumerate(task.actions):
        await asyncio.sleep(0.02)
        call = ToolCall(id=f"c{number}", name=action.name, arguments=action.arguments)
        step = await episode.step(Message(role="assistant", calls=[call]))
        assert step.messages[0].error is None, step.messages[0]
    return episode.reward.value if episode.reward else None


@pytest.mark.all
@pytest.mark.parametrize("isolation", ["shared", "process"])
async def test_episodes_of_more_packs_than_sandboxes_go_on_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    held = worker_parents.WorkerParents(most=MOST)
    monkeypatch.setattr("simia.envs.worlds.executable.parents", held)
    for number in range(PACKS):
        write_gym_pack(tmp_path / f"gym_{number}", f"gym_{number}")
    config = {"packs": [f"{tmp_path}/gym_*"], "user": "none", "backend_settings": {"isolation": isolation}}
    most = 0
    async with await open_environment(config) as environment:
        assert isinstance(environment, MultiPackEnvironment)
        backends = [member.backend for member in environment.members.values()]
        assert all(isinstance(backend, ExecutableBackend) for backend in backends)
        tasks = [task for task in environment.tasks if task.id.endswith("easy-01")]
        assert len(tasks) == PACKS
        playing = [asyncio.ensure_future(play(environment, task)) for task in tasks]
        while not all(each.done() for each in playing):
            most = max(most, count_sandboxes(backends))
            await asyncio.sleep(0.005)
        assert [await each for each in playing] == [1.0] * PACKS
    assert most <= MOST, "running episodes do not start sandboxes beyond the bound"


async def play(environment: MultiPackEnvironment, task: Task) -> float | None:
    return await play_solution(await environment.reset(task), task)


def test_a_pattern_names_all_packs_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b", "a"):
        write_gym_pack(tmp_path / "gyms" / name, name)
    (tmp_path / "gyms" / "notes").mkdir()
    monkeypatch.chdir(tmp_path)
    config = parse_config(EnvironmentConfig, {"packs": [{"pack": "gyms/*", "limit": 2}]}, where="x")
    assert config.packs is not None
    assert [(share.pack, share.limit) for share in config.packs] == [("./gyms/a", 2), ("./gyms/b", 2)]
    again = parse_config(EnvironmentConfig, config.model_dump(mode="json"), where="x")
    assert again.packs == config.packs, "the config of a run names the packs themselves"
    with pytest.raises(UserError, match=r"no folder with a pack\.yaml matches 'gym/\*'"):
        parse_config(EnvironmentConfig, {"packs": ["gym/*"]}, where="x")


def test_a_server_for_trainers_takes_a_folder_of_gyms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`simia serve 'gyms/*' --openenv`: what the server plays, without the server."""
    for name in ("a", "b"):
        write_gym_pack(tmp_path / "gyms" / name, name)
    monkeypatch.chdir(tmp_path)
    opened: list[EnvironmentConfig] = []
    monkeypatch.setattr("simia.cli.serve.find_spec", lambda name: True)

    async def serve(config: EnvironmentConfig, *_: object, **__: object) -> None:
        opened.append(config)

    monkeypatch.setattr("simia.cli.serve.serve_openenv", serve)
    done = CliRunner().invoke(build_app(), ["serve", "gyms/*", "--openenv", "--set", "user=none"])
    assert done.exit_code == 0, (done.output, done.exception)
    refused = CliRunner().invoke(build_app(), ["serve", "gyms/*", "--mcp"])
    assert isinstance(refused.exception, UserError)
    assert "MCP serves the tools of one pack" in str(refused.exception)
    lease = share_environment(opened[0])
    try:
        sessions = [lease.session() for _ in range(2)]
        for session, name in zip(sessions, ("a", "b"), strict=True):
            event_loop.run(session.reset(f"{name}/easy-01"))
        for answer, value in ((9, 1.0), (5, 0.0)):
            call = Message(role="assistant", calls=[ToolCall(id="", name="done", arguments={"answer": answer})])
            assert event_loop.run(sessions.pop(0).act(call)).value == value, "sessions share no state"
    finally:
        lease.close()
