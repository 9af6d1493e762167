"""The statistics of a run: outcomes of its items, calls, tokens, cost, tools, seeds, lengths and overlap with the seeds.

`collect_statistics` fills them; the terminal and the page show them. A share is stored as two counts, so that a reader
can tell 1 of 2 from 500 of 1,000.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from simia.errors import Code
from simia.report.diversity import Diversity
from simia.report.plan_distribution import PlanShare
from simia.report.result_counts import LossyCounter, ResultCounts
from simia.trajectory import Usage

REPEATS = (Code.DUPLICATE, Code.NEAR_DUPLICATE, Code.SEED_COPY)
MOST_EXAMPLES = 3  # item ids and findings of a reason
MOST_FINDINGS = 1_000  # of a reason that are counted


@dataclass(slots=True)
class Outcomes:
    """Outcomes of some items: of a run, a pack, a seed or a part of the run."""

    planned: int = 0
    accepted: int = 0
    surplus: int = 0  # passed, but beyond n or waiting for an earlier item
    open: int = 0
    rejected: Counter[str] = field(default_factory=Counter)  # by reason
    failed: Counter[str] = field(default_factory=Counter)

    def add(self, verdict: str, reason: str) -> None:
        """Count one item. `verdict`: accepted, surplus, rejected, failed or open."""
        self.planned += 1
        if verdict == "accepted":
            self.accepted += 1
        elif verdict == "surplus":
            self.surplus += 1
        elif verdict == "open":
            self.open += 1
        else:
            (self.rejected if verdict == "rejected" else self.failed)[reason] += 1

    @property
    def refused(self) -> int:
        return self.rejected.total()

    @property
    def decided(self) -> int:
        return self.accepted + self.refused

    @property
    def rate(self) -> float | None:
        return self.accepted / self.decided if self.decided else None

    @property
    def worst(self) -> str:
        """The most frequent reason; empty if nothing was rejected."""
        return max(self.rejected, key=lambda reason: self.rejected[reason], default="")

    @property
    def repeats(self) -> int:
        """Items rejected as duplicate, near-duplicate or copy of the seed."""
        return sum(self.rejected[code] for code in REPEATS)


@dataclass(slots=True)
class TimelineBin(Outcomes):
    """Outcomes of consecutive items. `fresh`: accepted trajectories whose tool sequence occurs here first."""

    fresh: int = 0


@dataclass(slots=True)
class RejectionReason:
    """A rejection reason with its most frequent findings and example items. Findings that differ only in values are one; a value that all
    of them have is shown."""

    code: str
    count: int = 0
    findings: LossyCounter = field(default_factory=lambda: LossyCounter(MOST_FINDINGS))
    examples: list[str] = field(default_factory=list)
    whole: dict[str, str] = field(default_factory=dict)  # finding without values → with values; "": they differ

    def add(self, finding: str, whole: str) -> None:
        """Count one item. `finding`: without values; `whole`: with them."""
        self.count += 1
        self.findings.update([finding])
        if finding in self.whole or len(self.whole) < MOST_FINDINGS:
            self.whole[finding] = whole if self.whole.get(finding, whole) == whole else ""

    @property
    def details(self) -> dict[str, int]:
        top = self.findings.top(MOST_EXAMPLES, least=1)
        return {self.whole.get(finding) or finding: count for finding, count in top.items()}


@dataclass(slots=True)
class ReplyTotals:
    """Tokens and cost of some replies. `priced`: replies whose cost is known."""

    replies: int = 0
    prompt: int = 0
    completion: int = 0
    cached: int = 0
    cost: float = 0.0
    priced: int = 0

    def add(self, other: ReplyTotals) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))


@dataclass(kw_only=True, slots=True)
class SeedOutcomes(Outcomes):
    """Outcomes of one seed's items. `name`: its task where it has one."""

    name: str
    pack: str
    licence: str = "unknown"
    spent: ReplyTotals = field(default_factory=ReplyTotals)


@dataclass(kw_only=True, slots=True)
class ModelOutcomes(Outcomes):
    """Outcomes of the items that one model wrote. `weight`: relative to the sum of all models' weights."""

    model: str
    alias: str
    weight: float = 1.0
    spent: ReplyTotals = field(default_factory=ReplyTotals)


@dataclass(slots=True)
class SeedFilterCounts:
    """Number of seeds that the pre-filter read, used and refused."""

    read: int
    used: int
    refused: int
    reasons: dict[str, int]
    examples: list[str]


@dataclass(frozen=True, slots=True)
class VerdictCounts:
    """Number of accepted trajectories with a verdict of `simia judge`, of those that most of their verdicts fail, and of those whose judges
    gave no verdict."""

    judged: int = 0
    failed: int = 0
    errors: int = 0


