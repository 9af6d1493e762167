"""The ledger of a run: planned items, results and acceptances, beside the engine's journal of attempts and replies."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from simia.jobs.database import Database, Packed, Statement
from simia.jobs.journal import Journal
from simia.jobs.tables import KEEP, PUT, File, is_sound, make_damage_error, unpack
from simia.sandbox.inside.frames import pack_json as pack_json
from simia.sandbox.inside.frames import unpack_json
from simia.trajectory import Trajectory, digest

PAGE = 1000  # items read at once
HEAD: set[str] = {"system", "tools", "user_tools"}  # fields that all trajectories of one seed share
OPEN, PASSED, REJECTED, FAILED = "open", "passed", "rejected", "failed"
STAGE = "amplify"  # of every item; the column is older than runs that are rollouts
SEPARATOR = "\x1f"  # ASCII unit separator


@dataclass(slots=True)
class Item:
    """One planned unit of work. `ord` decides the order of acceptance; `spec` says what to make."""

    id: str
    ord: int
    spec: dict[str, Any]
    status: str = OPEN
    reason: str | None = None
    detail: str | None = None


def item_row(item: Item, statements: dict[tuple[File, str], str] = PUT) -> Statement:
    row = (item.id, STAGE, item.ord, orjson.dumps(item.spec).decode(), item.status, item.reason, item.detail)
    return "ledger", statements["ledger", "item"], row


def join_names(tools: Sequence[str]) -> str:
    """Return the stored form of the names of tools: each begins with a separator, since a name may have spaces."""
    return "".join(f"{SEPARATOR}{name}" for name in tools)


def split_names(stored: str) -> list[str]:
    """Return the names of tools that `join_names` stored, or an earlier version, which separated them by spaces."""
    return stored[1:].split(SEPARATOR) if stored.startswith(SEPARATOR) else stored.split()


def read_seeds(connection: sqlite3.Connection) -> Iterator[tuple[str, Trajectory]]:
    rows = connection.execute("SELECT hash, body FROM head WHERE hash IN (SELECT head FROM seed)")
    heads = {hashed: Trajectory.from_row(orjson.loads(unpack(packed))) for hashed, packed in rows}
    for id_, hashed, packed in connection.execute("SELECT id, head, body FROM seed ORDER BY ord"):
        seed, head = Trajectory.from_row(orjson.loads(unpack(packed))), heads[hashed]
        yield id_, seed.model_copy(update={name: getattr(head, name) for name in HEAD})


class Ledger(Journal):
    """Reads and writes of one run's two files: beside the journal, items, results and acceptances.

    The head of trajectories (system text and tools), which can be larger than the conversation, is stored once for all that share it.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._heads: dict[str, dict[str, Any]] = {}

    def plan(self, item: Item) -> None:
        """Store a planned item, without waiting: an item that is lost in a kill is planned again identically from its ord."""
        self.db.put_all(item_row(item, KEEP))

    def conclude(
        self,
        item: Item,
        content_hash: str | None,
        body: dict[str, Any] | bytes,
        *,
        tools: Sequence[str] = (),
        signature: bytes | None = None,
    ) -> None:
        """Store an item's verdict and result, without waiting: `recheck` or a resume can derive them again from the stored reply.

        A trajectory in `body` may leave out its head (see `head`) and name it: {"trajectory": …, "head": hash}. The tools that
        it calls and its signature are stored in columns of their own, since selection needs those of all results at once.
        """
        packed = Packed(body if isinstance(body, bytes) else pack_json(body))
        statements = [item_row(item), ("ledger", PUT["ledger", "result"], (item.id, content_hash, packed))]
        if tools or signature:
            statements.append(("ledger", PUT["ledger", "trait"], (item.id, join_names(tools), signature)))
        self.db.put_all(*statements)  # at once: a verdict without its result could not be told from a refusal

    def head(self, hashed: str, head: Callable[[], dict[str, Any]]) -> str:
        """Store this head unless it is stored already, and return its hash."""
        if hashed not in self._heads:
            self._heads[hashed] = head()
            packed = Packed(orjson.dumps(self._heads[hashed]))
            self.db.put("ledger", KEEP["ledger", "head"], (hashed, packed))
        return hashed

    def body(self, stored: bytes) -> dict[str, Any]:
        """A stored result, its trajectory whole again."""
        body: dict[str, Any] = self._loaded("ledger", "a result", stored, unpack_json)
        hashed = body.pop("head", None)
        if hashed is not None and body.get("trajectory"):
            if hashed not in self._heads:
                self._heads[hashed] = self._load_shared("ledger", "head", hashed, orjson.loads)
            body["trajectory"] |= self._heads[hashed]
        return body

    def set_seeds(self, seeds: Sequence[tuple[str, Trajectory]]) -> None:
        """Store (id, seed) in the order in which items use them, so that reports do not need the files that the seeds came from."""
        with self.db.transaction():
            self.db.put("ledger", "DELETE FROM seed")
            for ord_, (id_, seed) in enumerate(seeds):
                whole = seed.model_dump(mode="json", exclude_defaults=True, include=HEAD)
                head = self.head(digest(whole), lambda whole=whole: whole)  # type: ignore[misc]
                row = {"version": seed.version, **seed.model_dump(mode="json", exclude_defaults=True, exclude=HEAD)}
                self.db.put("ledger", PUT["ledger", "seed"], (ord_, id_, head, Packed(orjson.dumps(row))))

    def seeds(self) -> Iterator[tuple[str, Trajectory]]:
        """The run's seeds; those with the same tools share them as objects."""
        yield from read_seeds(self.db.ledger)

    def accept(self, item: Item, content_hash: str) -> None:
        """Accept an item, in place of a later one with equal contents; beside an earlier one it has no effect."""
        self.db.put("ledger", PUT["ledger", "accepted"], (item.ord, item.id, content_hash))

    def set_status(self, item: Item) -> None:
        self.db.put_all(item_row(item))

    def withdraw(self, item: Item) -> None:
        """Delete the acceptance of an item that was accepted while an earlier one was open."""
        self.db.put("ledger", "DELETE FROM accepted WHERE ord = ?", (item.ord,))

    def drop_items(self, first: int, *, wait: bool = True) -> None:
        """Delete the items from this place on, with their results. Replies and attempts stay. `wait`: until it is on disk."""
        later = "(SELECT id FROM item WHERE ord >= ?)"
        for table in ("result", "trait"):
            self.db.put("ledger", f"DELETE FROM {table} WHERE item IN {later}", (first,))
        self.db.put("ledger", "DELETE FROM accepted WHERE ord >= ?", (first,))
        self.db.put("ledger", "DELETE FROM item WHERE ord >= ?", (first,))
        if wait:
            self.flush()

    def accepted_ords(self) -> set[int]:
        """The places of the accepted items."""
        return {ord_ for (ord_,) in self.db.ledger.execute("SELECT ord FROM accepted")}

    def clear_acceptances(self) -> None:
        self.db.put("ledger", "DELETE FROM accepted")

    def items(self) -> Iterator[Item]:
        """All items by ord, page by page: an open reader would keep SQLite from copying the write-ahead log into the file."""
        for item, *_ in self.outcomes():
            yield item

    def outcomes(self) -> Iterator[tuple[Item, str | None, list[str], bytes | None]]:
        """Items by ord, each with the content hash, the tools and the signature of its result."""
        last = -1
        while True:
            rows = self.db.ledger.execute(
                "SELECT id, ord, spec, status, reason, detail, content_hash, tools, signature FROM item"
                " LEFT JOIN result ON result.item = id LEFT JOIN trait ON trait.item = id"
                " WHERE ord > ? ORDER BY ord LIMIT ?",
                (last, PAGE),
            ).fetchall()
            for id_, ord_, spec, status, reason, detail, content_hash, tools, signature in rows:
                item = Item(id_, ord_, orjson.loads(spec), status, reason, detail)
                yield item, content_hash, split_names(tools or ""), signature
            if len(rows) < PAGE:
                return
            last = rows[-1][1]

    def accepted(self) -> Iterator[dict[str, Any]]:
        """Bodies of the accepted results, in ord order."""
        rows = self.db.ledger.execute("SELECT result.* FROM accepted JOIN result USING (item) ORDER BY ord")
        for row in rows:
            if not is_sound("result", row):
                raise make_damage_error(self.db.folder, "ledger", f"the result of {row[0]} has changed")
            yield self.body(row[2])

    def result(self, item: str) -> dict[str, Any] | None:
        row = self._row("ledger", "result", "item", item)
        return self.body(row[2]) if row else None

    def counts(self) -> dict[str, int]:
        return dict(self.db.ledger.execute("SELECT status, COUNT(*) FROM item GROUP BY status").fetchall())

    def accepted_count(self) -> int:
        return int(self.db.ledger.execute("SELECT COUNT(*) FROM accepted").fetchone()[0])

    def reasons(self) -> dict[str, int]:
        rows = self.db.ledger.execute(
            "SELECT reason, COUNT(*) FROM item WHERE reason IS NOT NULL GROUP BY reason ORDER BY 2 DESC, 1"
        )
        return dict(rows.fetchall())
