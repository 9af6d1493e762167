"""What a run made, as figures: one pass over its results, with memory that does not grow with their number.

A reviewer of the data asks: how much was accepted and why was the rest not; does one tool crowd out the others; how much
of it is the seeds again; what did it cost. Nobody has judged the trajectories for truth: the checks are structural.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, Field

from simia.amplify.check import estimate_tokens
from simia.errors import Code
from simia.runs import Run
from simia.trajectory import Trajectory, Usage

GRAM = 5


class Spread(BaseModel):
    """Smallest, middle and largest of a figure, from a histogram of its values."""

    least: int = 0
    median: int = 0
    most: int = 0

    @classmethod
    def of(cls, histogram: Counter[int]) -> Spread:
        if not histogram:
            return cls()
        half, seen = (sum(histogram.values()) + 1) // 2, 0
        for value in sorted(histogram):
            seen += histogram[value]
            if seen >= half:
                return cls(least=min(histogram), median=value, most=max(histogram))
        raise AssertionError("a histogram has a middle")


class ToolFacts(BaseModel):
    """Calls of one tool: in accepted trajectories, in rejected ones, in the seeds."""

    accepted: int = 0
    rejected: int = 0
    seeds: int = 0


class RunFacts(BaseModel):
    """The figures that text, page and card show."""

    run: str
    n: int = 0
    model: str = ""
    stopped: str = ""
    detail: str = ""
    accepted: int = 0
    rejected: dict[str, int] = Field(default_factory=dict)
    failed: int = 0
    open: int = 0
    attempts: dict[str, int] = Field(default_factory=dict)
    usage: Usage = Field(default_factory=Usage)
    repairs: dict[str, int] = Field(default_factory=dict)
    tools: dict[str, ToolFacts] = Field(default_factory=dict)
    per_seed: dict[str, tuple[int, int]] = Field(default_factory=dict)
    messages: Spread = Field(default_factory=Spread)
    calls: Spread = Field(default_factory=Spread)
    tokens: Spread = Field(default_factory=Spread)
    sequences: int = 0
    same_sequence: float = 0.0
    grams_from_seed: float = 0.0
    values_from_seed: float = 0.0
    recoveries: int = 0
    parallel: int = 0
    seeds_used: int = 0
    seeds_read: int = 0
    seeds_refused: list[str] = Field(default_factory=list)
    prompts: dict[str, str] = Field(default_factory=dict)
    licences: list[str] = Field(default_factory=list)

    @property
    def decided(self) -> int:
        return self.accepted + sum(self.rejected.values())

    @property
    def possibly_paid_twice(self) -> int:
        """Calls that were on their way when a process died, as far as the ledger knows."""
        return self.attempts.get("sent", 0)

    def meaning(self, reason: str) -> str:
        return Code(reason).meaning


def gather(run: Run) -> RunFacts:
    """Read a run's figures from its ledger."""
    ledger = run.ledger
    config, facts = run.saved_config(), ledger.meta("facts") or {}
    seeds, stopped = ledger.meta("seeds") or {"used": [], "refused": [], "read": 0}, ledger.meta("stopped") or {}
    usage, attempts = ledger.spent()
    counts = ledger.counts()
    reasons = ledger.reasons()
    failed = dict(ledger.failures())
    result = RunFacts(
        run=run.id,
        n=config.get("n", 0),
        model=str(facts.get("model", "")),
        stopped=stopped.get("kind", "running or killed"),
        detail=stopped.get("detail", ""),
        accepted=ledger.accepted_count(),
        rejected={
            reason: count - failed.get(reason, 0) for reason, count in reasons.items() if count > failed.get(reason, 0)
        },
        failed=counts.get("failed", 0),
        open=counts.get("open", 0),
        attempts=attempts,
        usage=usage,
        seeds_used=len(seeds["used"]),
        seeds_read=seeds["read"],
        seeds_refused=[f"{r['name']}: {r['issues'][0]}" for r in seeds["refused"]],
        prompts=facts.get("prompts", {}),
        licences=sorted({str(s.get("licence") or "unknown") for s in seeds["used"]}),
    )
    Sums(result, seeds["used"]).add(run)
    return result


