"""The figures of a run as plain records: `facts.gather` fills them, the terminal and the page show them.

Shares are kept as counts beside what they are shares of, so that a reader can tell 1 of 2 from 500 of 1,000.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import BaseModel, Field

from simia.errors import Code
from simia.report.spread import Histogram, Spread
from simia.trajectory import Usage

COMPLETE = "complete"
ENOUGH = 2


class TimelineBin(BaseModel):
    """What became of some items that follow each other in the run's order."""

    first: int
    items: int = 0
    accepted: int = 0
    rejected: int = 0
    failed: int = 0
    repeats: int = Field(default=0, description="Rejected as a duplicate, near-duplicate or copy of the seed.")
    fresh: int = Field(default=0, description="Accepted ones whose sequence of tools occurs here for the first time.")


class RejectionReason(BaseModel):
    """A reason for which items were rejected, and how it looks."""

    code: str
    count: int
    details: dict[str, int] = Field(
        default_factory=dict, description="Most frequent findings, digits and values struck out."
    )
    examples: list[str] = Field(default_factory=list, description="Ids of some such items.")


class ReplyTotals(BaseModel):
    """What the replies of some items took."""

    replies: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float = 0.0
    priced: int = Field(default=0, description="Replies whose cost is known.")

    def add(self, other: ReplyTotals) -> None:
        for name in type(self).model_fields:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class PromptFacts(BaseModel):
    """How much of a pack's prompts is the same from one to the next, in characters of stored requests."""

    pack: str
    requests: int = Field(default=0, description="How many were read.")
    characters: int = Field(default=0, description="Of the mean request.")
    static: int = Field(default=0, description="That all of them begin with.")
    of_seed: int = Field(default=0, description="That the requests of one seed begin with, in the mean.")
    served: float | None = Field(
        default=None, description="Share of prompt tokens that the endpoint says its cache gave."
    )


class EndpointFacts(BaseModel):
    """How the endpoint answered."""

    latency: Histogram = Field(default_factory=Histogram, description="Seconds from asking to the whole reply.")
    faults: dict[str, int] = Field(default_factory=dict, description="Failed attempts by reason.")
    again: int = Field(default=0, description="Items that were asked more than once.")
    first: float | None = None
    last: float | None = None


class ToolFacts(BaseModel):
    """Calls of one tool of a pack: in accepted trajectories, in rejected ones, in the seeds."""

    pack: str
    name: str
    accepted: int = 0
    rejected: int = 0
    seeds: int = 0


class OutcomeCounts(BaseModel):
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

    def count(self, verdict: str, reason: str, items: int) -> None:
        self.planned += items
        if verdict == "accepted":
            self.accepted += items
        elif verdict == "rejected":
            self.rejected[reason] = self.rejected.get(reason, 0) + items


class SeedFacts(OutcomeCounts):
    """One seed: its task's name where it has one, and what its items became."""

    name: str
    pack: str
    licence: str = "unknown"
    spent: ReplyTotals = Field(default_factory=ReplyTotals)


class SeedsFacts(BaseModel):
    """What the pre-filter read, used and refused."""

    read: int = 0
    used: int = 0
    refused: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)
    examples: list[str] = Field(default_factory=list)


class SeedOverlap(BaseModel):
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
    packs: dict[str, OutcomeCounts] = Field(default_factory=dict)
    per_seed: list[SeedFacts] = Field(default_factory=list)
    seeds: SeedsFacts = Field(default_factory=SeedsFacts)
    messages: Spread = Field(default_factory=Spread)
    calls: Spread = Field(default_factory=Spread)
    tokens: Spread = Field(default_factory=Spread)
    compared: int = Field(
        default=0, description="Accepted ones whose words and identifiers were read: `overlap`, tokens."
    )
    overlap: SeedOverlap = Field(default_factory=SeedOverlap)
    with_errors: int = Field(default=0, description="Accepted trajectories in which a tool answered with an error.")
    recovered: int = Field(default=0, description="Those in which a later call succeeded.")
    parallel: int = Field(default=0, description="Accepted trajectories with several calls in one turn.")
    parallel_turns: int = 0
    prompts: dict[str, str] = Field(default_factory=dict)
    licences: list[str] = Field(default_factory=list)
    timeline: list[TimelineBin] = Field(default_factory=list)
    reasons: list[RejectionReason] = Field(default_factory=list)
    spent: dict[str, ReplyTotals] = Field(default_factory=dict, description="By what became of the item.")
    static: list[PromptFacts] = Field(default_factory=list)
    endpoint: EndpointFacts = Field(default_factory=EndpointFacts)
    variety: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Diversity of a draw, and of the seeds."
    )
    lengths: dict[str, Histogram] = Field(
        default_factory=dict, description="Messages, calls and tokens of accepted ones."
    )
    nearness: list[int] = Field(
        default_factory=list,
        description="Accepted ones by the tenth of their user's five-word runs that seeds have too.",
    )
    frequent: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="What most accepted ones share: sequences of tools, openings, values in calls.",
    )
    versions: dict[str, int] = Field(
        default_factory=dict, description="Accepted ones by the version of simia that made them."
    )

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
    def barren(self) -> list[SeedFacts]:
        """Seeds of which several items were judged and none accepted."""
        return [seed for seed in self.per_seed if not seed.accepted and seed.refused >= ENOUGH]

    @property
    def by_licence(self) -> dict[str, int]:
        """Accepted trajectories by the licence of their seed."""
        found: Counter[str] = Counter()
        for seed in self.per_seed:
            found[seed.licence] += seed.accepted
        return dict(found.most_common())

    @property
    def static_share(self) -> tuple[float, float] | None:
        """Of prompts: what a cache can serve that keeps each pack's beginning, and one that keeps each seed's."""
        whole = sum(each.characters * each.requests for each in self.static)
        if not whole:
            return None
        pack = sum(each.static * each.requests for each in self.static)
        return pack / whole, sum(each.of_seed * each.requests for each in self.static) / whole

    @property
    def unused(self) -> list[str]:
        """Tools that no accepted trajectory calls."""
        return [tool.name for tool in self.tools if not tool.accepted]


def explain_reason(reason: str) -> str:
    """What a reason says; empty for one that this version does not know (a ledger of a newer one)."""
    return Code(reason).meaning if reason in set(Code) else ""
