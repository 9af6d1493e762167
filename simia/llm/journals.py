"""Journals of an engine: the interface, and two that leave nothing on the disk. A run's is `simia.jobs.journal`."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from simia.llm.types import LLMFault, Reply, Request


class ReplyJournal(Protocol):
    """The durable record of requests and replies; the run's ledger is one.

    `answered` must hand its reply over before it first suspends, so that a cancelled asker cannot lose a paid reply.
    """

    def recall(self, key: str) -> Reply | None: ...

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None:
        """Returns once it is durable; the request is sent after that."""

    async def answered(self, key: str, item: str, reply: Reply) -> None:
        """Returns once it is durable; the reply is used after that."""

    async def failed(self, key: str, item: str, fault: LLMFault) -> None:
        """Note that the last try failed, or that there is no other: the budget allows none, or the job stops."""


@runtime_checkable
class ClaimingJournal(Protocol):
    """A journal that several processes share: one of them asks for a key at a time, and the others recall its reply."""

    async def claim(self, key: str) -> None:
        """Returns when no other process asks for this key."""

    def release(self, key: str) -> None: ...

    def recall_from_others(self, key: str) -> Reply | None:
        """The reply that another process stored."""


class MemoryJournal:
    """A journal in memory: for single questions and tests."""

    def __init__(self) -> None:
        self.requests: dict[str, tuple[str, str, Request]] = {}
        self.replies: dict[str, Reply] = {}
        self.faults: dict[str, LLMFault] = {}

    def recall(self, key: str) -> Reply | None:
        return self.replies.get(key)

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None:
        self.requests[key] = (item, draw, request)

    async def answered(self, key: str, item: str, reply: Reply) -> None:
        self.replies[key] = reply

    async def failed(self, key: str, item: str, fault: LLMFault) -> None:
        self.faults[key] = fault


class PassingJournal:
    """A journal that keeps nothing: for processes that ask for days and need no reply twice."""

    def recall(self, key: str) -> Reply | None:
        return None

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None: ...

    async def answered(self, key: str, item: str, reply: Reply) -> None: ...

    async def failed(self, key: str, item: str, fault: LLMFault) -> None: ...
