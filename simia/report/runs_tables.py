"""Print the results of `simia runs diff` and `simia runs gc`."""

from __future__ import annotations

import orjson
from rich.console import Console
from rich.table import Table
from rich.text import Text

from simia.jobs import Run
from simia.jobs.cleanup import Findings
from simia.jobs.diff import Change, Difference, RunSummary
from simia.report.collect_statistics import collect_statistics
from simia.report.console import make_plain_text, make_table

MOST_VALUE = 60
MOST_CHANGES = 30
MOST_TURNED = 12
ROWS = (
    "accepted",
    "of those judged",
    "items",
    "failed",
    "replies",
    "tokens in",
    "from the cache",
    "tokens out",
    "cost",
    "tokens out for each accepted",
    "cost of a thousand accepted",
)


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
    for title, changed in (
        ("settings that make the data (identity)", found.identity),
        ("prompts, seeds, model behind the names", found.facts),
        ("settings of operation", found.operational),
    ):
        console.print(Text(f"\n{title}", style="bold"))
        console.print(tabulate_changes(changed, found) if changed else Text("the same in both", style="dim"))
    console.print(Text("\nfigures", style="bold"), tabulate_figures(found))
    console.print(Text("\nreasons", style="bold"), tabulate_reasons(found))
    smaller = min(found.left.accepted, found.right.accepted)
    part = f" ({found.shared / smaller:.0%} of the smaller)" if smaller else ""
    console.print(make_plain_text(f"\naccepted conversations that both hold: {found.shared:,}{part}"))
    console.print(
        make_plain_text(
            f"items that both judged: {found.comparable:,}; judged differently: {sum(found.turned.values()):,}"
        )
    )
    if found.other_plan:
        console.print(
            make_plain_text(
                f"{found.other_plan:,} items of the same id come from different seeds: not compared", "yellow"
            )
        )
    if found.turned:
        console.print(tabulate_changed_verdicts(found))


def tabulate_changes(changed: list[Change], found: Difference) -> Table:
    table = make_table("name", found.left.run, found.right.run)
    for change in changed[:MOST_CHANGES]:
        table.add_row(
            make_plain_text(change.name),
            make_plain_text(shorten_value(change.left)),
            make_plain_text(shorten_value(change.right)),
        )
    if len(changed) > MOST_CHANGES:
        table.add_row(f"and {len(changed) - MOST_CHANGES} more", "", "")
    return table


def shorten_value(given: object) -> str:
    text = given if isinstance(given, str) else orjson.dumps(given).decode()
    return text if len(text) <= MOST_VALUE else f"{text[:MOST_VALUE]}…"


def tabulate_figures(found: Difference) -> Table:
    table = make_table("", f">{found.left.run}", f">{found.right.run}")
    for name, left, right in zip(ROWS, format_cells(found.left), format_cells(found.right), strict=True):
        table.add_row(name, left, right)
    for name in found.left.diversity:
        table.add_row(name, *(f"{each.diversity.get(name, 0):,g}" for each in (found.left, found.right)))
    return table


def format_cells(side: RunSummary) -> tuple[str, ...]:
    return (
        f"{side.accepted:,}",
        "" if side.rate is None else f"{side.rate:.1%}",
        f"{side.planned:,}",
        f"{side.failed:,}",
        f"{side.replies:,}",
        f"{side.prompt:,}",
        f"{side.cached / side.prompt:.0%}" if side.prompt else "",
        f"{side.completion:,}",
        format_dollars(side.cost) + (f" and {side.unpriced:,} of unknown price" if side.unpriced and side.cost else ""),
        "" if (out := side.each(side.completion)) is None else f"{out:,.0f}",
        format_dollars(None if side.unpriced or (each := side.each(side.cost)) is None else 1000 * each),
    )


def format_dollars(amount: float | None) -> str:
    return "unknown" if amount is None else f"${amount:,.2f}"


def tabulate_reasons(found: Difference) -> Table:
    table = make_table("reason", f">{found.left.run}", f">{found.right.run}")
    for reason in dict.fromkeys([*found.left.rejected, *found.right.rejected]):
        table.add_row(
            make_plain_text(reason), *(f"{side.rejected.get(reason, 0):,}" for side in (found.left, found.right))
        )
    return table


def tabulate_changed_verdicts(found: Difference) -> Table:
    table = make_table(">items", "left verdict and right verdict", "examples")
    for kind, count in list(found.turned.items())[:MOST_TURNED]:
        such = [each.item for each in found.examples if each.kind == kind]
        table.add_row(f"{count:,}", make_plain_text(kind), make_plain_text(", ".join(such[:3])))
    return table


def print_cleanup(found: list[Findings], console: Console, *, replies: bool) -> None:
    """Print the runs with their sizes and the space that can be freed."""
    if not found:
        console.print("no runs here")
        return
    table = make_table("run", ">MB", ">accepted", ">replies", ">can be freed", "what")
    for each in found:
        table.add_row(
            make_plain_text(each.folder.name),
            format_megabytes(each.size),
            f"{each.accepted:,}",
            f"{each.reply_count:,}",
            format_megabytes(each.freeable(replies=replies)),
            make_plain_text(describe_freeable(each, replies=replies)),
        )
    console.print(table)


def describe_freeable(found: Findings, *, replies: bool) -> str:
    if found.problem:
        return found.problem
    if found.empty:
        return "the whole run: it has no replies"
    parts = [f"{found.rejected_bodies:,} bodies of rejected results"] if found.rejected_bodies else []
    if replies and found.spent_replies:
        parts.append(f"{found.spent_replies:,} replies of rejected items")
    parts += ["the page"] if found.page_size() else []
    parts += ["unused space in the files"] if found.slack else []
    return ", ".join(parts) or "nothing"


def format_megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"
