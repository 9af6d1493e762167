"""The ledger of a run: items planned, attempts asked, replies received, results derived, acceptances decided.

It is the `Journal` of the engine (law 2): an attempt is on disk before it is sent, a reply before it is used. What was
in flight when a process died shows as an attempt without an answer and is counted as possibly paid twice.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import zstandard

from simia.errors import Code
from simia.llm.types import LLMFault, Reply, Request
from simia.runs.database import Database, Packed, Statement
from simia.trajectory import Trajectory, Usage, digest

SHARED = 512  # characters from which on a system text is stored once
MOST_SHARED = 1000
PAGE = 1000  # items read at once
TEXT = "$text"
HEAD: set[str] = {"system", "tools", "user_tools"}  # of a trajectory: what all of one seed share
OPEN, PASSED, REJECTED, FAILED = "open", "passed", "rejected", "failed"


@dataclass(slots=True)
class Item:
    """One planned unit of work. `ord` decides the order of acceptance; `spec` says what to make."""

    id: str
    ord: int
    spec: dict[str, Any]
    status: str = OPEN
    reason: str | None = None
    detail: str | None = None


def seeds_of(connection: sqlite3.Connection) -> Iterator[tuple[str, Trajectory]]:
    unpack = zstandard.ZstdDecompressor()
    heads: dict[str, Trajectory] = {}
    for hashed, packed in connection.execute("SELECT hash, body FROM head WHERE hash IN (SELECT head FROM seed)"):
        heads[hashed] = Trajectory.from_row(orjson.loads(unpack.decompress(packed)))
    for id_, hashed, packed in connection.execute("SELECT id, head, body FROM seed ORDER BY ord"):
        seed, head = Trajectory.from_row(orjson.loads(unpack.decompress(packed))), heads[hashed]
        yield id_, seed.model_copy(update={name: getattr(head, name) for name in HEAD})


class Ledger:
    """Reads and writes of one run's two files.

    What thousands of rows have in common is stored once: the long system text of requests, and the head (system text and
    tools) of trajectories, which can be larger than the conversation.
    """

    def __init__(self, database: Database) -> None:
        self.db = database
        self._attempts: dict[str, int] = dict(
            self.db.ledger.execute("SELECT item, MAX(n) FROM attempt GROUP BY item").fetchall()
        )
        self._pending: dict[str, tuple[str, Request, int]] = {}
        self._unpack = zstandard.ZstdDecompressor()
        self._texts: dict[Hashable, tuple[str, Any]] = {}  # what is shared → its hash, once it is queued to be stored
        self._read: dict[str, bytes] = {}
        self._heads: dict[str, dict[str, Any]] = {}

    # -- the engine's journal ------------------------------------------------------------------------------------

    def recall(self, key: str) -> Reply | None:
        row = self.db.replies.execute("SELECT body FROM reply WHERE key = ?", (key,)).fetchone()
        return Reply.model_validate_json(self._unpack.decompress(row[0])) if row else None

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None:
        n = self._attempts[item] = self._attempts.get(item, -1) + 1
        self._pending[key] = (draw, request, n)
        await self.db.commit(
            (
                "ledger",
                "INSERT INTO attempt (item, n, reply_key, status, asked_at) VALUES (?, ?, ?, 'sent', ?)",
                (item, n, key, time.time()),
            )
        )

    async def answered(self, key: str, item: str, reply: Reply) -> None:
        draw, request, n = self._pending.pop(key)
        usage, now = reply.usage, time.time()
        body = Packed(orjson.dumps(reply.stored()))
        asked, texts = self._shared(request.canonical())
        await self.db.commit(
            *texts,
            ("replies", "INSERT OR IGNORE INTO reply VALUES (?, ?, ?, ?, ?)", (key, draw, asked, body, now)),
            (
                "ledger",
                "UPDATE attempt SET status = 'got', got_at = ?, prompt = ?, completion = ?, cached = ?, cost = ?"
                " WHERE item = ? AND n = ?",
                (now, usage.prompt, usage.completion, usage.cached, usage.cost, item, n),
            ),
        )

    async def failed(self, key: str, item: str, fault: LLMFault) -> None:
        *_, n = self._pending.pop(key)
        if fault.code is Code.PENDING:  # written down for a batch: no attempt was made
            await self.db.commit(("ledger", "DELETE FROM attempt WHERE item = ? AND n = ?", (item, n)))
            return
        await self.db.commit(
            (
                "ledger",
                "UPDATE attempt SET status = 'failed', code = ?, got_at = ? WHERE item = ? AND n = ?",
                (str(fault.code), time.time(), item, n),
            )
        )

    def _shared(self, request: dict[str, Any]) -> tuple[Packed, list[Statement]]:
        """The request as it is stored, and what it shares with others and must be stored with it."""
        statements: list[Statement] = []
        stored = dict(request)
        stored["messages"] = [
            {**message, "content": self._once(message["content"], message["content"].encode, statements)}
            if message["role"] == "system" and isinstance(message.get("content"), str)
            else message
            for message in request["messages"]
        ]
        if schema := request.get("response_format"):
            # By identity: the simulator hands out the same object for the same tools, and never edits it.
            stored["response_format"] = self._once((id(schema),), lambda: orjson.dumps(schema), statements, keep=schema)
        return Packed(orjson.dumps(stored)), statements

    def _once(
        self, key: Hashable, raw: Callable[[], bytes], statements: list[Statement], keep: Any = None
    ) -> dict[str, str] | Any:
        """What stands in place of something that is stored once; itself where it is short or there are too many."""
        known = self._texts.get(key)
        if known is None:
            whole = raw()
            if len(whole) < SHARED or len(self._texts) >= MOST_SHARED:
                return orjson.loads(whole) if keep is not None else key
            known = self._texts[key] = (hashlib.blake2b(whole, digest_size=16).hexdigest(), keep)
            statements.append(("replies", "INSERT OR IGNORE INTO text VALUES (?, ?)", (known[0], Packed(whole))))
        return {TEXT: known[0]}

    def request(self, stored: bytes) -> dict[str, Any]:
        """A stored request, whole again."""
        request: dict[str, Any] = orjson.loads(self._unpack.decompress(stored))
        for message in request["messages"]:
            if isinstance(message.get("content"), dict):
                message["content"] = self._text(message["content"][TEXT]).decode()
        shape = request.get("response_format")
        if shape and shape.keys() == {TEXT}:
            request["response_format"] = orjson.loads(self._text(shape[TEXT]))
        return request

    def _text(self, hashed: str) -> bytes:
        known = self._read.get(hashed)
        if known is None:
            (packed,) = self.db.replies.execute("SELECT body FROM text WHERE hash = ?", (hashed,)).fetchone()
            known = self._read[hashed] = self._unpack.decompress(packed)
        return known

    # -- items and results ---------------------------------------------------------------------------------------

    def plan(self, item: Item) -> None:
        """Not awaited: an item that is lost in a kill is planned again, the same, from its ord."""
        self.db.put(
            "ledger",
            "INSERT OR IGNORE INTO item (id, stage, ord, spec, status) VALUES (?, 'amplify', ?, ?, ?)",
            (item.id, item.ord, orjson.dumps(item.spec).decode(), item.status),
        )

    def conclude(
        self,
        item: Item,
        content_hash: str | None,
        body: dict[str, Any] | bytes,
        *,
        tools: Sequence[str] = (),
        signature: bytes | None = None,
    ) -> None:
        """Derived from a stored reply, hence not awaited either: `recheck` or a resume derives it again.

        A trajectory in `body` may leave out its head (see `head`) and name it: {"trajectory": …, "head": hash}. The tools that
        it calls and its signature are kept beside it, since selection needs them of all results at once.
        """
        self.set_status(item)
        if tools or signature:
            values = (item.id, " ".join(tools), signature)
            self.db.put("ledger", "INSERT OR REPLACE INTO trait VALUES (?, ?, ?)", values)
        self.db.put(
            "ledger",
            "INSERT OR REPLACE INTO result VALUES (?, ?, ?)",
            (item.id, content_hash, Packed(body if isinstance(body, bytes) else orjson.dumps(body))),
        )

    def head(self, hashed: str, head: Callable[[], dict[str, Any]]) -> str:
        """See that this head is stored, and return its hash."""
        if hashed not in self._heads:
            self._heads[hashed] = head()
            packed = Packed(orjson.dumps(self._heads[hashed]))
            self.db.put("ledger", "INSERT OR IGNORE INTO head VALUES (?, ?)", (hashed, packed))
        return hashed

    def body(self, stored: bytes) -> dict[str, Any]:
        """A stored result, its trajectory whole again."""
        body: dict[str, Any] = orjson.loads(self._unpack.decompress(stored))
        hashed = body.pop("head", None)
        if hashed is not None and body.get("trajectory"):
            if hashed not in self._heads:
                (packed,) = self.db.ledger.execute("SELECT body FROM head WHERE hash = ?", (hashed,)).fetchone()
                self._heads[hashed] = orjson.loads(self._unpack.decompress(packed))
            body["trajectory"] |= self._heads[hashed]
        return body

    def set_seeds(self, seeds: Sequence[tuple[str, Trajectory]]) -> None:
        """(id, seed) in the order in which items use them; a run explains itself later without the files they came from."""
        self.db.put("ledger", "DELETE FROM seed")
        for ord_, (id_, seed) in enumerate(seeds):
            whole = seed.model_dump(mode="json", exclude_defaults=True, include=HEAD)
            head = self.head(digest(whole), lambda whole=whole: whole)  # type: ignore[misc]
            row = {"version": seed.version, **seed.model_dump(mode="json", exclude_defaults=True, exclude=HEAD)}
            self.db.put("ledger", "INSERT INTO seed VALUES (?, ?, ?, ?)", (ord_, id_, head, Packed(orjson.dumps(row))))

    def seeds(self) -> Iterator[tuple[str, Trajectory]]:
        """The run's seeds; those with the same tools share them as objects."""
        yield from seeds_of(self.db.ledger)

    def accept(self, item: Item, content_hash: str) -> None:
        self.db.put("ledger", "INSERT OR IGNORE INTO accepted VALUES (?, ?, ?)", (item.ord, item.id, content_hash))

    def set_status(self, item: Item) -> None:
        self.db.put(
            "ledger",
            "UPDATE item SET status = ?, reason = ?, detail = ? WHERE id = ?",
            (item.status, item.reason, item.detail, item.id),
        )

    def clear_acceptances(self) -> None:
        self.db.put("ledger", "DELETE FROM accepted")

    def items(self) -> Iterator[Item]:
        """All items by ord, page by page: a reader that stays open would keep the log of writes from being folded in."""
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
                yield item, content_hash, (tools or "").split(), signature
            if len(rows) < PAGE:
                return
            last = rows[-1][1]

    def accepted(self) -> Iterator[dict[str, Any]]:
        """Bodies of the accepted results, in ord order."""
        rows = self.db.ledger.execute("SELECT body FROM accepted JOIN result USING (item) ORDER BY ord")
        for (body,) in rows:
            yield self.body(body)

    def result(self, item: str) -> dict[str, Any] | None:
        row = self.db.ledger.execute("SELECT body FROM result WHERE item = ?", (item,)).fetchone()
        return self.body(row[0]) if row else None

    def reply_keys(self, item: str) -> list[str]:
        rows = self.db.ledger.execute("SELECT DISTINCT reply_key FROM attempt WHERE item = ? ORDER BY n", (item,))
        return [key for (key,) in rows]

    def replies(self) -> Iterator[dict[str, Any]]:
        """Every stored completion with its request: what `replay` reads."""
        for key, draw, request, body in self.db.replies.execute(
            "SELECT key, draw, request, body FROM reply ORDER BY at"
        ):
            yield {
                "key": key,
                "draw": draw,
                "request": self.request(request),
                "reply": orjson.loads(self._unpack.decompress(body)),
            }

    # -- figures -------------------------------------------------------------------------------------------------

    def counts(self) -> dict[str, int]:
        return dict(self.db.ledger.execute("SELECT status, COUNT(*) FROM item GROUP BY status").fetchall())

    def accepted_count(self) -> int:
        return int(self.db.ledger.execute("SELECT COUNT(*) FROM accepted").fetchone()[0])

    def answered_count(self) -> int:
        return int(self.db.ledger.execute("SELECT COUNT(*) FROM attempt WHERE status = 'got'").fetchone()[0])

    def reasons(self) -> dict[str, int]:
        rows = self.db.ledger.execute(
            "SELECT reason, COUNT(*) FROM item WHERE reason IS NOT NULL GROUP BY reason ORDER BY 2 DESC, 1"
        )
        return dict(rows.fetchall())

    def spent(self) -> tuple[Usage, dict[str, int]]:
        """Tokens and cost of all replies of all sessions, and counts of attempts by status."""
        row = self.db.ledger.execute(
            "SELECT COALESCE(SUM(prompt), 0), COALESCE(SUM(completion), 0), COALESCE(SUM(cached), 0), SUM(cost) FROM attempt"
        ).fetchone()
        statuses = dict(self.db.ledger.execute("SELECT status, COUNT(*) FROM attempt GROUP BY status").fetchall())
        return Usage(prompt=row[0], completion=row[1], cached=row[2], cost=row[3]), statuses

    def meta(self, name: str) -> Any:
        row = self.db.ledger.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return orjson.loads(row[0]) if row else None

    def set_meta(self, name: str, value: Any) -> None:
        self.db.write(
            "ledger", "INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, orjson.dumps(value).decode())
        ).result()

    def flush(self) -> None:
        """Return once everything written so far is on disk."""
        self.db.write("ledger", "SELECT 1").result()
