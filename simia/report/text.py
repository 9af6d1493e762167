"""Print the report on a terminal of 80 columns. Model output is printed as plain text (see conversation.py)."""

from __future__ import annotations

import time

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from simia.report import sections, variety
from simia.report.console import make_plain_text
from simia.report.conversation import print_trajectory as print_trajectory
from simia.report.gather import RunFacts, explain_reason
from simia.report.histograms import Spread
from simia.report.run_figures import OutcomeCounts

MOST_TOOLS = 40
MOST_SEEDS = 8
MOST_FREQUENT = 3
MOST_WIDTH = 100
STRUCTURAL = "only structure was checked: run `simia judge` or read a sample"
ATTEMPTS = {"got": "answered", "sent": "without an answer", "failed": "failed", "lost": "answered, their replies lost"}


def print_report(facts: RunFacts, console: Console) -> None:
    """Print the figures as tables."""
    width = min(console.width, MOST_WIDTH)
    console.print(Text(f"run {facts.run}", style="bold"), tabulate_summary(facts), width=width)
    for title, table in (
        ("rejected", tabulate_rejections(facts)),
        ("from the first item to the last", tabulate_pairs(sections.list_timeline_lines(facts))),
        ("tokens and cost", tabulate_spending(facts)),
        (
            "prompts and endpoint",
            tabulate_pairs(sections.list_prefix_lines(facts) + sections.list_endpoint_lines(facts)),
        ),
        ("diversity (in brackets: the seeds)", tabulate_pairs(variety.list_variety_lines(facts))),
        ("overlap with the seeds", tabulate_overlap(facts)),
        ("tools: calls in accepted and rejected trajectories, and in the seeds", tabulate_tools(facts)),
        ("most frequent in accepted trajectories", tabulate_frequent(facts)),
        ("packs and seeds", tabulate_seeds(facts)),
    ):
        if table is not None:
            console.print(Text(f"\n{title}", style="bold"), table, width=width)
    console.print(make_plain_text(f"\n{STRUCTURAL}", "yellow"), width=width)


def tabulate_summary(facts: RunFacts) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in list_summary_lines(facts):
        table.add_row(name, make_plain_text(value))
    return table


def list_summary_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """List name and value of each summary line, for the terminal and the page."""
    found = [("state", facts.state)]
    if facts.created is not None:
        found.append(("created", time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.created))))
    found.append(("model", f"{facts.model} ({facts.alias})"))
    rate = f"; {format_part(facts.accepted, facts.decided)} of those judged" if facts.decided else ""
    found.append(("accepted", f"{facts.accepted:,} of {facts.n:,} wanted{rate}"))
    surplus = f", {facts.surplus:,} passed but not counted" if facts.surplus else ""
    failed = f"{sum(facts.failed.values()):,} failed" + (f" ({format_counts(facts.failed)})" if facts.failed else "")
    rest = f"{facts.refused:,} rejected, {failed}, {facts.open:,} open{surplus}"
    found.append(("items", f"{facts.planned:,} planned, {rest}"))
    calls = ", ".join(f"{count:,} {ATTEMPTS.get(status, status)}" for status, count in facts.attempts.items())
    found.append(("calls", calls or "none sent"))
    if facts.possibly_paid_twice:
        found.append(("", f"{facts.possibly_paid_twice:,} possibly paid twice: in flight when the process ended"))
    found += [("tokens", format_tokens(facts)), ("cost", format_run_cost(facts))]
    if facts.repairs:
        found.append(
            ("repairs", f"{format_counts(facts.repairs)}; in {format_part(facts.repaired, facts.accepted)} accepted")
        )
    if facts.accepted:
        shape = f"{format_spread(facts.messages)} messages, {format_spread(facts.calls)} calls"
        found.append(("length", f"{shape} (least / median / most)"))
        found.append(("", f"{format_spread(facts.tokens)} tokens with tools and policy, estimated"))
        errors = f"{facts.with_errors:,} with an error of a tool, {facts.recovered:,} of them recovered from"
        found.append(("variety", f"{errors}; {facts.parallel:,} with several calls in one turn"))
    if facts.licences:
        by = facts.by_licence
        named = (f"{name} {by[name]:,}" if name in by else name for name in facts.licences)
        found.append(("licences", f"{', '.join(named)} (of the seeds, and accepted from them)"))
    if facts.prompts:
        found.append(("prompts", ", ".join(f"{name} {digest[:8]}" for name, digest in facts.prompts.items())))
    return found


