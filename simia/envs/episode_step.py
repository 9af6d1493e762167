"""The outcome of an agent's action, and the token ids of a policy's message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simia.envs.worlds.world import ToolResult
from simia.reward import Reward
from simia.tool import ToolSpec
from simia.trajectory import End, Message, ToolCall


@dataclass(frozen=True, slots=True)
class Step:
    """The effect of an action as the agent sees it: results and the user's message, and at the end of the episode its end and reward.
    The user's own calls are left out; they are in the episode's messages."""

    messages: tuple[Message, ...]
    end: End | None = None
    reward: Reward | None = None


@dataclass(slots=True)
class Sample:
    """Token ids of one message of the policy, prompt and reply, with log-probabilities. The episode stores them and never reads them."""

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float] | None = None


ANNOUNCEMENT = "\n\nFurther tools are now available:"


def seen_by_agent(messages: Sequence[Message]) -> tuple[Message, ...]:
    return tuple(m for m in messages if m.visible_to is None or "agent" in m.visible_to)


def make_observation(result: ToolResult, call: ToolCall, visible_to: list[str] | None = None) -> Message:
    return Message(
        role="tool", content=result.content, call_id=call.id, name=call.name, error=result.error, visible_to=visible_to
    )


def announce_tools(message: Message, tools: Sequence[ToolSpec]) -> Message:
    """Return a user's message with the definitions of further tools."""
    text = "\n".join([message.text + ANNOUNCEMENT, *(tool.write_json() for tool in tools)])
    extra = {**message.extra, "tools": [tool.flat() for tool in tools]}
    return message.model_copy(update={"content": text, "extra": extra})


def drop_announcement(message: Message) -> Message:
    """Return a user's message without the definitions that `announce_tools` appended, as its user wrote it."""
    text, found, _ = message.text.rpartition(ANNOUNCEMENT)
    if not found or message.role != "user" or "tools" not in message.extra:
        return message
    extra = {name: value for name, value in message.extra.items() if name != "tools"}
    return message.model_copy(update={"content": text, "extra": extra})
