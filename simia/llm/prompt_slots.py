"""Choose the slot of a local model server that holds the beginning of a request, so that the server does not read it again.

A slot keeps the prompt that it computed last. By default, the server takes the slot with the longest common prefix. Two packs with the same
rules have one in common, so each request of one pack would replace the prefix of the other.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from simia.trajectory import digest

LOOK_BACK = (
    16  # messages that follow a request in the next one of its conversation, at most: the reply and its tool results
)


class PromptSlots:
    """The requests that the slots hold. A request gets the slot with the same static part (everything before the last message), else the slot
    with the previous request of its conversation, else a free or the least recently used slot."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: OrderedDict[int, tuple[str, str]] = (
            OrderedDict()
        )  # slot → static part, whole request; the last used is last

    def choose(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return the slot of a request with these messages, from 0."""
        static = digest(messages[:-1])
        slot = self._find(static, messages)
        if slot is None:
            free = len(self._held)
            slot = free if free < self._count else next(iter(self._held))
        self._held[slot] = static, digest(messages)
        self._held.move_to_end(slot)
        return slot

    def _find(self, static: str, messages: Sequence[Mapping[str, Any]]) -> int | None:
        for slot, (kept, _) in self._held.items():
            if kept == static:
                return slot
        wholes = {whole: slot for slot, (_, whole) in self._held.items()}
        for end in range(len(messages) - 2, max(0, len(messages) - 2 - LOOK_BACK), -1):
            whole = digest(messages[:end])
            if whole in wholes:
                return wholes[whole]
        return None