@dataclass(slots=True)
class ToolUsage:
    """Number of calls of a pack's tool in accepted trajectories, rejected trajectories and seeds."""

    pack: str
    name: str
    accepted: int = 0
    rejected: int = 0
    seeds: int = 0


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution in bins of equal width; `counts[i]` lies in [low + i·width, low + (i+1)·width)."""

    counts: list[int] = field(default_factory=list)
    low: float = 0
    width: float = 1
    median: float = 0
    p95: float = 0
    most: float = 0

    @classmethod
    def of(cls, values: Mapping[int, int], *, bins: int = 24, unit: float = 1) -> Histogram:
        """Compute the bins from the counts of values, given in `unit`s. The last bin includes the top percent of the values, so that
        outliers do not widen all bins."""
        if not values:
            return cls()
        low, median, p95, last = (find_quantile(values, share) for share in (0, 0.5, 0.95, 0.99))
        width = max(1, -(-(last - low + 1) // bins))
        counts = [0] * ((last - low) // width + 1)
        for value, count in values.items():
            counts[min((value - low) // width, len(counts) - 1)] += count
        return cls(counts, *(value * unit for value in (low, width, median, p95, max(values))))


def find_quantile(values: Mapping[int, int], share: float) -> int:
    """Return the smallest value that at least this share of the counted values does not exceed."""
    left = share * sum(values.values())
    ordered = sorted(values)
    for value in ordered:
        left -= values[value]
        if left <= 1e-9:
            return value
    return ordered[-1]


@dataclass(slots=True)
class EndpointStatistics:
    """Latency (seconds) and failures of the calls. `again`: items with more than one attempt."""

    latency: Histogram
    faults: dict[str, int]
    again: int
    first: float | None
    last: float | None


@dataclass(slots=True)
class PromptPrefix:
    """Length of the common prefix of a pack's prompts, in characters of stored requests."""

    pack: str
    requests: int  # that were read
    characters: int  # mean length of a request
    static: int  # length of the prefix that all requests share
    of_seed: int  # mean length of the prefix that the requests of one seed share
    served: float | None  # share of prompt tokens that the endpoint reports as cached


@dataclass(kw_only=True, slots=True)
class RunStatistics(Outcomes):
    """All statistics of a run."""

    run: str
    created: float | None
    working: bool
    stop: str | None
    stop_detail: str
    model: str
    alias: str
    n: int
    prompts: dict[str, str]
    licences: list[str]
    attempts: dict[str, int]
    possibly_paid_twice: int  # calls in flight when a process died, without a stored reply
    usage: Usage
    unpriced: int  # replies of unknown cost
    seeds: SeedFilterCounts
    endpoint: EndpointStatistics
    results: ResultCounts
    tools: list[ToolUsage]
    diversity: tuple[Diversity, Diversity] | None  # of a sample of accepted trajectories, and of the seeds
    spent: dict[str, ReplyTotals] = field(default_factory=dict)  # by outcome of the item
    judging: ReplyTotals = field(default_factory=ReplyTotals)  # of the judge of acceptance
    verdicts: VerdictCounts = field(default_factory=VerdictCounts)
    prefixes: list[PromptPrefix] = field(default_factory=list)
    models: list[ModelOutcomes] = field(default_factory=list)  # of a run that mixes models
    packs: dict[str, Outcomes] = field(default_factory=dict)
    per_seed: list[SeedOutcomes] = field(default_factory=list)
    languages: dict[str, Outcomes] = field(default_factory=dict)  # by the seeds' languages, if they have several
    reasons: list[RejectionReason] = field(default_factory=list)
    timeline: list[TimelineBin] = field(default_factory=list)
    plans: list[PlanShare] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The run's state as text."""
        if self.working:
            return "in progress"
        if self.stop is None or (self.stop == "complete" and self.accepted < self.n):
            return "not finished: its process was killed"
        return f"{self.stop}: {self.stop_detail}" if self.stop_detail else self.stop

    @property
    def lengths(self) -> dict[str, Histogram]:
        """Messages, calls and tokens of accepted trajectories."""
        return {name: Histogram.of(values) for name, values in self.results.lengths.items()}

    @property
    def barren(self) -> list[SeedOutcomes]:
        """Seeds with several decided items, none of them accepted."""
        return [seed for seed in self.per_seed if not seed.accepted and seed.refused > 1]

    @property
    def by_licence(self) -> Counter[str]:
        """Accepted trajectories by the licence of their seed."""
        found: Counter[str] = Counter()
        for seed in self.per_seed:
            found[seed.licence] += seed.accepted
        return found

    @property
    def unused(self) -> list[str]:
        """Tools that no accepted trajectory calls."""
        return [tool.name for tool in self.tools if not tool.accepted]


def explain_reason(reason: str) -> str:
    """Return the meaning of a reason; empty for a reason of a newer version."""
    return Code(reason).meaning if reason in set(Code) else ""
