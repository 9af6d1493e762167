"""The figures of a run as plain records: `facts.gather_facts` fills them, the terminal and the page show them.

A share is stored as two counts, so that a reader can tell 1 of 2 from 500 of 1,000.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from pydantic import BaseModel, Field

from simia.errors import Code
from simia.report.histograms import Histogram, Spread
from simia.trajectory import Usage

COMPLETE = "complete"
ENOUGH = 2


class TimelineBin(BaseModel):
    """Outcomes of consecutive items of the run."""

    first: int
    items: int = 0
    accepted: int = 0
    rejected: int = 0
    failed: int = 0
    repeats: int = Field(default=0, description="Items rejected as duplicate, near-duplicate or copy of the seed.")
    fresh: int = Field(
        default=0, description="Accepted trajectories whose tool sequence occurs here for the first time."
    )


class RejectionReason(BaseModel):
    """A rejection reason with its most frequent findings and example items."""

    code: str
    count: int
    details: dict[str, int] = Field(
        default_factory=dict, description="Most frequent findings, with digits and values masked."
    )
    examples: list[str] = Field(default_factory=list, description="Ids of example items.")


class ReplyTotals(BaseModel):
    """Tokens and cost of the replies of some items."""

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
    """Length of the common prefix of a pack's prompts, in characters of stored requests."""

    pack: str
    requests: int = Field(default=0, description="Number of requests that were read.")
    characters: int = Field(default=0, description="Mean length of a request.")
    static: int = Field(default=0, description="Length of the prefix that all requests share.")
    of_seed: int = Field(default=0, description="Mean length of the prefix that the requests of one seed share.")
    served: float | None = Field(
        default=None, description="Share of prompt tokens that the endpoint reports as cached."
    )


class EndpointFacts(BaseModel):
    """Latency and failures of the endpoint."""

    latency: Histogram = Field(default_factory=Histogram, description="Seconds from request to complete reply.")
    faults: dict[str, int] = Field(default_factory=dict, description="Failed attempts by reason.")
    again: int = Field(default=0, description="Items with more than one attempt.")
    first: float | None = None
    last: float | None = None


class ToolFacts(BaseModel):
    """Number of calls of a pack's tool in accepted trajectories, rejected trajectories and seeds."""

    pack: str
    name: str
    accepted: int = 0
    rejected: int = 0
    seeds: int = 0


class OutcomeCounts(BaseModel):
    """Outcomes of the items of one seed or pack."""

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
    """One seed, named by its task where it has one, and the outcomes of its items."""

    name: str
    pack: str
    licence: str = "unknown"
    spent: ReplyTotals = Field(default_factory=ReplyTotals)


class SeedsFacts(BaseModel):
    """Number of seeds that the pre-filter read, used and refused."""

    read: int = 0
    used: int = 0
    refused: int = 0
    reasons: dict[str, int] = Field(default_factory=dict)
    examples: list[str] = Field(default_factory=list)


class SeedOverlap(BaseModel):
    """Overlap of the accepted trajectories with the seeds. Grams are word 5-grams of user messages."""

    grams: int = 0
    grams_in_seeds: int = 0
    some: int = Field(default=0, description="Trajectories with at least one gram of the seeds.")
    half: int = Field(default=0, description="Trajectories with at least half of their grams in the seeds.")
    same_sequence: int = Field(default=0, description="Trajectories that call the same tools in the seed's order.")
    sequences: int = Field(default=0, description="Distinct tool sequences.")
    identifiers: int = Field(default=0, description="Distinct identifiers per trajectory, without those in the policy.")
    identifiers_in_seeds: int = 0
    copiers: int = Field(default=0, description="Trajectories with at least one identifier of the seeds.")


class RunFacts(BaseModel):
    """All figures of a run."""

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
    surplus: int = Field(default=0, description="Items that passed but are beyond n or wait for an earlier item.")
    rejected: dict[str, int] = Field(default_factory=dict)
    failed: dict[str, int] = Field(default_factory=dict)
    open: int = 0
    attempts: dict[str, int] = Field(default_factory=dict)
    possibly_paid_twice: int = Field(
        default=0, description="Calls in flight when a process died, without a stored reply."
    )
    usage: Usage = Field(default_factory=Usage)
    unpriced: int = Field(default=0, description="Replies of unknown cost.")
    repairs: dict[str, int] = Field(default_factory=dict, description="Number of replies by repair.")
    repaired: int = Field(default=0, description="Accepted trajectories that needed a repair.")
    tools: list[ToolFacts] = Field(default_factory=list)
    invented: dict[str, int] = Field(
        default_factory=dict, description="Calls to tools that are not in the item's tool list."
    )
    packs: dict[str, OutcomeCounts] = Field(default_factory=dict)
    per_seed: list[SeedFacts] = Field(default_factory=list)
    seeds: SeedsFacts = Field(default_factory=SeedsFacts)
    messages: Spread = Field(default_factory=Spread)
    calls: Spread = Field(default_factory=Spread)
    tokens: Spread = Field(default_factory=Spread)
    compared: int = Field(
        default=0, description="Accepted trajectories that were compared with the seeds (`overlap`, `tokens`)."
    )
    overlap: SeedOverlap = Field(default_factory=SeedOverlap)
    with_errors: int = Field(default=0, description="Accepted trajectories in which a tool answered with an error.")
    recovered: int = Field(default=0, description="Trajectories of `with_errors` in which a later call succeeded.")
    parallel: int = Field(default=0, description="Accepted trajectories with several calls in one turn.")
    parallel_turns: int = 0
    prompts: dict[str, str] = Field(default_factory=dict)
    licences: list[str] = Field(default_factory=list)
    timeline: list[TimelineBin] = Field(default_factory=list)
    reasons: list[RejectionReason] = Field(default_factory=list)
    spent: dict[str, ReplyTotals] = Field(default_factory=dict, description="Tokens and cost by outcome of the item.")
    static: list[PromptFacts] = Field(default_factory=list)
    endpoint: EndpointFacts = Field(default_factory=EndpointFacts)
    variety: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Diversity of a sample of accepted trajectories, and of the seeds."
    )
    lengths: dict[str, Histogram] = Field(
        default_factory=dict, description="Messages, calls and tokens of accepted trajectories."
    )
    nearness: list[int] = Field(
        default_factory=list,
        description="Accepted trajectories by tenths of their user's word 5-grams that occur in seeds.",
    )
    frequent: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="Most frequent tool sequences, openings and call values of accepted trajectories.",
    )
    versions: dict[str, int] = Field(
        default_factory=dict, description="Accepted trajectories by the version of simia that made them."
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
        """The run's state as text."""
        if self.working:
            return "in progress"
        if self.stop is None or (self.stop == COMPLETE and self.accepted < self.n):
            return "not finished: its process was killed"
        return f"{self.stop}: {self.stop_detail}" if self.stop_detail else self.stop

    @property
    def barren(self) -> list[SeedFacts]:
        """Seeds with several judged items and none accepted."""
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
        """Share of the prompts that a prefix cache can serve: per pack, and per seed."""
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
    """Return the meaning of a reason; empty for a reason of a newer version."""
    return Code(reason).meaning if reason in set(Code) else ""