class Sums:
    """Running sums over the results; what is kept per trajectory is a count in a histogram."""

    def __init__(self, facts: RunFacts, seeds: list[dict[str, Any]]) -> None:
        self.facts = facts
        self.seeds = {str(seed["task"] or seed["id"]): Trajectory.from_row(seed["row"]) for seed in seeds}
        self.grams = {name: set(grams(seed)) for name, seed in self.seeds.items()}
        self.values = {name: set(values(seed)) for name, seed in self.seeds.items()}
        self.repairs: Counter[str] = Counter()
        self.histograms: dict[str, Counter[int]] = {"messages": Counter(), "calls": Counter(), "tokens": Counter()}
        self.sequences: set[str] = set()
        self.same = self.gram_hits = self.gram_all = self.value_hits = self.value_all = 0
        for seed in self.seeds.values():
            for tool in seed.tools:
                facts.tools.setdefault(tool.name, ToolFacts())
            for _, _, call in seed.calls():
                facts.tools.setdefault(call.name, ToolFacts()).seeds += 1

    def add(self, run: Run) -> None:
        for status, body in run.ledger.bodies():
            self.repairs.update(body["repairs"])
            row = body["trajectory"]
            name = ((row or {}).get("provenance") or {}).get("seed_ids", ["?"])[0]
            if row:
                passed, tried = self.facts.per_seed.get(name, (0, 0))
                self.facts.per_seed[name] = (passed + (status == "accepted"), tried + 1)
                self.add_trajectory(Trajectory.from_row(row), name, accepted=status == "accepted")
        facts, accepted = self.facts, max(1, self.facts.accepted)
        facts.repairs = dict(self.repairs.most_common())
        facts.messages, facts.calls, facts.tokens = (
            Spread.of(self.histograms[k]) for k in ("messages", "calls", "tokens")
        )
        facts.sequences = len(self.sequences)
        facts.same_sequence = self.same / accepted
        facts.grams_from_seed = self.gram_hits / max(1, self.gram_all)
        facts.values_from_seed = self.value_hits / max(1, self.value_all)

    def add_trajectory(self, t: Trajectory, seed: str, *, accepted: bool) -> None:
        names = [call.name for _, _, call in t.calls()]
        for name in names:
            tool = self.facts.tools.setdefault(name, ToolFacts())
            if accepted:
                tool.accepted += 1
            else:
                tool.rejected += 1
        if not accepted:
            return
        self.histograms["messages"][len(t.messages)] += 1
        self.histograms["calls"][len(names)] += 1
        self.histograms["tokens"][estimate_tokens(t)] += 1
        sequence = " ".join(names)
        self.sequences.add(sequence)
        origin = self.seeds.get(seed)
        self.same += origin is not None and sequence == " ".join(call.name for _, _, call in origin.calls())
        own, known = set(grams(t)), self.grams.get(seed, set())
        self.gram_all, self.gram_hits = self.gram_all + len(own), self.gram_hits + len(own & known)
        said, known = set(values(t)), self.values.get(seed, set())
        self.value_all, self.value_hits = self.value_all + len(said), self.value_hits + len(said & known)
        self.facts.recoveries += any(message.error for message in t.messages)
        self.facts.parallel += any(len(message.calls) > 1 for message in t.messages)


def grams(t: Trajectory) -> Iterator[str]:
    """Word 5-grams of what user and assistant say."""
    for message in t.messages:
        if message.role in ("user", "assistant"):
            words = re.findall(r"\w+", message.text.lower())
            for i in range(len(words) - GRAM + 1):
                yield " ".join(words[i : i + GRAM])


def values(t: Trajectory) -> Iterator[str]:
    """Values of call arguments that are codes, addresses or names: strings with a digit, an @ or a capital."""
    for _, _, call in t.calls():
        for value in (call.arguments or {}).values():
            if isinstance(value, str) and re.search(r"[\d@A-Z]", value):
                yield value
