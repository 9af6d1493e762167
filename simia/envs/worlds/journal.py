"""The journal of an executable episode, from which another process can rebuild it, now or later.

It holds the start and the writes since, each with its number and a fingerprint of its result: a repeated call must give the same result.
A snapshot of it is compressed JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import zstandard

from simia.errors import UserError
from simia.sandbox.inside.frames import pack_json, unpack_json
from simia.task import By
from simia.trajectory import digest

COMPACT = 256  # most writes in a journal; with more, the state that they lead to replaces it
SMALL = (
    1 << 19
)  # bytes of a state's JSON; a larger state is read after proportionally more writes, since reading it costs more


@dataclass(slots=True)
class EpisodeJournal:
    """The start of a session and the writes since, each with its number and the fingerprint of its result."""

    spec: dict[str, Any]
    writes: list[tuple[By, str, dict[str, Any], int, str]] = field(default_factory=list)
    calls: int = 0
    most: int = COMPACT

    def replace_writes(self, state: Any) -> None:
        """Start from `state`, the result of all writes so far, and drop these writes."""
        self.spec = {**self.spec, "state": state}
        self.writes.clear()
        self.most = COMPACT * max(1, len(pack_json(state)) // SMALL)

    def snapshot(self) -> bytes:
        body = {"version": 1, "spec": self.spec, "writes": self.writes, "calls": self.calls}
        return zstandard.compress(pack_json(body))


def unpack_journal(snapshot: bytes) -> EpisodeJournal:
    body = unpack_json(zstandard.decompress(snapshot))
    if body.get("version") != 1:
        raise UserError("this snapshot was made by another version of simia: restart the episode")
    return EpisodeJournal(body["spec"], [tuple(write) for write in body["writes"]], body["calls"])


def fingerprint(value: Any) -> str:
    return digest(value)
