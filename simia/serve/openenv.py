"""A pack as an OpenEnv server: each client's WebSocket session is a seat, and plays one episode after the other.

    simia serve customer_service --openenv
    async with GenericEnvClient(base_url="http://127.0.0.1:8000") as env:
        result = await env.reset(task="cs-003")            # or seed=…, or split=… and index=…; group="12/cs-003"
        result = await env.step({"message": '<tool_call>…'})

The reward comes with `done`; it is None where the episode was aborted, and `observation["end"]` says which of the three endings it was.
OpenEnv's stateless routes (POST /reset, /step, GET /state) would throw an episode away with every request, so they are left out, and
so are sessions by /mcp, which no connection holds. A seat ends with its connection, or when nothing was heard for the time of its
lease. Imports openenv, which the server's environment must have.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import Request  # type: ignore[import-not-found,unused-ignore]
from openenv.core.env_server import (  # type: ignore[import-not-found,unused-ignore]
    Action,
    ConcurrencyConfig,
    Environment,
    Observation,
    State,
    create_app,
)
from openenv.core.env_server.types import EnvironmentMetadata  # type: ignore[import-not-found,unused-ignore]
from pydantic import BaseModel, Field

from simia import event_loop
from simia.config import Config, parse_config
from simia.envs.text_episode import EnvironmentLease, Keep, TextEpisodes, TextStep, await_on_portal
from simia.serve.http_server import Asgi, Deadlines, LoopbackOnly, is_loopback, listen, serve_until_signal
from simia.trajectory import Message, ToolCall
from simia.version import __version__

PATIENCE = 20.0  # seconds for what is under way when the server ends
STATELESS, MCP = ("/reset", "/step", "/state"), "/mcp"


class Call(BaseModel):
    """A call of a tool, for clients that read their model's calls themselves."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Reset(Config):
    """What a client may say at a reset. Without a task or a place in a split the seed chooses the task, or they come in order."""

    seed: int | None = Field(None, ge=0)
    episode_id: str | None = None
    task: str | None = None
    split: str | None = None
    index: int | None = Field(None, ge=0)
    group: str | None = Field(None, description="Who shares what is drawn by simulation.")


class ToolAction(Action):  # type: ignore[misc,unused-ignore]
    """One turn of the agent."""

    message: str = Field(description="What the model wrote: words, or calls as <tool_call>{…}</tool_call>.")
    calls: list[Call] = Field(default_factory=list, description="Its calls, where they do not stand in the message.")


class ToolObservation(Observation):  # type: ignore[misc,unused-ignore]
    """What the agent reads next. `reward` stands beside it, with the end; None of an aborted episode."""

    text: str = Field("", description="All of it as text: results between tags, the user's words.")
    messages: list[dict[str, str]] = Field(default_factory=list, description="The same as chat messages.")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="At the reset: the tools' schemas.")
    task: str = Field("", description="The episode's task.")
    end: str | None = Field(None, description="terminated, truncated (scored too) or aborted (no reward).")
    code: str | None = Field(None, description="Why it ended.")
    parts: dict[str, float] = Field(default_factory=dict, description="What the reward is made of.")


class EpisodeState(State):  # type: ignore[misc,unused-ignore]
    """Of the episode; the world's own state is not shown."""

    task: str | None = None
    end: str | None = None