def tabulate_rejections(facts: RunFacts) -> Table | None:
    """Tabulate each reason with its most frequent finding and an example item."""
    if not facts.rejected:
        return None
    table = make_table("reason", ">items", ">share", "meaning")
    for reason in facts.reasons:
        table.add_row(
            make_plain_text(reason.code),
            f"{reason.count:,}",
            f"{reason.count / facts.refused:.0%}",
            explain_reason(reason.code),
        )
        for finding, count in list(reason.details.items())[:1]:
            such = f" (such as {reason.examples[0]})" if reason.examples else ""
            table.add_row("", f"{count:,}", "", make_plain_text(f"{finding}{such}"), style="dim")
    return table


def tabulate_pairs(rows: list[tuple[str, str]]) -> Table | None:
    if not rows:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(make_plain_text(name), make_plain_text(value))
    return table


def tabulate_spending(facts: RunFacts) -> RenderableType | None:
    rows = sections.list_spending(facts)
    if not rows:
        return None
    table = make_table("items", ">replies", ">tokens in", ">cached", ">tokens out", ">cost")
    for row in rows:
        table.add_row(*row)
    wide = Table.grid()
    wide.add_row(table)
    wide.add_row(sections.describe_cost_per_accepted(facts))
    return wide


def tabulate_frequent(facts: RunFacts) -> Table | None:
    found = sections.list_frequent(facts)
    if not found:
        return None
    table = make_table("what", ">in", ">share")
    for name, rows in found:
        table.add_row(make_plain_text(name, "bold"), "", "")
        for thing, count, part in rows[:MOST_FREQUENT]:
            table.add_row(make_plain_text(f"  {thing}"), f"{count:,}", part)
    return table


def tabulate_overlap(facts: RunFacts) -> Table | None:
    if not facts.accepted:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for figure, what in list_overlap_lines(facts):
        table.add_row(figure, what)
    return table


def list_overlap_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """List each figure with its description, for the terminal and the page."""
    same, accepted = facts.overlap, facts.compared
    found = [
        (format_part(same.some, accepted), "accepted have a five-word run of their user's words in the seeds"),
        (format_part(same.half, accepted), "accepted have at least half of those runs in the seeds"),
        (format_part(same.grams_in_seeds, same.grams), "five-word runs of users occur in the seeds"),
        (format_part(same.same_sequence, accepted), "accepted call the same tools in the same order as their seed"),
        (format_part(same.copiers, accepted), "accepted use an identifier of the seeds"),
        (format_part(same.identifiers_in_seeds, same.identifiers), "identifiers in calls occur in the seeds"),
        (f"{same.sequences:,}", "distinct sequences of tools"),
    ]
    if facts.compared < facts.accepted:
        found.append((f"{facts.compared:,}", f"of {facts.accepted:,} accepted were sampled for this comparison"))
    return [(figure, what) for figure, what in found if figure]


