"""The replies that a worker keeps on its node until they are in the run, and how they come into it.

A worker writes each reply to a store before it sends it to the job. Usually the job has it a millisecond later. What a lost worker or a
killed job left in a node's stores is merged when a job connects: each reply once, priced, and as the answer of the attempt that asked for it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from simia.jobs.journal import Journal
from simia.jobs.reply_store import RequestClaims, Store
from simia.jobs.run import InUse, take_lock
from simia.llm.prices import Price
from simia.llm.types import Reply, Request


class NodeStore:
    """A worker's own store, which it writes, and those that dead workers of this node left, which it reads."""

    def __init__(self, root: Path) -> None:
        """`root`: the folder of one run on this node. Raises `UserError` where nothing can be written."""
        self.root = root
        self.own = Store.open(root)
        self._stores = [self.own, *open_left_stores(root)]

    def recall(self, key: str) -> Reply | None:
        """The reply of this key that any worker of this node stored, dead or alive."""
        return self.own.recall(key)

    def list_keys(self) -> list[str]:
        """The keys of all replies that this worker can fetch, those of workers that died meanwhile included."""
        self._stores += open_left_stores(self.root)
        return [key for store in self._stores for key in store.list_keys()]

    def fetch(self, key: str) -> dict[str, Any] | None:
        """The reply of a key with its request and its sample, and the `model` that it was asked of."""
        return next((row for store in self._stores if (row := store.fetch(key)) is not None), None)

    def close(self, *, discard: bool = False) -> None:
        """`discard`: remove the stores of which this worker has listed the keys, since the run has all their replies."""
        for store in self._stores:
            store.close()
            if discard:
                shutil.rmtree(store.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # others may hold stores in it
            self.root.rmdir()


def open_left_stores(root: Path) -> Iterator[Store]:
    """Open the stores that no living process holds."""
    for folder in list_folders(root):
        try:
            lock = take_lock(folder)
        except InUse:
            continue
        yield Store(folder, lock, RequestClaims(root / "0" / "claims"))


def list_folders(root: Path) -> Sequence[Path]:
    return sorted((each for each in root.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))


async def merge_reply(journal: Journal, row: dict[str, Any], price: Price | None) -> bool:
    """Add a reply of a node's store to the run, durable on return. False: the run had it."""
    key, draw, request = row["key"], row["draw"], Request.model_validate(row["request"])
    if journal.recall(key) is not None:
        return False
    reply = Reply.model_validate(row["reply"])
    if price is not None and reply.usage.cost is None and (reply.usage.prompt or reply.usage.completion):
        reply.usage.cost = price.of(reply.usage)
    item = journal.take_up_attempt(key, draw, request)
    await journal.answered(key, item, reply)
    return True
