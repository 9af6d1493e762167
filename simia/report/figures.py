"""The figures of a run as plain records: `facts.gather` fills them, the terminal and the page show them.

Shares are kept as counts beside what they are shares of, so that a reader can tell 1 of 2 from 500 of 1,000.
"""

from __future__ import annotations

from collections import Counter

from pydantic import BaseModel, Field

from simia.errors import Code
from simia.trajectory import Usage

COMPLETE = "complete"


class Spread(BaseModel):
    """Smallest, middle (the lower one of two) and largest of a figure."""

    least: int = 0
    median: int = 0
    most: int = 0

    @classmethod
    def of(cls, histogram: Counter[int]) -> Spread:
        """From a histogram, since its values are few where the trajectories are many."""
        values = sorted(histogram)
        left = (histogram.total() + 1) // 2
        for value in values:
            left -= histogram[value]
            if left <= 0:
                return cls(least=values[0], median=value, most=values[-1])
        return cls()


class ToolFacts(BaseModel):
    """Calls of one tool of a pack: in accepted trajectories, in rejected ones, in the seeds."""

    pack: str
    name: str
    accepted: int = 0
    rejected: int = 0
    seeds: int = 0


class Fate(BaseModel):
    """What became of the items of one seed or pack."""

    planned: int = 0
    accepted: int = 0
    rejected: dict[str, int] = Field(default_factory=dict)

    @property
    def refused(self) -> int:
        return sum(self.rejected.values())

    @property
    def rate(self) -> float | None:
        decided = self.accepted + self.refused
        return self.accepted / decided if decided else None

    @property
    def worst(self) -> str | None:
        """The most frequent reason."""
        return max(self.rejected, key=lambda reason: self.rejected[reason], default=None)

    def count(self, verdict: str, reason: str | None) -> None:
        self.planned += 1
        if verdict == "accepted":
            self.accepted += 1
        elif verdict == "rejected":
            why = reason or str(Code.INTERNAL)
            self.rejected[why] = self.rejected.get(why, 0) + 1


class SeedFacts(Fate):
    """One seed: its task's name where it has one, and what its items became."""

    name: str
    pack: str


class SeedsFacts(BaseModel):
    """What the pre-filter read, used and refused."""

    read: int = 0
    used: int = 0
    refused: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)
    examples: list[str] = Field(default_factory=list)


class Overlap(BaseModel):
    """How much of the accepted trajectories is the seeds again. Grams are of five words, of user texts alone."""

    grams: int = 0
    grams_in_seeds: int = 0
    some: int = Field(default=0, description="Trajectories with at least one such gram of the seeds.")
    half: int = Field(default=0, description="Trajectories of whose grams at least half are the seeds'.")
    same_sequence: int = Field(default=0, description="Trajectories that call the same tools in the seed's order.")
    sequences: int = Field(default=0, description="Distinct sequences of tools.")
    identifiers: int = Field(default=0, description="Distinct per trajectory, without those that the policy gives.")
    identifiers_in_seeds: int = 0
    copiers: int = Field(default=0, description="Trajectories with at least one identifier of the seeds.")


class RunFacts(BaseModel):
    """A run in figures."""

    run: str
    created: float | None = None
    working: bool = False
    stop: str | None = None
    stop_detail: str = ""
    model: str = "unknown"
    alias: str = "unknown"
    n: int = 0
    planned: int = 0
    accepted: int = 0
    surplus: int = Field(default=0, description="Passed the checks; beyond n, or an earlier item is still out.")
    rejected: dict[str, int] = Field(default_factory=dict)
    failed: dict[str, int] = Field(default_factory=dict)
    open: int = 0
    attempts: dict[str, int] = Field(default_factory=dict)
    possibly_paid_twice: int = Field(default=0, description="Sent, the process died, no reply was stored.")
    usage: Usage = Field(default_factory=Usage)
    unpriced: int = Field(default=0, description="Replies whose cost nobody knows.")
    repairs: dict[str, int] = Field(default_factory=dict, description="Replies by the repair they needed.")
    repaired: int = Field(default=0, description="Accepted trajectories that needed a repair.")
    tools: list[ToolFacts] = Field(default_factory=list)
    invented: dict[str, int] = Field(default_factory=dict, description="Calls to tools that no list has.")
    packs: dict[str, Fate] = Field(default_factory=dict)
    per_seed: list[SeedFacts] = Field(default_factory=list)
    seeds: SeedsFacts = Field(default_factory=SeedsFacts)
    messages: Spread = Field(default_factory=Spread)
    calls: Spread = Field(default_factory=Spread)
    tokens: Spread = Field(default_factory=Spread)
    overlap: Overlap = Field(default_factory=Overlap)
    with_errors: int = Field(default=0, description="Accepted trajectories in which a tool answered with an error.")
    recovered: int = Field(default=0, description="Those in which a later call succeeded.")
    parallel: int = Field(default=0, description="Accepted trajectories with several calls in one turn.")
    parallel_turns: int = 0
    prompts: dict[str, str] = Field(default_factory=dict)
    licences: list[str] = Field(default_factory=list)

    @property
    def refused(self) -> int:
        return sum(self.rejected.values())

    @property
    def decided(self) -> int:
        return self.accepted + self.refused

    @property
    def rate(self) -> float | None:
        return self.accepted / self.decided if self.decided else None

    @property
    def cached_share(self) -> float | None:
        return self.usage.cached / self.usage.prompt if self.usage.prompt else None

    @property
    def state(self) -> str:
        """How the run stands, in words."""
        if self.working:
            return "being worked on"
        if self.stop is None or (self.stop == COMPLETE and self.accepted < self.n):
            return "not finished: its process was killed"
        return f"{self.stop}: {self.stop_detail}" if self.stop_detail else self.stop

    @property
    def unused(self) -> list[str]:
        """Tools that no accepted trajectory calls."""
        return [tool.name for tool in self.tools if not tool.accepted]


def meaning(reason: str) -> str:
    """What a reason says; empty for one that this version does not know (a ledger of a newer one)."""
    return Code(reason).meaning if reason in set(Code) else ""
