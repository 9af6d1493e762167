"""The protocol of whoever plays the user, and what of an episode somebody sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simia.errors import Code
from simia.tool import ToolSpec
from simia.trajectory import Message


@dataclass(frozen=True, slots=True)
class View:
    """An episode as one side sees it: the agent its system text, both the messages that are theirs to see."""

    system: str | None
    messages: tuple[Message, ...]
    tools: Sequence[ToolSpec]


@dataclass(frozen=True, slots=True)
class Stop:
    """The user is done: why, and with which last words. `USER_FAILED` aborts the episode, and the words say how."""

    code: Code = Code.USER_STOP
    words: str = ""


class User(Protocol):
    """One episode's user. Asked at the start, with no messages yet, and after each turn of the agent without calls."""

    async def reply(self, view: View) -> Message | Stop:
        """The user's next message, with text or with calls of the user's own tools, or the end."""

    def fork(self) -> User:
        """The same user at the same point, for an episode that goes another way from here."""
