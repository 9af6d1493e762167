"""The report of a rollout: rewards, endings of episodes, errors, and the tasks, hardest first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from simia.jobs import Run
from simia.report.console import make_plain_text
from simia.statistics import RolloutStatistics, summarize_rewards

SHOWN = 20


@dataclass(slots=True)
class RolloutFacts:
    """The figures of a rollout. `parts`: name of a reward part → its mean."""

    run_id: str
    scores: RolloutStatistics
    rewards: dict[str, list[float | None]] = field(default_factory=lambda: defaultdict(list))
    ends: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    parts: dict[str, float] = field(default_factory=dict)
    calls: int = 0
    turns: int = 0
    accepted: int = 0


def gather_rollout(run: Run) -> RolloutFacts:
    """Collect the figures in one pass over the episodes."""
    facts = RolloutFacts(run.id, summarize_rewards({}))
    parts: dict[str, list[float]] = defaultdict(list)
    for item in run.ledger.items():
        body = run.ledger.result(item.id)
        if body is None or not body["trajectory"]:
            continue
        row = body["trajectory"]
        reward, end = row.get("reward") or {}, row.get("end") or {}
        facts.rewards[str(item.spec["task"])].append(reward.get("value"))
        facts.ends[f"{end.get('kind', 'terminated')}: {end.get('code', 'no reason')}"] += 1
        for name, value in (reward.get("parts") or {}).items():
            parts[name].append(value)
        for message in row.get("messages", []):
            facts.turns += message["role"] == "assistant"
            facts.calls += len(message.get("calls", []))
            if message.get("error"):
                facts.errors[message["error"]] += 1
    facts.scores = summarize_rewards(facts.rewards)
    facts.parts = {name: sum(values) / len(values) for name, values in parts.items()}
    facts.accepted = run.ledger.accepted_count()
    return facts


def print_rollout(facts: RolloutFacts, to: Console) -> None:
    print_scores(facts.scores, facts.run_id, facts.accepted, to, facts.parts)
    if facts.scores.mean is None:
        return
    print_counts(to, "ended", facts.ends)
    calls = facts.calls or 1
    print_counts(to, f"of {facts.calls:,} calls and {facts.turns:,} turns, errors", facts.errors, calls)
    hardest = sorted(facts.rewards.items(), key=lambda pair: (average_rewards(pair[1]), pair[0]))
    table = Table("task", "tries", "mean reward", title="hardest first", title_justify="left")
    for task, values in hardest[:SHOWN]:
        table.add_row(make_plain_text(task), str(len(values)), f"{average_rewards(values):.2f}")
    to.print(table)
    if len(hardest) > SHOWN:
        to.print(f"and {len(hardest) - SHOWN} more tasks", highlight=False)


def print_scores(
    scores: RolloutStatistics, run_id: str, accepted: int, to: Console, parts: Mapping[str, float] | None = None
) -> None:
    """Print the number of episodes and their rewards. `parts`: means of the reward parts."""
    to.print(
        f"{run_id}: {scores.episodes} episodes of {scores.tasks} tasks, {scores.scored} scored, {scores.aborted} not; "
        f"{accepted} accepted",
        markup=False,
        highlight=False,
    )
    if scores.mean is None:
        return
    table = Table("figure", "value", "95 % interval")
    for name, each in [("mean reward", scores.mean), *scores.passes.items()]:
        table.add_row(name, f"{each.value:.3f}", f"{each.low:.3f} to {each.high:.3f}")
    for name, value in (parts or {}).items():
        table.add_row(f"part {name}", f"{value:.3f}", "")
    to.print(table)


def print_counts(to: Console, what: str, counts: Counter[str], whole: int | None = None) -> None:
    if counts:
        total = whole or sum(counts.values())
        listed = ", ".join(f"{name} {count:,} ({count / total:.0%})" for name, count in counts.most_common())
        to.print(f"{what}: {listed}", markup=False, highlight=False, soft_wrap=True)


def average_rewards(values: list[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else 0.0
