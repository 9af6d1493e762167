"""Tables of `simia runs diff` and `simia runs gc`."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simia.jobs import Run
from simia.jobs.cleanup import Findings
from simia.jobs.diff import Difference, RunSummary
from simia.report.collect_statistics import collect_statistics
from simia.report.console import make_plain_text, make_table
from simia.terminal import write_count

MOST_VALUE = 60
MOST_CHANGES = 30
MOST_TURNED = 12


def list_diversity_figures(run: Run) -> dict[str, float]:
    """Return the diversity figures of the accepted trajectories, from the report."""
    statistics = collect_statistics(run)
    figures, lengths = statistics.results.figures, statistics.lengths
    compared = max(figures["compared"], 1)
    return {
        "distinct sequences of tools": len(statistics.results.first_bin),
        "tools used": len(statistics.tools) - len(statistics.unused),
        "seeds that yield nothing": len(statistics.barren),
        "user's word runs in the seeds": round(figures["grams_in_seeds"] / max(figures["grams"], 1), 4),
        "calls the seed's sequence": round(figures["same_sequence"] / compared, 4),
        "uses a seed's identifier": round(figures["copiers"] / compared, 4),
        **{f"median {name}": histogram.median for name, histogram in lengths.items()},
    }


def print_difference(found: Difference, console: Console) -> None:
    """Print differing settings, figures, rejection reasons and changed verdicts."""
    runs = found.left.run, found.right.run
    for title, changed in (
        ("settings that make the data (identity)", found.identity),
        ("prompts, seeds, model behind the names", found.facts),
        ("settings of operation", found.operational),
    ):
        rows = [(change.name, shorten_value(change.left), shorten_value(change.right)) for change in changed]
        if len(rows) > MOST_CHANGES:
            rows[MOST_CHANGES:] = [(f"and {len(rows) - MOST_CHANGES} more", "", "")]
        console.print(Text(f"\n{title}", style="bold"))
        console.print(fill_table(make_table("name", *runs), rows) if rows else Text("the same in both", style="dim"))
    numbers = make_table("", *(f">{run}" for run in runs))
    left, right = format_figures(found.left), format_figures(found.right)
    figures = [(name, left.get(name, "0"), right.get(name, "0")) for name in left]
    console.print(Text("\nfigures", style="bold"), fill_table(numbers, figures))
    reasons = [
        (reason, f"{found.left.rejected.get(reason, 0):,}", f"{found.right.rejected.get(reason, 0):,}")
        for reason in {**found.left.rejected, **found.right.rejected}
    ]
    counted = make_table("reason", *(f">{run}" for run in runs))
    console.print(Text("\nreasons", style="bold"), fill_table(counted, reasons))
    smaller = min(found.left.accepted, found.right.accepted)
    part = f" ({found.shared / smaller:.0%} of the smaller)" if smaller else ""
    console.print(make_plain_text(f"\naccepted conversations that both hold: {found.shared:,}{part}"))
    turned = sum(found.turned.values())
    console.print(make_plain_text(f"items that both judged: {found.comparable:,}; judged differently: {turned:,}"))
    if found.other_plan:
        line = f"not compared, since the prompts have different seeds, goals or values: {write_count(found.other_plan, 'item')}"
        console.print(make_plain_text(line, "yellow"))
    if found.turned:
        kinds = []
        for kind, count in list(found.turned.items())[:MOST_TURNED]:
            examples = [each.item for each in found.examples if each.kind == kind][:3]
            kinds.append((f"{count:,}", kind, ", ".join(examples)))
        console.print(fill_table(make_table(">items", "left verdict and right verdict", "examples"), kinds))


def fill_table(table: Table, rows: Iterable[tuple[str, ...]]) -> Table:
    for row in rows:
        table.add_row(*map(make_plain_text, row))
    return table


def shorten_value(given: object) -> str:
    text = given if isinstance(given, str) else orjson.dumps(given).decode()
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}…"


def format_figures(run: RunSummary) -> dict[str, str]:
    """Format the figures of one run by name."""
    unpriced = f" and {run.unpriced:,} of unknown price" if run.unpriced and run.cost else ""
    out, cost = run.each(run.completion), None if run.unpriced else run.each(run.cost)
    return {
        "accepted": f"{run.accepted:,}",
        "of those checked": "" if run.rate is None else f"{run.rate:.1%}",
        "items": f"{run.planned:,}",
        "failed": f"{run.failed:,}",
        "replies": f"{run.replies:,}",
        "tokens in": f"{run.prompt:,}",
        "from the cache": f"{run.cached / run.prompt:.0%}" if run.prompt else "",
        "tokens out": f"{run.completion:,}",
        "cost": format_dollars(run.cost) + unpriced,
        "tokens out for each accepted": "" if out is None else f"{out:,.0f}",
        "cost of a thousand accepted": format_dollars(None if cost is None else 1000 * cost),
        **{name: f"{value:,g}" for name, value in run.diversity.items()},
    }


def format_dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"${amount:,.2f}"


def print_cleanup(found: list[Findings], console: Console, *, replies: bool) -> None:
    """Print the runs with their sizes, and how much space can be freed."""
    table = make_table("run", ">MB", ">accepted", ">replies", ">can be freed", "what")
    rows = (
        (
            each.folder.name,
            f"{each.size / 1e6:,.1f}",
            f"{each.accepted:,}",
            f"{each.reply_count:,}",
            f"{each.freeable(replies=replies) / 1e6:,.1f}",
            describe_freeable(each, replies=replies),
        )
        for each in found
    )
    console.print(fill_table(table, rows) if found else "no runs here")


def describe_freeable(found: Findings, *, replies: bool) -> str:
    if found.problem:
        return found.problem
    if found.empty:
        return "the whole run: it has no replies and no results"
    parts = [f"{write_count(found.rejected_bodies, 'body')} of rejected results"] if found.rejected_bodies else []
    if replies and found.spent_replies:
        parts.append(f"{write_count(found.spent_replies, 'reply')} of rejected items")
    parts += ["the page"] if found.page_size() else []
    parts += ["unused space in the files"] if found.slack else []
    return ", ".join(parts) or "nothing"
