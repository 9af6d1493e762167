"""The protocol between a server of environments and simia's own client: an extension of OpenEnv's WebSocket messages.

OpenEnv's messages are `{"type": "reset" | "step" | "state" | "close", "data": {…}}`. simia's client adds two things, which other clients
leave out. A session id in a header lets a new connection continue the session of a lost one. A `serial` in each message lets the server
answer a repeated message with the first answer instead of running it twice. With `"record": true` in a reset, observations
hold whole messages in place of text (`record_beginning`, `record_outcome`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field

from simia.envs.environment import Environment, Episode
from simia.envs.episode_limits import EpisodeLimits
from simia.pack import Pack
from simia.task import CallLimits, Task
from simia.tool import ToolSpec
from simia.trajectory import Message, write_compact_json

PROTOCOL = 1
SESSION_HEADER = "simia-session"
LARGEST_REPLY = 64 << 20  # bytes of a message from the server
NO_EPISODE, DRAINING, USER_ERROR = "NO_EPISODE", "DRAINING", "USER_ERROR"
"""Codes of errors beyond OpenEnv's: the session has no episode; the server ends soon; the client must change something."""
TASK_FIELDS = {"id", "split", "conversation", "limits", "measured", "tags", "tools", "reveals"}
"""Fields of a task that clients see: nothing of its solution, and nothing that only its user knows."""
LONG_NUMBER = re.compile(r"\d{19}")
HALF_CHARACTER = "\\ud"
HEAD_FIELDS = {"pack", "task_id", "split", "provenance", "extra"}
"""Fields of a trajectory that no step changes."""


class EnvironmentDescription(BaseModel):
    """Description of an environment, for clients. They ignore unknown fields, so that servers may be newer."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)

    protocol: int = PROTOCOL
    """Version of the messages; a client refuses a newer one."""
    name: str
    """Name of the pack."""
    description: str = ""
    """The pack's description."""
    licence: str = "unknown"
    """Licence of the pack's data."""
    policy: str | None = None
    """System text of the agent."""
    tools: list[dict[str, Any]] = Field(default_factory=list)
    """The agent's tools."""
    user_tools: list[dict[str, Any]] = Field(default_factory=list)
    """The user's own tools."""
    ends: list[str] = Field(default_factory=list)
    """Tools whose success ends an episode."""
    evaluation: bool = False
    """Whether the tasks are a benchmark's."""
    backend: str = "executable"
    """The back end."""
    limits: EpisodeLimits = Field(default_factory=EpisodeLimits)
    """The environment's limits of episodes."""
    pack_limits: CallLimits = Field(default_factory=CallLimits)
    """The pack's limits of episodes."""
    tasks: list[dict[str, Any]] = Field(default_factory=list)
    """The tasks to play, without their solutions."""
    lease: float = 60.0
    """Seconds for which the server keeps the episode of a lost connection."""
    largest_frame: int = 4 << 20
    """Bytes of a message that the server accepts."""


def write_frame(value: Any) -> str:
    """Write a message, also with integers beyond 64 bits and half characters, which a model may have written."""
    return write_compact_json(value)


def read_frame(raw: str | bytes) -> Any:
    """Read a message as `write_frame` wrote it. Raises `ValueError`."""
    text = raw if isinstance(raw, str) else raw.decode()
    if LONG_NUMBER.search(text) is None:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            if HALF_CHARACTER not in text:
                raise
    try:
        return json.loads(text, parse_constant=refuse_constant)
    except RecursionError:
        raise ValueError("nested too deep") from None


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def describe_environment(
    environment: Environment, pack: Pack, tasks: Sequence[Task], *, lease: float, largest_frame: int
) -> EnvironmentDescription:
    """Describe an environment, or one pack of it, to clients."""
    return EnvironmentDescription(
        name=pack.name,
        description=pack.description,
        licence=pack.licence,
        policy=pack.policy,
        tools=list(map(dump_tool, pack.tools)),
        user_tools=list(map(dump_tool, pack.user_tools)),
        ends=pack.ends,
        evaluation=pack.evaluation,
        backend=environment.backend_name,
        limits=environment.limits,
        pack_limits=pack.limits,
        tasks=[task.model_dump(mode="json", include=TASK_FIELDS, exclude_defaults=True) for task in tasks],
        lease=lease,
        largest_frame=largest_frame,
    )


def dump_tool(tool: ToolSpec) -> dict[str, Any]:
    return tool.public.model_dump(mode="json", exclude_defaults=True)


def record_beginning(episode: Episode, described: Pack) -> dict[str, Any]:
    """Record the start of an episode for a client that knows the pack `described`. An episode of another pack includes that pack's
    texts and tools."""
    pack = episode.environment.pack
    found: dict[str, Any] = {
        "head": episode.trajectory.model_dump(mode="json", exclude_defaults=True, include=HEAD_FIELDS),
        **record_outcome(episode, episode.view.messages),
    }
    if pack is not described:
        found |= {"system": pack.policy, "tools": list(map(dump_tool, pack.tools))}
        found["user_tools"] = list(map(dump_tool, pack.user_tools))
    if episode.task.tools is not None or episode.task.reveals:
        found["visible"] = [tool.name for tool in episode.tools]
    return found


def record_outcome(episode: Episode, messages: Sequence[Message]) -> dict[str, Any]:
    """Record the outcome of a step for the agent: these messages and, at the end of the episode, the reward and the issues."""
    found: dict[str, Any] = {"messages": [each.model_dump(mode="json", exclude_defaults=True) for each in messages]}
    if episode.task.reveals:
        found["visible"] = [tool.name for tool in episode.tools]
    if episode.end is not None:
        found["end"] = episode.end.model_dump(mode="json")
        found["reward"] = episode.reward.model_dump(mode="json") if episode.reward else None
        found["issues"] = [issue.model_dump(mode="json") for issue in episode.issues]
    return found
