"""The ids of episodes' openings, rendered and tokenised once for all episodes of a task.

System text and tools are most of an opening and the same in all openings of a pack, so their ids are cached too. An opening is split after
the last end-of-turn token in the part that all openings share, and only the rest is tokenised. Tokenizers split text at such tokens first,
so the ids of the two parts together are those of the whole text. This is checked once per pack; if it does not hold, nothing is split.
"""

from __future__ import annotations

import os.path
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from simia.tool import ToolSpec
from simia.trajectory import Message

KEPT = 4096  # latest openings; for each, the ids after the common part
MOST_HEADS = 256  # packs whose common part is kept
Encode = Callable[[str], list[int]]
Render = Callable[[str | None, Sequence[Message], Sequence[ToolSpec]], str]
PackKey = tuple[str | None, tuple[int, ...]]
"""System text, and the `id` of each tool. An entry keeps its tools alive, so no other object can get the same `id`."""
Key = tuple[PackKey, tuple[tuple[str | None, ...], ...]]


@dataclass(slots=True)
class OpeningHead:
    """The common part of a pack's openings. `text` is None until two openings were compared, and empty if they cannot be split."""

    first: str
    tools: Sequence[ToolSpec]
    text: str | None = None
    ids: list[int] = field(default_factory=list)


class OpeningCache:
    """Cache of openings by system text, tools and messages. Safe to use from several threads."""

    def __init__(self, encode: Encode, ends: Sequence[str]) -> None:
        """`encode`: text → ids. `ends`: the tokens that end a turn, as text."""
        self._encode, self._ends = encode, list(ends)
        self._openings: OrderedDict[Key, tuple[OpeningHead, list[int], list[int]]] = OrderedDict()
        self._heads: OrderedDict[PackKey, OpeningHead] = OrderedDict()
        self._lock = threading.RLock()

    def find(self, system: str | None, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int] | None:
        """Return the ids of a cached opening, as a new list; None if it is not cached."""
        key = make_key(system, messages, tools)
        known = self._openings.get(key)
        return [*known[1], *known[2]] if known is not None else None

    def make(
        self, render: Render, system: str | None, messages: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> list[int]:
        """Return the ids of an opening, rendered unless another thread has just done so. Raises what `render` raises."""
        with self._lock:
            known = self.find(system, messages, tools)
            if known is not None:
                return known
            text, key = render(system, messages, tools), make_key(system, messages, tools)
            head = self._heads.get(key[0])
            if head is None:
                head = self._heads[key[0]] = OpeningHead(text, list(tools))
                if len(self._heads) > MOST_HEADS:
                    self._heads.popitem(last=False)
            common, own = self._split(head, text)
            self._openings[key] = head, common, own
            if len(self._openings) > KEPT:
                self._openings.popitem(last=False)
            return [*common, *own]

    def _split(self, head: OpeningHead, text: str) -> tuple[list[int], list[int]]:
        """Return the ids of the common part, the same list for all openings of a pack, and those of the rest."""
        if head.text is None and text != head.first:
            whole = self._encode(text)
            head.text = find_common_part(head.first, text, self._ends)
            head.ids = self._encode(head.text) if head.text else []
            if not head.text or [*head.ids, *self._encode(text[len(head.text) :])] != whole:
                head.text = ""
            return ([], whole) if not head.text else (head.ids, whole[len(head.ids) :])
        if head.text and text.startswith(head.text):
            return head.ids, self._encode(text[len(head.text) :])
        return [], self._encode(text)


def make_key(system: str | None, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Key:
    return (system, tuple(map(id, tools))), tuple((m.role, m.text, m.name, m.call_id) for m in messages)


def find_common_part(one: str, other: str, ends: Sequence[str]) -> str:
    """Return the common prefix of two openings up to and including its last end-of-turn token; empty if there is none."""
    shared = os.path.commonprefix([one, other])  # noqa: RUF071 - of text, not of paths
    return shared[: max((at + len(end) for end in ends if (at := shared.rfind(end)) >= 0), default=0)]
