"""A pack as an ASGI application under uvicorn, as an exported OpenEnv environment names it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvicorn

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import NothingAgent, ReferenceAgent
from simia.envs.play.player import play
from simia.errors import UserError
from simia.pack import Pack
from simia.serve.http_server import listen
from simia.serve.openenv_app import PackApplication

TOKEN = "0123456789abcdef-token"
TASK = "cs-001"


@contextlib.asynccontextmanager
async def running(app: PackApplication) -> AsyncIterator[str]:
    """Serve an application by plain uvicorn and yield its address."""
    listening = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="on"))
    task = asyncio.ensure_future(server.serve([listening]))
    while not server.started and not task.done():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        with contextlib.suppress(SystemExit):
            await task
        listening.close()


async def test_the_solution_has_reward_1_and_nothing_0(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    task = Pack.load("customer_service").task(TASK)
    rewards = []
    app = PackApplication("customer_service", {"SIMIA_OUT": str(out)})
    async with running(app) as url, await open_environment(url) as environment:
        for agent in (ReferenceAgent(task), NothingAgent(task)):
            played = await play(await environment.reset(TASK), agent)
            rewards.append(played.reward and played.reward.value)
    assert rewards == [1.0, 0.0]
    assert len(out.read_bytes().splitlines()) == 2


async def test_variables_set_the_environment_and_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"SIMIA_OUT": str(tmp_path / "o"), "SIMIA_SETTINGS": "split=test episode.turns=3", "SIMIA_TOKEN": TOKEN}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with running(PackApplication("customer_service")) as url:
        with pytest.raises(UserError, match="token"):
            await open_environment(url)
        async with await open_environment(url, token_env="SIMIA_TOKEN") as environment:
            assert {task.split for task in environment.tasks} == {"test"}
            assert environment.limits.turns == 3


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SIMIA_SETTINGS": "bakend=simulated"}, "bakend"),
        ({"SIMIA_TOKEN": "short"}, "shorter than 16 characters"),
    ],
)
def test_a_wrong_variable_is_refused(variables: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=message):
        PackApplication("customer_service")


async def test_a_pack_that_cannot_be_opened_ends_the_server(tmp_path: Path) -> None:
    app = PackApplication("customer_service", {"SIMIA_OUT": str(tmp_path / "none" / "out.jsonl")})
    sent = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, str]) -> None:
        sent.append(message)

    await app({"type": "lifespan"}, receive, send)
    assert [message["type"] for message in sent] == ["lifespan.startup.failed"]
    assert "cannot be written" in sent[0]["message"]