def tabulate_tools(facts: RunFacts) -> Table | None:
    """Tabulate the called tools, with the names of the others below."""
    if not facts.tools:
        return None
    table = make_table("tool", "pack", ">accepted", ">rejected", ">seeds")
    called = [tool for tool in facts.tools if tool.accepted or tool.rejected]
    for tool in called[:MOST_TOOLS]:
        figures = (f"{count:,}" for count in (tool.accepted, tool.rejected, tool.seeds))
        table.add_row(
            make_plain_text(tool.name), make_plain_text(tool.pack), *figures, style="" if tool.accepted else "dim"
        )
    if len(called) > MOST_TOOLS:
        table.add_row(f"and {len(called) - MOST_TOOLS} more", "", "", "", "", style="dim")
    wide = Table.grid()
    if called:
        wide.add_row(table)
    if facts.unused:
        names = ", ".join(facts.unused[:MOST_TOOLS])
        wide.add_row(
            make_plain_text(f"in no accepted trajectory ({len(facts.unused)} of {len(facts.tools)}): {names}", "yellow")
        )
    if facts.invented:
        first = format_counts(dict(list(facts.invented.items())[:5]))
        wide.add_row(
            make_plain_text(
                f"calls to tools that are not in the item's list: {sum(facts.invented.values()):,} ({first})"
            )
        )
    return wide


def tabulate_seeds(facts: RunFacts) -> RenderableType | None:
    if not facts.packs:
        return None
    table = make_table("pack or seed", ">items", ">accepted", ">rate", "most often rejected for")
    for name, fate in facts.packs.items():
        table.add_row(make_plain_text(name or "no pack", "bold"), *format_outcomes(fate))
    # The worst first: a seed without accepted items costs tokens in every pass.
    poor = [seed for seed in facts.per_seed if seed.refused]
    for seed in sorted(poor, key=lambda seed: (seed.rate or 0.0, -seed.planned, seed.name))[:MOST_SEEDS]:
        table.add_row(make_plain_text(f"  {seed.name}"), *format_outcomes(seed))
    if len(poor) > MOST_SEEDS:
        table.add_row(f"  and {len(poor) - MOST_SEEDS} more seeds with rejections", "", "", "", "", style="dim")
    wide = Table.grid()
    wide.add_row(table)
    if facts.barren:
        names = ", ".join(seed.name for seed in facts.barren[:MOST_TOOLS])
        wide.add_row(make_plain_text(f"{len(facts.barren)} seeds without an accepted item: {names}", "yellow"))
    wide.add_row(describe_seed_reading(facts))
    for example in facts.seeds.examples[:3]:
        wide.add_row(make_plain_text(f"  refused: {example}"))
    return wide


def describe_seed_reading(facts: RunFacts) -> str:
    read = facts.seeds
    left = read.read - read.used - read.refused
    others = f", {left:,} left out by the settings" if left > 0 else ""
    return f"{read.used:,} seeds used of {read.read:,} read, {read.refused:,} refused by the pre-filter{others}"


def format_outcomes(fate: OutcomeCounts) -> tuple[str, str, str, Text]:
    rate = "" if fate.rate is None else f"{fate.rate:.0%}"
    return f"{fate.planned:,}", f"{fate.accepted:,}", rate, make_plain_text(fate.worst or "")


def make_table(*names: str) -> Table:
    """Make a table without lines; `>` before a name right-aligns its column."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        number = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table


def format_part(part: int, whole: int) -> str:
    """Format a share with both counts; empty if `whole` is 0."""
    if not whole:
        return ""
    percent = 100 * part / whole
    # 1 of 90,000 is not 0 %, and 89,999 of 90,000 are not 100 %.
    edge = "<1" if 0 < percent < 1 else ">99" if 99 < percent < 100 else f"{percent:.0f}"
    return f"{edge}% ({part:,} of {whole:,})"


def format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def format_spread(of: Spread) -> str:
    return f"{of.least:,} / {of.median:,} / {of.most:,}"


def format_tokens(facts: RunFacts) -> str:
    cached = "" if facts.cached_share is None else f" ({facts.cached_share:.0%} from the prefix cache)"
    return f"{facts.usage.prompt:,} in{cached}, {facts.usage.completion:,} out"


def format_run_cost(facts: RunFacts) -> str:
    if facts.usage.cost is None:
        return "unknown"
    known = f"${facts.usage.cost:,.2f}" if facts.usage.cost >= 0.01 or not facts.usage.cost else "under $0.01"
    return f"{known}, and {facts.unpriced:,} replies of unknown price" if facts.unpriced else known
