"""The table of a rollout over several packs: tasks, solved episodes, mean reward with its 95 % interval, endings and cost of each pack."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console

from simia.evaluation.scores import find_scenario, read_episodes
from simia.jobs import Run
from simia.jobs.tables import COST
from simia.report.console import make_table
from simia.statistics import SUCCESS, summarize_rewards

ALL = "all"
COSTS = f"SELECT SUBSTR(item, 1, INSTR(item, '/') - 1), {COST} FROM attempt WHERE INSTR(item, '/') GROUP BY 1"


@dataclass(slots=True)
class PackScores:
    """Results of the episodes of one pack."""

    rewards: dict[str, list[float | None]] = field(default_factory=dict)
    """Task id → rewards of its episodes; None for one without a reward."""
    scenarios: dict[str, str] = field(default_factory=dict)
    """Task id → its scenario, for tasks that have one."""
    ends: Counter[str] = field(default_factory=Counter)
    """Code of the ending → episodes."""
    cost: float | None = None
    """Dollars for all models of its episodes; None if no price is known."""

    def add(self, other: PackScores) -> None:
        """Add the episodes of another pack."""
        self.rewards |= other.rewards
        self.scenarios |= other.scenarios
        self.ends += other.ends
        if other.cost is not None:
            self.cost = (self.cost or 0.0) + other.cost

    def write_row(self, name: str) -> list[str]:
        """Return the row of the table."""
        scores = summarize_rewards(self.rewards, self.scenarios)
        solved = sum(value is not None and value >= SUCCESS for values in self.rewards.values() for value in values)
        mean = "" if scores.mean is None else str(scores.mean)
        ends = ", ".join(f"{code} {count:,}" for code, count in self.ends.most_common())
        cost = "" if self.cost is None else f"${self.cost:,.2f}"
        return [name, f"{scores.tasks:,}", f"{solved:,} of {scores.scored:,}", mean, ends, cost]


def collect_pack_scores(run: Run) -> dict[str, PackScores]:
    """Collect the figures of each pack of a rollout over several, in the order of their names; empty for a rollout of one pack."""
    if not run.saved_config().get("packs"):
        return {}
    found: dict[str, PackScores] = {}
    for each in read_episodes(run):
        pack = found.setdefault(each.part, PackScores())
        pack.rewards.setdefault(each.task, []).append(each.reward)
        if scenario := find_scenario(each):
            pack.scenarios[each.task] = scenario
        pack.ends[str((each.row.get("end") or {}).get("code", "no reason"))] += 1
    for name, cost in run.ledger.db.ledger.execute(COSTS):
        if name in found:
            found[name].cost = cost
    return dict(sorted(found.items()))


def print_pack_scores(run: Run, to: Console) -> None:
    """Print a row for each pack of a rollout over several, and one for all; nothing for a rollout of one pack. Column `solved` counts
    among the episodes with a reward; `cost` is shown if a price is known."""
    found = collect_pack_scores(run)
    if not found:
        return
    total = PackScores()
    for scores in found.values():
        total.add(scores)
    columns = ["pack", ">tasks", ">solved", ">mean reward", "ended", ">cost"]
    table = make_table(*(columns if total.cost is not None else columns[:-1]))
    table.columns[0].no_wrap = True
    for name, scores in [*found.items(), (ALL, total)]:
        table.add_row(*scores.write_row(name)[: len(table.columns)])
    to.print(table)
