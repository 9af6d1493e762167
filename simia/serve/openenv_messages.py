"""The messages of OpenEnv's protocol as a server of packs reads and writes them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from simia.config import Config
from simia.envs.text_episode import TextStep
from simia.errors import Code


class Call(BaseModel):
    """A call of a tool, for clients that parse their model's calls themselves."""

    name: str = Field(description="Name of the tool.")
    arguments: dict[str, Any] = Field(default_factory=dict, description="Its arguments, as JSON.")


class Reset(Config):
    """The data of a reset. Without a task or an index in a split, the seed selects the task; without a seed, tasks come in order."""

    seed: int | None = Field(None, ge=0, description="Seed of the episode.")
    episode_id: str | None = Field(None, description="The client's name of the episode, which the state shows.")
    task: str | None = Field(None, description="Id of the task.")
    split: str | None = Field(None, description="Split in which `index` is a place.")
    index: int | None = Field(None, ge=0, description="Place of the task in the split, from 0.")
    group: str | None = Field(None, description="Episodes of one group share the samples of the simulation.")
    name: str | None = Field(None, description="Tells the samples of a model that plays the user from other episodes'.")
    record: bool = Field(False, description="Observations hold whole messages, for simia's own client.")


class Stop(Config):
    """The end of an episode from outside: see `Episode.stop`."""

    code: Code = Field(description="The reason.")
    aborted: bool = Field(False, description="Whether the episode has no reward.")
    detail: str = Field("", description="More of the reason, in words.")


class ToolAction(Config):
    """One turn of the agent: text, or calls."""

    message: str = Field(description="The model's text, or calls as <tool_call>{…}</tool_call>.")
    calls: list[Call] = Field(default_factory=list, description="Its calls, where they are not in the message.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="OpenEnv's; not read.")


class ToolObservation(BaseModel):
    """The agent's next observation. The reward comes with `done`; it is None if the episode was aborted."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field("", description="All of it as text: results between tags, the user's words.")
    messages: list[dict[str, str]] = Field(default_factory=list, description="The same as chat messages.")
    tools: list[dict[str, Any]] = Field(default_factory=list, description="At the reset: the tools' schemas.")
    task: str = Field("", description="The episode's task.")
    end: str | None = Field(None, description="terminated, truncated (scored too) or aborted (no reward).")
    code: str | None = Field(None, description="The reason of the end.")
    parts: dict[str, float] = Field(default_factory=dict, description="The parts of the reward.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="OpenEnv's; empty.")


class EpisodeState(BaseModel):
    """The state of the episode; the world's own state is not shown."""

    episode_id: str | None = Field(None, description="The name that the reset gave.")
    step_count: int = Field(0, description="Turns of the agent so far.")
    task: str | None = Field(None, description="Id of the task.")
    end: str | None = Field(None, description="As in the observation; None while the episode goes on.")


def observe(heard: TextStep, task: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The data of an observation as text."""
    observation = {
        "text": heard.text,
        "messages": heard.messages,
        "tools": tools,
        "task": task,
        "end": heard.ended,
        "code": str(heard.code) if heard.code else None,
        "parts": dict(heard.reward.parts) if heard.reward else {},
        "metadata": {},
    }
    return {"observation": observation, "reward": heard.value, "done": heard.end is not None}
