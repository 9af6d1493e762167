"""Count properties of a run's results: tools, lengths, errors, repairs, overlap with the seeds.

One core takes long for 90,000 results, so a large run is read in ranges of items, each by a process of its own, and the
counts of the ranges are added. The processes are separate commands: a forked process would inherit the open database,
and a spawned one would run the caller's script again. Stored trajectories are read as plain dictionaries, since building
90,000 models would take longer than all counts.

Comparing words and identifiers takes longer than everything else. In a large run only some accepted trajectories are
compared, chosen by the hash of their id (seeds take turns, so every fourth item may come from the same few seeds).
"""

from __future__ import annotations

import hashlib
import pickle
import sqlite3
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson

from simia.jobs import read_seeds
from simia.jobs.tables import unpack
from simia.quality.check import CALL_TOKENS, TURN_TOKENS
from simia.quality.fast_tokens import estimate_byte_tokens
from simia.quality.toolset import Toolset
from simia.report.seed_overlap import SeedIndex
from simia.trajectory import Trajectory, digest, upgrade_row

Row = dict[str, Any]
BINS = 40  # of the timeline
COMPARED = 20_000  # approximate maximum of accepted trajectories that are compared with the seeds
OPENING = 6  # words
LENGTHS = ("messages", "calls", "tokens")
VERDICT = """CASE WHEN accepted.ord IS NOT NULL THEN 'accepted' WHEN status = 'passed' THEN 'surplus' ELSE status END"""
# Ordered by stage and ord as in the index, so that SQLite sorts no bodies.
RESULTS = f"""
SELECT item.id, item.ord, item.spec ->> '$.seed', {VERDICT}, body
FROM item JOIN result ON result.item = item.id LEFT JOIN accepted ON accepted.ord = item.ord
WHERE item.stage = 'amplify' AND item.ord >= ? AND item.ord < ? ORDER BY item.ord
"""


class LossyCounter:
    """Count the most frequent values in bounded memory (lossy counting).

    When the table is full, every count is reduced by one and values with a count of zero are dropped. A count is
    therefore too small by at most the number of reductions: frequent values are always found, rare ones may be missed.
    """

    def __init__(self, capacity: int = 20_000) -> None:
        self.counts: Counter[str] = Counter()
        self._capacity = capacity

    def update(self, values: Iterable[str] | LossyCounter) -> None:
        self.counts.update(values.counts if isinstance(values, LossyCounter) else values)
        while len(self.counts) > self._capacity:
            self.counts = Counter({value: count - 1 for value, count in self.counts.items() if count > 1})

    def top(self, most: int, *, least: int = 2) -> dict[str, int]:
        """Return at most `most` values with their counts. Ties are in alphabetical order, so that the result is stable."""
        ranked = sorted(self.counts.items(), key=lambda pair: (-pair[1], pair[0]))
        return {value: count for value, count in ranked[:most] if count >= least}


@dataclass(slots=True)
class ResultCounts:
    """Counts of a range of results. The counts of two consecutive ranges add up to those of both."""

    figures: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)
    tools: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # calls by pack, tool and verdict
    invented: LossyCounter = field(default_factory=lambda: LossyCounter(1_000))  # calls to tools that do not exist
    messages: Counter[int] = field(default_factory=Counter)  # number of accepted trajectories of each length
    calls: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    nearness: Counter[int] = field(default_factory=Counter)  # tenths of the user's word 5-grams that occur in seeds
    sequences: LossyCounter = field(default_factory=LossyCounter)
    openings: LossyCounter = field(default_factory=LossyCounter)
    identifiers: LossyCounter = field(default_factory=LossyCounter)
    first_bin: dict[int, int] = field(default_factory=dict)  # hash of a tool sequence → first timeline bin with it

    def add(self, later: ResultCounts) -> None:
        """Add the counts of the next range."""
        first_bin = later.first_bin | self.first_bin
        for each in fields(self):
            getattr(self, each.name).update(getattr(later, each.name))
        self.first_bin = first_bin

    @property
    def lengths(self) -> dict[str, Counter[int]]:
        return {name: getattr(self, name) for name in LENGTHS}


