"""Sum a run's items and results, and compute the figures from the sums.

Comparing words and identifiers takes longer than everything else. In a large run only some accepted trajectories are
compared, chosen by the hash of their id (seeds take turns, so every fourth item may come from the same few seeds).
Figures based on them state the number of compared trajectories.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections import Counter
from typing import Any

from simia.errors import Code
from simia.report.histograms import Histogram, Spread
from simia.report.run_figures import (
    OutcomeCounts,
    RejectionReason,
    ReplyTotals,
    RunFacts,
    SeedFacts,
    TimelineBin,
    ToolFacts,
)
from simia.report.running_sums import BINS, EXAMPLES, Sums
from simia.report.seed_overlap import SeedIndex
from simia.report.stored_rows import ConversationFacts, Row, TrajectoryHead, count_row_tokens, summarize_conversation
from simia.trajectory import Trajectory, digest

TOP = 8
OPENING = 6  # words
COMPARED = 20_000  # approximate maximum of accepted trajectories that are compared with the seeds
LENGTHS = ("messages", "calls", "tokens")
REPEATS = {str(code) for code in (Code.DUPLICATE, Code.NEAR_DUPLICATE, Code.SEED_COPY)}
# Two findings that differ only in values count as one.
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
DIGITS = re.compile(r"\d+")


class Tally:
    """Add up items in the run's order.

    `width`: number of ords in a bin; `every`: one in `every` accepted trajectories is compared with the seeds.
    """

    def __init__(self, seeds: dict[str, Trajectory], width: int, every: int, shared: dict[str, Row]) -> None:
        self.sums = Sums()
        self._index = SeedIndex(seeds)
        self._width = width
        self._every = every
        self._shared = shared  # heads that results refer to by hash
        self._heads: dict[tuple[str, str], TrajectoryHead] = {}

    def add_item(
        self, id_: str, ord_: int, spec: dict[str, Any], verdict: str, reason: str | None, detail: str | None
    ) -> None:
        """Add one planned item. `verdict`: accepted, surplus, rejected, failed or open."""
        sums, seed = self.sums, str(spec.get("seed"))
        why = str(reason or Code.INTERNAL) if verdict in ("rejected", "failed") else ""
        sums.outcomes[seed, verdict, why] += 1
        if seed not in sums.names:
            sums.names[seed] = (str(spec.get("task") or seed), str(spec.get("pack") or ""))
        bin_ = ord_ // self._width
        sums.bins[bin_, verdict] += 1
        if verdict == "rejected":
            sums.bins[bin_, "repeats"] += why in REPEATS
            sums.details[why].add([strip_values(detail or "", why)])
            if len(sums.examples[why]) < EXAMPLES:
                sums.examples[why].append(id_)

    def add_result(self, id_: str, ord_: int, seed_id: str, verdict: str, body: Row) -> None:
        """Add the result that was derived from one reply."""
        sums, row = self.sums, body["trajectory"]
        sums.repairs.update(set(body["repairs"]))
        if row is None or verdict == "surplus":
            return
        head, story = self._head(row, body.get("head")), summarize_conversation(row)
        kind = "accepted" if verdict == "accepted" else "rejected"
        for name, times in Counter(story.sequence).items():
            if name in head.tools:
                sums.tools[head.pack, name, kind] += times
            else:
                sums.count_invented(name, times)
        if verdict == "accepted":
            sums.figures["repaired"] += bool(body["repairs"])
            sums.versions[str(row.get("provenance", {}).get("simia") or "unknown")] += 1
            self._accepted(story, ord_ // self._width)
            if zlib.crc32(id_.encode()) % self._every == 0:
                sums.lengths["tokens"][head.tokens + count_row_tokens(row, story)] += 1
                self._compare(story, head, seed_id)

    def _accepted(self, story: ConversationFacts, bin_: int) -> None:
        sums, figures = self.sums, self.sums.figures
        sums.lengths["messages"][story.messages] += 1
        sums.lengths["calls"][len(story.calls)] += 1
        figures["parallel"] += story.parallel > 0
        figures["parallel_turns"] += story.parallel
        figures["with_errors"] += story.failed
        figures["recovered"] += story.recovered
        called = " → ".join(story.sequence)
        sums.first_bin.setdefault(hash_text(called), bin_)
        sums.frequent["sequences"].add([called])
        first = story.users[0] if story.users else ""
        sums.frequent["openings"].add([" ".join(first[:200].lower().split()[:OPENING])])

    def _compare(self, story: ConversationFacts, head: TrajectoryHead, seed_id: str) -> None:
        sums, figures = self.sums, self.sums.figures
        like = self._index.compare(story, head, seed_id)
        figures["compared"] += 1
        figures["grams"] += like.grams
        figures["grams_in_seeds"] += like.known
        figures["some"] += like.known > 0
        figures["half"] += like.known > 0 and 2 * like.known >= like.grams
        figures["same_sequence"] += like.same_sequence
        figures["identifiers"] += len(like.identifiers)
        figures["identifiers_in_seeds"] += like.copied
        figures["copiers"] += like.copied > 0
        sums.nearness[like.tenth] += 1
        sums.frequent["identifiers"].add(like.identifiers)

    def _head(self, row: Row, named: str | None) -> TrajectoryHead:
        pack = row.get("pack") or ""
        key = named or digest([row.get("system"), row.get("tools", [])])
        if (pack, key) not in self._heads:
            head = self._heads[pack, key] = TrajectoryHead.of(row | self._shared[named] if named else row)
            for name in head.tools:
                self.sums.tools[head.pack, name, "accepted"] += 0  # listed, if never called
        return self._heads[pack, key]


def fill_facts(
    facts: RunFacts, sums: Sums, seeds: dict[str, Trajectory], width: int, spent: dict[str, ReplyTotals]
) -> None:
    """Set the figures that are computed from the sums."""
    per_seed = {
        id_: SeedFacts(name=seed.task_id or id_, pack=seed.pack or "", licence=seed.provenance.licence or "unknown")
        for id_, seed in seeds.items()
    }
    facts.packs = {seed.pack: OutcomeCounts() for seed in per_seed.values()}
    for (id_, verdict, reason), count in sums.outcomes.items():
        name, pack = sums.names[id_]
        per_seed.setdefault(id_, SeedFacts(name=name, pack=pack)).count(verdict, reason, count)
        facts.packs.setdefault(pack, OutcomeCounts()).count(verdict, reason, count)
    for id_, paid in spent.items():
        if id_ in per_seed:
            per_seed[id_].spent = paid
    facts.per_seed = sorted(per_seed.values(), key=lambda seed: (seed.pack, seed.name))
    totals = (
        sums.outcomes.total(),
        *(sum(count_verdict(sums, verdict).values()) for verdict in ("accepted", "surplus", "open")),
    )
    facts.planned, facts.accepted, facts.surplus, facts.open = totals
    facts.rejected, facts.failed = count_verdict(sums, "rejected"), count_verdict(sums, "failed")
    facts.reasons = [
        RejectionReason(
            code=code, count=count, details=sums.details[code].top(EXAMPLES, least=1), examples=sums.examples[code]
        )
        for code, count in facts.rejected.items()
    ]
    facts.timeline = make_timeline(sums, width)
    facts.repairs, facts.invented, facts.versions = (
        dict(counts.most_common()) for counts in (sums.repairs, sums.invented, sums.versions)
    )
    facts.tools = count_tools(sums, seeds)
    for name in ("repaired", "parallel", "parallel_turns", "with_errors", "recovered"):
        setattr(facts, name, sums.figures[name])
    facts.compared = sums.figures["compared"]
    facts.messages, facts.calls, facts.tokens = (Spread.of(sums.lengths[name]) for name in LENGTHS)
    facts.lengths = {name: Histogram.of(sums.lengths[name]) for name in LENGTHS} if facts.accepted else {}
    facts.overlap, facts.nearness = sums.overlap, sums.nearness
    facts.frequent = {name: sums.frequent[name].top(TOP) for name in ("sequences", "openings", "identifiers")}


def count_verdict(sums: Sums, verdict: str) -> dict[str, int]:
    """Count the items of a verdict by reason, the most frequent first; ties in order of occurrence."""
    found: dict[str, int] = {}
    for (_, kind, reason), count in sums.outcomes.items():
        if kind == verdict:
            found[reason] = found.get(reason, 0) + count
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def count_tools(sums: Sums, seeds: dict[str, Trajectory]) -> list[ToolFacts]:
    """Count the calls of every tool that a seed or a result lists, per pack."""
    found: dict[tuple[str, str], ToolFacts] = {}
    for seed in seeds.values():
        pack = seed.pack or ""
        for tool in seed.tools:
            found.setdefault((pack, tool.name), ToolFacts(pack=pack, name=tool.name))
        for _, _, call in seed.calls():
            if known := found.get((pack, call.name)):
                known.seeds += 1
    for (pack, name, kind), count in sums.tools.items():
        tool_facts = found.setdefault((pack, name), ToolFacts(pack=pack, name=name))
        setattr(tool_facts, kind, count)
    return sorted(found.values(), key=lambda tool: (tool.pack, -tool.accepted, tool.name))


def make_timeline(sums: Sums, width: int) -> list[TimelineBin]:
    bins: dict[int, TimelineBin] = {}
    for (bin_, what), count in sorted(sums.bins.items()):
        at = bins.setdefault(bin_, TimelineBin(first=bin_ * width))
        if what != "repeats":
            at.items += count
        if what in TimelineBin.model_fields:
            setattr(at, what, count)
    for bin_ in sums.first_bin.values():
        bins[bin_].fresh += 1
    return list(bins.values())


def compute_bin_width(most_ord: int) -> int:
    return most_ord // BINS + 1


def compute_sample_interval(most_ord: int) -> int:
    return most_ord // COMPARED + 1


def hash_text(text: str) -> int:
    """Return a hash that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def strip_values(detail: str, reason: str) -> str:
    """Remove location and values from a finding, so that equal mistakes are counted together."""
    text = detail.partition(": ")[2] if detail.startswith(reason) else detail
    return DIGITS.sub("#", QUOTED.sub("…", text))[:160] or "no detail"
