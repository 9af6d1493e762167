"""Print the report on a terminal of 80 columns. Model output is printed as plain text."""

from __future__ import annotations

from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from simia.report import report_rows
from simia.report.console import make_plain_text, make_table
from simia.report.run_statistics import Outcomes, RunStatistics, explain_reason
from simia.terminal import write_count

MOST_TOOLS = 40
MOST_SEEDS = 8
MOST_FREQUENT = 3
MOST_WIDTH = 100
JUDGED = "structure was checked, and a model judged each accepted trajectory: read a sample, since models err too"
VERDICTS = (
    "structure was checked, and `simia judge` has a verdict on {} of {} accepted: read a sample, since models err too"
)
STRUCTURAL = "only structure was checked: run `simia judge` or read a sample"


def print_report(run: RunStatistics, console: Console) -> None:
    """Print the statistics as tables."""
    width = min(console.width, MOST_WIDTH)
    console.print(Text(f"run {run.run}", style="bold"), make_grid(report_rows.list_summary_rows(run)), width=width)
    sections: dict[str, RenderableType | None] = {
        "rejected": make_rejections_table(run),
        "from the first item to the last": make_grid(report_rows.list_timeline_rows(run)),
        "plans: asked for by `plan`, planned, and accepted": make_plans_table(run),
        "tokens and cost": make_spending_table(run),
        "prompts and endpoint": make_grid(report_rows.list_prefix_rows(run) + report_rows.list_endpoint_rows(run)),
        "diversity (in brackets: the seeds)": make_grid(report_rows.list_diversity_rows(run)),
        "overlap with the seeds": make_grid(report_rows.list_overlap_rows(run), justify="right", style=""),
        "tools: calls in accepted and rejected trajectories, and in the seeds": make_tools_table(run),
        "most frequent in accepted trajectories": make_frequent_table(run),
        "packs and seeds": make_seeds_table(run),
        "languages of the seeds": make_languages_table(run),
    }
    for title, section in sections.items():
        if section is not None:
            console.print(Text(f"\n{title}", style="bold"), section, width=width)
    console.print(make_plain_text(f"\n{explain_checking(run)}", "yellow"), width=width)


def explain_checking(run: RunStatistics) -> str:
    """Say in one line which checks the accepted trajectories passed, and what was not checked."""
    if run.judging.replies:
        return JUDGED
    return VERDICTS.format(run.verdicts.judged, run.accepted) if run.verdicts.judged else STRUCTURAL