class PackEnvironment(Environment):  # type: ignore[misc,unused-ignore]
    """One client's seat."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, seats: OpenEnvSessions) -> None:
        super().__init__()
        self._seats = seats
        self._session: TextEpisodes = seats.lease.session(seats.keep)
        self._heard: TextStep | None = None
        self._episode_id: str | None = None
        seats.taken.add(self)

    async def reset_async(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        **options: Any,
    ) -> ToolObservation:
        """Reset the session. Raises `UserError` for an unknown option, which is sent to the client."""
        how = parse_config(Reset, {"seed": seed, "episode_id": episode_id, **options}, where="reset")
        task = how.task
        if task is None and (how.split is not None or how.index is not None):
            task = self.get_task(how.split, how.index or 0)["id"]
        self._episode_id = how.episode_id
        heard = await await_on_portal(self._session.reset(task, seed=how.seed, group=how.group))
        return self._observed(heard, opening=True)

    async def step_async(self, action: ToolAction, timeout_s: float | None = None) -> ToolObservation:
        said: str | Message = action.message
        if action.calls:
            calls = [ToolCall(id=str(i), name=c.name, arguments=c.arguments) for i, c in enumerate(action.calls)]
            said = Message(role="assistant", content=action.message or None, calls=calls)
        return self._observed(await await_on_portal(self._session.act(said)))

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> ToolObservation:
        return asyncio.run(self.reset_async(seed, episode_id, **options))

    def step(self, action: ToolAction, timeout_s: float | None = None, **_: Any) -> ToolObservation:
        return asyncio.run(self.step_async(action))

    @property
    def state(self) -> EpisodeState:
        episode, heard = self._session.episode, self._heard
        return EpisodeState(
            episode_id=self._episode_id,
            step_count=self._session.turns,
            task=episode.task.id if episode else None,
            end=heard.ended if heard else None,
        )

    def close(self) -> None:
        """End the episode of a client that has disconnected: truncate, score and write it."""
        event_loop.run(self.leave())

    async def leave(self) -> None:
        await self._session.leave()
        self._seats.taken.discard(self)

    def get_metadata(self) -> EnvironmentMetadata:
        pack = self._session.environment.pack
        return EnvironmentMetadata(
            name=pack.name, description=f"{len(pack.tools)} tools, played by simia", version=__version__
        )

    # -- tasks, without what solves them -----------------------------------------------------------------------------

    def list_splits(self) -> list[str]:
        return sorted({task.split for task in self._session.environment.tasks})

    def list_tasks(self, split: str | None) -> list[dict[str, Any]]:
        found = [task for task in self._session.environment.tasks if split in (None, task.split)]
        return [{"id": task.id, "index": i, "split": task.split} for i, task in enumerate(found)]

    def num_tasks(self, split: str) -> int:
        return len(self.list_tasks(split))

    def get_task(self, split: str | None, index: int) -> dict[str, Any]:
        """Raises `IndexError`, which the server answers with a 400, for a place that is none."""
        tasks = self.list_tasks(split)
        if not 0 <= index < len(tasks):
            where = "the pack" if split is None else f"split {split!r}"
            raise IndexError(f"{where} has {len(tasks)} tasks, and none of number {index}")
        return tasks[index]

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        return self.list_tasks(split)[start:stop]

    def _observed(self, heard: TextStep, *, opening: bool = False) -> ToolObservation:
        self._heard = heard
        episode = self._session.episode
        assert episode is not None
        return ToolObservation(
            done=heard.end is not None,
            reward=heard.value,
            text=heard.text,
            messages=heard.messages,
            tools=[tool.flat() for tool in episode.tools] if opening else [],
            task=episode.task.id,
            end=heard.ended,
            code=str(heard.code) if heard.code else None,
            parts=dict(heard.reward.parts) if heard.reward else {},
        )


class OpenEnvSessions:
    """All sessions on one environment."""

    def __init__(
        self, lease: EnvironmentLease, keep: Keep | None = None, most: int = 256, deadlines: Deadlines | None = None
    ) -> None:
        """`most`: sessions at once; one more is refused. `deadlines`: what a client may take; `idle` is the lease of its seat."""
        self.lease, self.keep, self.most = lease, keep, most
        self.deadlines = deadlines or Deadlines()
        self.taken = set[PackEnvironment]()

    def app(self) -> Asgi:
        """The ASGI application: /ws, /schema, /metadata, /health and the task routes; at /mcp a word that a seat is a WebSocket.

        OpenEnv's /mcp would let a request take a seat that no connection holds and nothing ends, for tools that packs do not offer
        there.
        """
        app = create_app(
            lambda: PackEnvironment(self),
            ToolAction,
            ToolObservation,
            env_name=self.lease.environment.pack.name,
            concurrency_config=ConcurrencyConfig(max_concurrent_envs=self.most, session_timeout=None),
            state_cls=EpisodeState,
            mode="simulation",
        )
        left_out = (*STATELESS, MCP)
        app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") not in left_out]
        app.add_api_route(MCP, answer_mcp, methods=["POST"], include_in_schema=False)
        made: Asgi = app
        return made

    async def close(self) -> None:
        """Everybody leaves; what had begun is scored and kept, unless its models take longer than there is time."""
        leaving = [await_on_portal(seat.leave()) for seat in list(self.taken)]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(*leaving), PATIENCE)


async def answer_mcp(request: Request) -> dict[str, Any]:
    """To every JSON-RPC request: where a session is had."""
    try:
        number = json.loads(await request.body()).get("id")
    except (ValueError, AttributeError, RecursionError):
        number = None
    number = number if isinstance(number, str | int) else None
    error = {"code": -32601, "message": "no session is made here: connect to the WebSocket /ws, which is a session"}
    return {"jsonrpc": "2.0", "id": number, "error": error}


async def serve_openenv_sessions(
    seats: OpenEnvSessions, host: str, port: int, *, kept: Path, say: Callable[[str], None]
) -> None:
    """Serve until a signal comes. `kept`: the file of trajectories, for the announcement. Raises `UserError` for an address that cannot be bound."""
    listening = listen(host, port)
    app = LoopbackOnly(seats.app()) if is_loopback(host) else seats.app()
    address = f"http://{host}:{listening.getsockname()[1]}"

    def announce() -> None:
        say(f"serving at {address}; what is played goes to {kept}; Ctrl-C ends")

    await serve_until_signal(seats.deadlines.config(app), listening, announce)
    await seats.close()  # a second signal ends it at once
