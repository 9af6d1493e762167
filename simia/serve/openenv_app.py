"""A pack as an ASGI application, for servers that are started with the name of an application. The pack opens with the server.

    app = PackApplication("pack")          # uvicorn server.app:app

`simia serve --openenv` has more options. Settings come from environment variables: SIMIA_SETTINGS ("backend=simulated llm.model=…"),
SIMIA_TOKEN, and SIMIA_OUT, the file of trajectories. Without a token only programs on this machine are answered, except if SIMIA_NO_TOKEN is 1.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from simia.config import load_config
from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.serve.http_server import Asgi, Receive, Scope, Send
from simia.serve.openenv import EnvironmentServer
from simia.serve.served_episode import TrajectoryFile
from simia.serve.tokens import DEFAULT_VARIABLE, read_server_token


class PackApplication:
    """Open the pack when the server starts, serve it by OpenEnv's protocol, and close it when the server ends."""

    def __init__(self, pack: str | Path, variables: Mapping[str, str] | None = None) -> None:
        """Read the settings.

        Args:
            pack: Name or folder of the pack.
            variables: Environment variables; None: those of this process.

        Raises:
            UserError: A setting is unknown, or the token is too short.
        """
        found = os.environ if variables is None else variables
        settings = shlex.split(found.get("SIMIA_SETTINGS", ""))
        self._config = load_config(EnvironmentConfig, None, settings, pack=str(pack))
        open_to_all = found.get("SIMIA_NO_TOKEN") == "1"
        given = DEFAULT_VARIABLE if found.get(DEFAULT_VARIABLE) and not open_to_all else None
        self._token = read_server_token(given, "this server", loopback=True, without=open_to_all)
        self._loopback = self._token is None and not open_to_all
        self._out = Path(found.get("SIMIA_OUT", "trajectories.jsonl"))
        self._app: Asgi | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or handle the server's start and end."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        if self._app is None:
            raise RuntimeError("the server does not support ASGI's lifespan: start it with uvicorn --lifespan on")
        await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        async with contextlib.AsyncExitStack() as stack:
            try:
                environment: Environment = await stack.enter_async_context(await open_environment(self._config))
                record = TrajectoryFile(self._out)
                server = EnvironmentServer(
                    environment, self._config.seed, record.add, token=self._token, loopback=self._loopback
                )
            except UserError as error:
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                return
            self._app = server.app()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await server.table.close()
        await send({"type": "lifespan.shutdown.complete"})
