"""The journal of an engine: attempts, replies and what they cost. `Ledger` adds the items of a run.

It is the engine's `ReplyJournal`: an attempt is on disk before it is sent, a reply before it is used. A call that was in flight
when a process died is an attempt without an answer and is counted as possibly paid twice.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

import orjson

from simia.errors import Code
from simia.jobs.database import Database, Packed, Statement
from simia.jobs.tables import COST, KEEP, PUT, READ_ERRORS, File, build_token_sum, is_sound, make_damage_error, unpack
from simia.llm.budget import Spending, read_cost
from simia.llm.types import LLMFault, Reply, Request
from simia.trajectory import Usage

UNRECORDED = "tries"  # meta: what the rows of attempts do not say of earlier sessions' tries
SHARED = 512  # bytes; a system text or schema of at least this size is stored once
MOST_SHARED = 1000
TEXT = "$text"
T = TypeVar("T")


def attempt_row(
    item: str,
    n: int,
    key: str,
    status: str,
    sent: float,
    got: float | None = None,
    *,
    code: str | None = None,
    usage: Usage | None = None,
) -> Statement:
    """Return the statement that writes the whole row of an attempt: only whole rows have a checksum."""
    spent = (usage.prompt, usage.completion, usage.cached, usage.cost) if usage else (None,) * 4
    return "ledger", PUT["ledger", "attempt"], (item, n, key, status, code, *spent, sent, got)


class Journal:
    """Reads and writes of attempts and replies in a folder's two files.

    The long system text and the schema of requests, which thousands have in common, are stored once.
    """

    def __init__(self, database: Database) -> None:
        self.db = database
        try:
            known = self.db.ledger.execute("SELECT item, MAX(n) FROM attempt GROUP BY item").fetchall()
        except READ_ERRORS as error:
            raise make_damage_error(database.folder, "ledger", error) from None
        self._attempts: dict[str, int] = dict(known)
        self._pending: dict[str, tuple[str, Request, int, float]] = {}
        self._texts: dict[Hashable, tuple[str, Any]] = {}  # what is shared → its hash, once it is queued to be stored
        self._read: dict[str, bytes] = {}

    def recall(self, key: str) -> Reply | None:
        """The stored reply. Raises `Damaged` if it has changed."""
        row = self._row("replies", "reply", "key", key)
        return None if row is None else self._loaded("replies", f"the reply {key}", row[3], Reply.model_validate_json)

    def recall_request(self, key: str) -> Request | None:
        """The stored request of a reply. Raises `Damaged` if it has changed."""
        row = self._row("replies", "reply", "key", key)
        return None if row is None else Request.model_validate(self.request(row[2]))

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None:
        n = self._attempts[item] = self._attempts.get(item, -1) + 1
        now = time.time()
        self._pending[key] = (draw, request, n, now)
        await self.db.commit(attempt_row(item, n, key, "sent", now))

    async def answered(self, key: str, item: str, reply: Reply) -> None:
        draw, request, n, sent = self._pending.pop(key)
        now = time.time()
        body = Packed(orjson.dumps(reply.stored()))
        asked, texts = self._shared(request.canonical())
        await self.db.commit(
            *texts,
            ("replies", KEEP["replies", "reply"], (key, draw, asked, body, now)),
            attempt_row(item, n, key, "got", sent, now, usage=reply.usage),
        )

    def take_up_attempt(self, key: str, draw: str, request: Request) -> str:
        """Let `answered` complete the latest attempt of this key that has no answer, or a new one. Returns its item."""
        row = self.db.ledger.execute(
            "SELECT item, n, asked_at FROM attempt WHERE reply_key = ? AND status <> 'got' ORDER BY asked_at DESC",
            (key,),
        ).fetchone()
        if row is None:
            self._attempts[draw] = self._attempts.get(draw, -1) + 1
            row = draw, self._attempts[draw], time.time()
        self._pending[key] = (draw, request, row[1], row[2])
        return str(row[0])

    def complete_attempts(self) -> None:
        """Count stored replies whose attempt has no answer: a process that was killed between the commits of the two files leaves such."""
        sent = "SELECT reply_key, item, n, asked_at FROM attempt WHERE status = 'sent' ORDER BY asked_at"
        latest = {key: row for key, *row in self.db.ledger.execute(sent).fetchall()}
        if not latest:
            return
        counted = {key for (key,) in self.db.ledger.execute("SELECT reply_key FROM attempt WHERE status = 'got'")}
        for key, (item, n, asked_at) in latest.items():
            if key not in counted and (reply := self.recall(key)) is not None:
                (at,) = self.db.replies.execute("SELECT at FROM reply WHERE key = ?", (key,)).fetchone()
                self.db.put_all(attempt_row(item, n, key, "got", asked_at, at, usage=reply.usage))
        self.flush()

    async def failed(self, key: str, item: str, fault: LLMFault) -> None:
        *_, n, sent = self._pending.pop(key)
        if fault.code is Code.PENDING:  # written down for a batch: no attempt was made
            await self.db.commit(("ledger", "DELETE FROM attempt WHERE item = ? AND n = ?", (item, n)))
            return
        await self.db.commit(attempt_row(item, n, key, "failed", sent, time.time(), code=str(fault.code)))

    def _shared(self, request: dict[str, Any]) -> tuple[Packed, list[Statement]]:
        """Return the request in its stored form, and statements that store the parts it shares with other requests."""
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
        """Return a reference to a value that is stored once, or the value itself if it is short or too many are stored already."""
        known = self._texts.get(key)
        if known is None:
            whole = raw()
            if len(whole) < SHARED or len(self._texts) >= MOST_SHARED:
                return orjson.loads(whole) if keep is not None else key
            known = self._texts[key] = (hashlib.blake2b(whole, digest_size=16).hexdigest(), keep)
            statements.append(("replies", KEEP["replies", "text"], (known[0], Packed(whole))))
        return {TEXT: known[0]}

    def keep_texts(self, request: Request) -> None:
        """Store the parts that this request shares with others again, if they were lost."""
        self.db.put_all(*self._shared(request.canonical())[1])

    def request(self, stored: bytes) -> dict[str, Any]:
        """A stored request, whole again."""
        request: dict[str, Any] = self._loaded("replies", "a request", stored, orjson.loads)
        for message in request["messages"]:
            if isinstance(message.get("content"), dict):
                message["content"] = self._text(message["content"][TEXT]).decode()
        shape = request.get("response_format")
        if shape and shape.keys() == {TEXT}:
            request["response_format"] = orjson.loads(self._text(shape[TEXT]))
        return request

    def _text(self, hashed: str) -> bytes:
        if hashed not in self._read:
            self._read[hashed] = self._load_shared("replies", "text", hashed, bytes)
        return self._read[hashed]

    def _load_shared(self, file: File, table: str, hashed: str, load: Callable[[bytes], T]) -> T:
        """A value that other rows name by its hash."""
        row = self._row(file, table, "hash", hashed)
        if row is None:
            raise make_damage_error(self.db.folder, file, f"the {table} {hashed} that other rows share is missing")
        return self._loaded(file, f"the {table} {hashed}", row[1], load)

    def _row(self, file: File, table: str, column: str, value: str) -> tuple[Any, ...] | None:
        """One row, compared with its checksum and with the value searched for, since an index may be damaged too."""
        connection = self.db.replies if file == "replies" else self.db.ledger
        try:
            row: tuple[Any, ...] | None = connection.execute(
                f"SELECT * FROM {table} WHERE {column} = ?", (value,)
            ).fetchone()
        except READ_ERRORS as error:
            raise make_damage_error(self.db.folder, file, error) from None
        if row is not None and (row[0] != value or not is_sound(table, row)):
            raise make_damage_error(self.db.folder, file, f"the row of {value} in table {table} has changed")
        return row

    def _loaded(self, file: File, what: str, packed: bytes, load: Callable[[bytes], T]) -> T:
        try:
            return load(unpack(packed))
        except ValueError as error:  # what pydantic and orjson raise too
            raise make_damage_error(self.db.folder, file, f"{what}: {str(error).splitlines()[0]}") from None

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
                "reply": self._loaded("replies", f"the reply {key}", body, orjson.loads),
            }

    def find_keys_by_draw(self) -> dict[str, str]:
        """The key of the stored reply of each sample, without the samples that have several."""
        found = self.db.replies.execute("SELECT draw, MIN(key) FROM reply GROUP BY draw HAVING COUNT(*) = 1")
        return dict(found.fetchall())

    def answered_count(self) -> int:
        return int(self.db.ledger.execute("SELECT COUNT(*) FROM attempt WHERE status = 'got'").fetchone()[0])

    def spent(self) -> tuple[Usage, dict[str, int]]:
        """Tokens and cost of all replies of all sessions, and counts of attempts by status."""
        row = self.db.ledger.execute(
            f"SELECT {build_token_sum('prompt')}, {build_token_sum('completion')}, {build_token_sum('cached')}, {COST} FROM attempt"
        ).fetchone()
        statuses = dict(self.db.ledger.execute("SELECT status, COUNT(*) FROM attempt GROUP BY status").fetchall())
        return Usage(prompt=row[0], completion=row[1], cached=row[2], cost=row[3]), statuses

    def earlier_spending(self) -> Spending:
        """Return the spending of the sessions so far. A call that was in flight at the end of one may have been paid, and so may a try
        without an answer in time. Retries of a session that was killed are not known."""
        usage, statuses = self.spent()
        more = self.meta(UNRECORDED) or {}
        return Spending(
            sent=sum(statuses.values()) + more.get("retries", 0),
            answered=self.answered_count(),
            tokens=read_cost("tokens", usage),
            cost=read_cost("cost", usage),
            blind=statuses.get("sent", 0) + more.get("timed_out", 0),
        )

    def note_tries(self, retries: int, timed_out: int) -> None:
        """Add a session's retries and tries without an answer in time, of which the rows of attempts say nothing."""
        more = self.meta(UNRECORDED) or {}
        known = {"retries": more.get("retries", 0) + retries, "timed_out": more.get("timed_out", 0) + timed_out}
        if any(known.values()):
            self.set_meta(UNRECORDED, known)

    def meta(self, name: str, file: File = "ledger") -> Any:
        row = self._row(file, "meta", "name", name)
        try:
            return orjson.loads(row[1]) if row else None
        except ValueError as error:
            raise make_damage_error(self.db.folder, file, f"{name} in table meta: {error}") from None

    def set_meta(self, name: str, value: Any, *, twice: bool = False) -> None:
        """Store a value. `twice`: also with the replies, from which it could not be derived if the ledger were lost."""
        said = orjson.dumps(value).decode()
        for file in ("replies", "ledger") if twice else ("ledger",):
            self.db.write(file, PUT[file, "meta"], (name, said)).result()

    def flush(self) -> None:
        """Return once everything written so far is on disk."""
        self.db.write("ledger", "SELECT 1").result()