def make_grid(
    rows: list[tuple[str, str]], *, justify: Literal["left", "right"] = "left", style: str = "dim"
) -> Table | None:
    """Make a grid of names and values; None without rows."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(justify=justify, style=style, no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(make_plain_text(name), make_plain_text(value))
    return grid if rows else None


def make_rejections_table(run: RunStatistics) -> Table | None:
    """List each reason with its most frequent finding and an example item."""
    table = make_table("reason", ">items", ">share", "meaning")
    for reason in run.reasons:
        share = f"{reason.count / run.refused:.0%}"
        table.add_row(make_plain_text(reason.code), f"{reason.count:,}", share, explain_reason(reason.code))
        finding, count = next(iter(reason.details.items()))
        described = make_plain_text(f"{finding} (such as {reason.examples[0]})")
        table.add_row("", f"{count:,}", "", described, style="dim")
    return table if run.reasons else None


def make_plans_table(run: RunStatistics) -> Table | None:
    """Compare what the settings ask for with what was planned and accepted."""
    table = make_table("conversations with", ">asked for", ">planned", ">accepted")
    for share in run.plans:
        table.add_row(*share.cells)
    return table if run.plans else None


def make_spending_table(run: RunStatistics) -> RenderableType | None:
    table = make_table("items", ">replies", ">tokens in", ">cached", ">tokens out", ">cost")
    for row in report_rows.list_spending_rows(run):
        table.add_row(*row)
    counted = any(spent.prompt or spent.completion for spent in run.spent.values())
    return Group(table, report_rows.describe_cost_per_accepted(run)) if counted else None


def make_frequent_table(run: RunStatistics) -> Table | None:
    table = make_table("what", ">in", ">share")
    for name, rows in report_rows.list_frequent_rows(run):
        table.add_row(make_plain_text(name, "bold"), "", "")
        for value, count, share in rows[:MOST_FREQUENT]:
            table.add_row(make_plain_text(f"  {value}"), f"{count:,}", share)
    return table if table.rows else None


def make_tools_table(run: RunStatistics) -> RenderableType | None:
    """List the called tools, with the names of the others below."""
    called = [tool for tool in run.tools if tool.accepted or tool.rejected]
    table = make_table("tool", "pack", ">accepted", ">rejected", ">seeds")
    for tool in called[:MOST_TOOLS]:
        names = make_plain_text(tool.name), make_plain_text(tool.pack)
        counts = (f"{count:,}" for count in (tool.accepted, tool.rejected, tool.seeds))
        table.add_row(*names, *counts, style="" if tool.accepted else "dim")
    if len(called) > MOST_TOOLS:
        table.add_row(f"and {len(called) - MOST_TOOLS} more", style="dim")
    parts: list[RenderableType] = [table] if called else []
    if run.unused:
        which = f"in no accepted trajectory ({len(run.unused)} of {len(run.tools)})"
        parts.append(make_names_line(which, run.unused))
    if invented := run.results.invented.top(5, least=1):
        count, named = run.results.invented.counts.total(), report_rows.format_counts(invented)
        parts.append(make_plain_text(f"calls to tools that are not in the item's list: {count:,} ({named})"))
    return Group(*parts) if run.tools else None


def make_seeds_table(run: RunStatistics) -> RenderableType | None:
    table = make_table("pack or seed", ">items", ">accepted", ">rate", "most often rejected for")
    for name, outcomes in run.packs.items():
        table.add_row(make_plain_text(name or "no pack", "bold"), *format_outcomes(outcomes))
    # The worst first: a seed without accepted items costs tokens in every pass.
    poor = [seed for seed in run.per_seed if seed.refused]
    for seed in sorted(poor, key=lambda seed: (seed.rate or 0.0, -seed.planned, seed.name))[:MOST_SEEDS]:
        table.add_row(make_plain_text(f"  {seed.name}"), *format_outcomes(seed))
    if len(poor) > MOST_SEEDS:
        table.add_row(f"  and {write_count(len(poor) - MOST_SEEDS, 'more seed')} with rejections", style="dim")
    parts: list[RenderableType] = [table]
    if run.barren:
        parts.append(
            make_names_line(
                f"{write_count(len(run.barren), 'seed')} without an accepted item", [seed.name for seed in run.barren]
            )
        )
    parts.append(report_rows.describe_seed_filter(run))
    parts += [make_plain_text(f"  refused: {example}") for example in run.seeds.examples[:3]]
    return Group(*parts) if run.packs else None


def make_languages_table(run: RunStatistics) -> Table | None:
    """List the outcomes by the language of the seed; None if all seeds have the same."""
    table = make_table("language", ">items", ">accepted", ">rate", "most often rejected for")
    for name, outcomes in run.languages.items():
        table.add_row(name, *format_outcomes(outcomes))
    return table if run.languages else None


def make_names_line(what: str, names: list[str]) -> Text:
    return make_plain_text(f"{what}: {', '.join(names[:MOST_TOOLS])}", "yellow")


def format_outcomes(outcomes: Outcomes) -> tuple[str, str, str, Text]:
    rate = "" if outcomes.rate is None else f"{outcomes.rate:.0%}"
    return f"{outcomes.planned:,}", f"{outcomes.accepted:,}", rate, make_plain_text(outcomes.worst)
