"""A server of environments in the test's own event loop, on a port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.text_episode import share_environment
from simia.serve.http_server import QuietServer, listen
from simia.serve.openenv import EnvironmentServer
from simia.trajectory import Trajectory


@dataclass
class Running:
    """A server that runs: its address, its tables, and the trajectories that it has kept."""

    server: EnvironmentServer
    port: int
    kept: list[Trajectory] = field(default_factory=list)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.root}/{self.server.default.name}"


@contextlib.asynccontextmanager
async def serving(environment: Environment, port: int = 0, **settings: Any) -> AsyncIterator[Running]:
    """Serve an open environment; at the end its sessions are closed as after Ctrl-C."""
    kept: list[Trajectory] = []

    async def keep(trajectory: Trajectory) -> None:
        kept.append(trajectory)

    server = EnvironmentServer(environment, keep=keep, **settings)
    listening = listen("127.0.0.1", port)
    running = QuietServer(server.config())
    task = asyncio.ensure_future(running.serve([listening]))
    try:
        yield Running(server, listening.getsockname()[1], kept)
    finally:
        await server.table.close()
        running.should_exit = True
        await task
        listening.close()


@contextlib.asynccontextmanager
async def served(
    pack: Any = "customer_service", stage: dict[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Running]:
    """Open a pack and serve it."""
    opened = await open_environment(pack, **(stage or {"user": "scripted"}))
    async with opened, serving(opened, **settings) as running:
        yield running


async def wait_until(what: Any, seconds: float = 240.0) -> None:
    """Wait until a condition holds; fail after so many seconds."""
    async with asyncio.timeout(seconds):
        while not what():  # noqa: ASYNC110 - of another program's state
            await asyncio.sleep(0.02)


class PortalServer:
    """A server in the portal's event loop, for plain functions: it shares the environment of equal settings."""

    def __init__(self, stage: dict[str, Any], **settings: Any) -> None:
        self._lease = share_environment(stage)
        self._context = serving(self._lease.environment, **settings)
        self.running = event_loop.run(self._context.__aenter__())
        self._closed = False

    def close(self) -> None:
        """End it. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            event_loop.run(self._context.__aexit__(None, None, None))
            self._lease.close()
