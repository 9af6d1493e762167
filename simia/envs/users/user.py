"""The protocol of a user simulator, and an episode as one side sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simia.errors import Code
from simia.tool import ToolSpec
from simia.trajectory import Message


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """An episode as one side sees it: the messages that are visible to it and, for the agent, the system text."""

    system: str | None
    messages: tuple[Message, ...]
    tools: Sequence[ToolSpec]
    """The tools that are visible from the start: a prompt lists them."""
    revealed: Sequence[ToolSpec] = ()
    """The tools that became visible since: messages of the user list them."""

    @property
    def all_tools(self) -> list[ToolSpec]:
        """All tools that can be called now."""
        return [*self.tools, *self.revealed]


OPENS_GOAL = "opens_goal"  # key of a message's `extra`; the episode removes it


def make_user_answer(text: str) -> Message:
    """Make a message of the user that opens no goal, such as its answer to a question of the agent."""
    return Message(role="user", content=text, extra={OPENS_GOAL: False})


@dataclass(frozen=True, slots=True)
class UserStop:
    """The user ends the episode: the reason, and a last message. `USER_FAILED` aborts the episode; `words` says why."""

    code: Code = Code.USER_STOP
    words: str = ""


class User(Protocol):
    """One episode's user. It is asked at the start, with no messages yet, and after each turn of the agent without calls."""

    async def reply(self, view: EpisodeView) -> Message | UserStop:
        """Return the user's next message, with text or with calls of the user's own tools, or the end.

        In a task with goals each message with text opens the next goal, except one that `make_user_answer` makes."""

    def fork(self) -> User:
        """Copy the user at this point, for a forked episode."""
