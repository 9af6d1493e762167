"""The protocol of an agent."""

from __future__ import annotations

from typing import Protocol

from simia.envs.environment import Sample
from simia.envs.users import EpisodeView
from simia.errors import Code
from simia.trajectory import Message


class AgentFailed(Exception):  # noqa: N818 - an ending
    """The agent cannot act: its model gave no reply (the episode is aborted), or reached a limit (it is truncated and scored)."""

    def __init__(self, code: Code, detail: str = "", *, aborted: bool = True) -> None:
        super().__init__(f"{code}: {detail}")
        self.code, self.detail, self.aborted = code, detail, aborted


class Agent(Protocol):
    """One episode's agent. It sees what an agent sees, and answers with one message."""

    async def act(self, view: EpisodeView) -> tuple[Message, Sample | None]:
        """Raises `AgentFailed`."""
