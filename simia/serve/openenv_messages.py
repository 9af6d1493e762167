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
    arguments: dict[str, Any] = Field(default_factory=dict, description="Arguments of the call.")


class Reset(Config):
    """The data of a reset. Without `task` and `index`, the seed selects the task. Without a seed, tasks come in order."""

    seed: int | None = Field(None, ge=0, description="Random seed of the episode.")
    episode_id: str | None = Field(
        None, description="Name that the client gives to the episode. The state contains it."
    )
    task: str | None = Field(None, description="Id of the task.")
    split: str | None = Field(None, description="Split to which `index` refers.")
    index: int | None = Field(None, ge=0, description="Index of the task in the split, from 0.")
    group: str | None = Field(
        None, description="Name of a group. Episodes of the same group share the simulator's samples."
    )
    name: str | None = Field(
        None,
        description="Name that distinguishes the episode's samples of the user model from those of other episodes.",
    )
    record: bool = Field(False, description="Whether observations contain complete messages, for simia's own client.")


class Stop(Config):
    """The end of an episode from outside: see `Episode.stop`."""

    code: Code = Field(description="Code of the reason.")
    aborted: bool = Field(False, description="Whether the episode is aborted, without a reward.")
    detail: str = Field("", description="Details of the reason, as text.")


class ToolAction(Config):
    """One turn of the agent: text, or calls."""

    message: str = Field(description="Text of the model, which may contain calls as <tool_call>{…}</tool_call>.")
    calls: list[Call] = Field(
        default_factory=list, description="Calls of the turn, if `message` does not contain them."
    )
    metadata: dict[str, Any] = Field(default_factory=dict, description="Field of OpenEnv. It is ignored.")


class ToolObservation(BaseModel):
    """The agent's next observation. The reward comes with `done`. It is null if the episode was aborted."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field("", description="The whole observation as text: tool results in tags, and the user's message.")
    messages: list[dict[str, str]] = Field(default_factory=list, description="The whole observation as chat messages.")
    tools: list[dict[str, Any]] = Field(
        default_factory=list, description="Schemas of the tools. Only in the observation of a reset."
    )
    task: str = Field("", description="Id of the episode's task.")
    end: str | None = Field(
        None,
        description="How the episode ended: terminated, truncated (scored too) or aborted (no reward). null: it has not ended.",
    )
    code: str | None = Field(None, description="Code of the reason for the end.")
    parts: dict[str, float] = Field(default_factory=dict, description="Parts of the reward, by name.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Field of OpenEnv. It is empty.")


class EpisodeState(BaseModel):
    """The state of the episode, without the state of its environment."""

    episode_id: str | None = Field(None, description="Name of the episode, as given to the reset.")
    step_count: int = Field(0, description="Number of turns of the agent so far.")
    task: str | None = Field(None, description="Id of the task.")
    end: str | None = Field(None, description="How the episode ended, as in the observation. null: it has not ended.")


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