@dataclass(slots=True)
class Conversation:
    """The parts of a conversation that are counted. Recovered: a tool failed, and a call of a later turn succeeded."""

    messages: list[Row]
    users: list[str] = field(default_factory=list)
    calls: list[Row] = field(default_factory=list)
    parallel: int = 0
    failed: bool = False
    recovered: bool = False
    sequence: tuple[str, ...] = ()


def read_conversation(row: Row) -> Conversation:
    """Read a stored trajectory in one pass. Only rows that the ledger wrote are read, so their shape is known."""
    found = Conversation(upgrade_row(row).get("messages", []))
    turn, failed_in = 0, None
    for message in found.messages:
        role = message["role"]
        if role == "tool":
            if "error" in message:
                failed_in = turn if failed_in is None else failed_in
            elif failed_in is not None and turn > failed_in:
                found.recovered = True
        elif role == "user":
            found.users.append(join_text_parts(message.get("content")))
        elif "calls" in message:
            turn += 1
            found.parallel += len(message["calls"]) > 1
            found.calls += message["calls"]
    found.failed = failed_in is not None
    found.sequence = tuple([call["name"] for call in found.calls])
    return found


def join_text_parts(content: Any) -> str:
    """Return the text of a message's content, as `Message.text` does."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if part.get("type", "text") == "text")
    return content or ""


def estimate_conversation_tokens(conversation: Conversation) -> int:
    """Estimate the tokens without system text and tools, as `check.estimate_view_tokens` does."""
    calls = conversation.calls
    reasoning = [message["reasoning"] for message in conversation.messages if message.get("reasoning")]
    markup = TURN_TOKENS * (len(conversation.messages) + len(reasoning)) + CALL_TOKENS * len(calls)
    texts = [join_text_parts(message.get("content")) for message in conversation.messages]
    texts += [*reasoning, *conversation.sequence, *(call.get("raw") or "" for call in calls)]
    arguments = [orjson.dumps(call["arguments"]) for call in calls if call.get("arguments") is not None]
    return markup + estimate_byte_tokens(b"".join(["".join(texts).encode(), *arguments]))


class ResultCounter:
    """Count results in the order of their items."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.counts = ResultCounts()
        stored = connection.execute("SELECT hash, body FROM head")
        self._stored_heads: dict[str, Row] = {name: orjson.loads(unpack(body)) for name, body in stored}
        self._toolsets: dict[tuple[str, str], Toolset] = {}
        self._seeds = SeedIndex(dict(read_seeds(connection)))
        last = get_last_ord(connection)
        self._bin_width, self._sample_interval = compute_bin_width(last), last // COMPARED + 1

    def add(self, id_: str, ord_: int, seed_id: str, verdict: str, body: Row) -> None:
        """Count one result. For a surplus result, only its repairs are counted."""
        counts, row = self.counts, body["trajectory"]
        counts.repairs.update(set(body["repairs"]))
        if row is None or verdict == "surplus":
            return
        pack = row.get("pack") or ""
        toolset, conversation = self._get_toolset(pack, row, body.get("head")), read_conversation(row)
        column = "accepted" if verdict == "accepted" else "rejected"
        for name, times in Counter(conversation.sequence).items():
            if name in toolset.schemas:
                counts.tools[pack, name, column] += times
            else:
                counts.invented.update([name] * times)
        if verdict == "accepted":
            counts.figures["repaired"] += bool(body["repairs"])
            self._add_accepted(conversation, ord_ // self._bin_width)
            if zlib.crc32(id_.encode()) % self._sample_interval == 0:
                head_tokens = toolset.tokens + CALL_TOKENS * len(toolset.tools)
                counts.tokens[head_tokens + estimate_conversation_tokens(conversation)] += 1
                self._compare(conversation, pack, toolset.system, seed_id)

    def _add_accepted(self, conversation: Conversation, timeline_bin: int) -> None:
        counts, figures = self.counts, self.counts.figures
        counts.messages[len(conversation.messages)] += 1
        counts.calls[len(conversation.calls)] += 1
        figures["parallel"] += conversation.parallel > 0
        figures["with_errors"] += conversation.failed
        figures["recovered"] += conversation.recovered
        called = " → ".join(conversation.sequence)
        counts.sequences.update([called])
        # A hash that is the same in every process.
        hashed = int.from_bytes(hashlib.blake2b(called.encode(), digest_size=8).digest())
        counts.first_bin.setdefault(hashed, timeline_bin)
        first = conversation.users[0] if conversation.users else ""
        counts.openings.update([" ".join(first[:200].lower().split()[:OPENING])])

    def _compare(self, conversation: Conversation, pack: str, system: str, seed_id: str) -> None:
        """Compare an accepted trajectory with the seeds."""
        grams, known = self._seeds.count_known_grams(conversation.users)
        identifiers = self._seeds.find_identifiers(conversation.calls, pack, system)
        copied = len(identifiers & self._seeds.values.get(pack, set()))
        self.counts.figures.update(
            compared=1,
            grams=grams,
            grams_in_seeds=known,
            some=known > 0,
            half=known > 0 and 2 * known >= grams,
            same_sequence=self._seeds.sequences.get(seed_id) == conversation.sequence,
            identifiers=len(identifiers),
            identifiers_in_seeds=copied,
            copiers=copied > 0,
        )
        # 0 only for none, 10 for all.
        self.counts.nearness[-(-10 * known // grams) if grams else 0] += 1
        self.counts.identifiers.update(identifiers)

    def _get_toolset(self, pack: str, row: Row, head: str | None) -> Toolset:
        key = pack, head or digest([row.get("system"), row.get("tools", [])])
        if key not in self._toolsets:
            whole = row | self._stored_heads[head] if head else row
            self._toolsets[key] = Toolset.of(Trajectory.from_row(whole | {"messages": []}))
            for name in self._toolsets[key].schemas:
                self.counts.tools[pack, name, "accepted"] += 0  # listed even if it is never called
        return self._toolsets[key]


def count_results(connection: sqlite3.Connection, first: int, end: int) -> ResultCounts:
    """Count the results of the items with `first` <= ord < `end`."""
    counter = ResultCounter(connection)
    for id_, ord_, seed_id, verdict, body in connection.execute(RESULTS, (first, end)):
        counter.add(id_, ord_, str(seed_id), verdict, orjson.loads(unpack(body)))
    return counter.counts


def count_results_in_parallel(connection: sqlite3.Connection, folder: Path, processes: int) -> ResultCounts:
    """Count all results in equal ranges: the first one in this process, each other one in a process of its own."""
    ends = [(get_last_ord(connection) + 1) * i // processes for i in range(processes + 1)]
    # -P: import nothing from the current folder.
    command = [sys.executable, "-P", "-c", f"from {__name__} import count_range; count_range()", str(folder)]
    others = [
        subprocess.Popen([*command, str(first), str(end)], stdout=subprocess.PIPE) for first, end in pairwise(ends[1:])
    ]
    try:
        counts = count_results(connection, ends[0], ends[1])
        for other, (first, end) in zip(others, pairwise(ends[1:]), strict=True):
            out, _ = other.communicate()
            # If a process was killed, for example for its memory use, its range is counted here.
            counts.add(pickle.loads(out) if other.returncode == 0 else count_results(connection, first, end))
    finally:
        for other in others:  # still running if an error was raised above
            other.kill()
            other.wait()
    return counts


def count_range() -> None:
    """Write the counts of a range to stdout. Command line: folder of the run, first ord, end."""
    folder, first, end = sys.argv[1:]
    connection = sqlite3.connect(f"{(Path(folder) / 'ledger.db').resolve().as_uri()}?mode=ro", uri=True)
    sys.stdout.buffer.write(pickle.dumps(count_results(connection, int(first), int(end))))


def get_last_ord(connection: sqlite3.Connection) -> int:
    (last,) = connection.execute("SELECT COALESCE(MAX(ord), 0) FROM item").fetchone()
    return int(last)


def compute_bin_width(last_ord: int) -> int:
    """Return the number of items in a bin of the timeline."""
    return last_ord // BINS + 1
