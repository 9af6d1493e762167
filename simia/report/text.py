"""The report on a terminal of 80 columns. What a model wrote is printed as plain text (see conversation.py)."""

from __future__ import annotations

import time

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from simia.report import sections, variety
from simia.report.console import plain
from simia.report.conversation import print_trajectory as print_trajectory
from simia.report.gather import RunFacts, meaning
from simia.report.histograms import Spread
from simia.report.run_figures import Fate

MOST_TOOLS = 40
MOST_SEEDS = 8
MOST_FREQUENT = 3
MOST_WIDTH = 100
STRUCTURAL = "nobody has judged these for truth: the checks are structural, so read a sample"
ATTEMPTS = {"got": "answered", "sent": "without an answer", "failed": "failed", "lost": "answered, their replies lost"}


def print_report(facts: RunFacts, console: Console) -> None:
    """The figures as tables."""
    width = min(console.width, MOST_WIDTH)
    console.print(Text(f"run {facts.run}", style="bold"), summary(facts), width=width)
    for title, table in (
        ("rejected", rejections(facts)),
        ("from the first item to the last", pairs(sections.timeline_lines(facts))),
        ("what the replies took", spending(facts)),
        ("prompts and endpoint", pairs(sections.prefix_lines(facts) + sections.endpoint_lines(facts))),
        ("how varied they are (in brackets: the seeds)", pairs(variety.lines(facts))),
        ("overlap with the seeds", overlap(facts)),
        ("tools: calls in accepted and rejected trajectories, and in the seeds", tools(facts)),
        ("most frequent in accepted ones", frequent(facts)),
        ("packs and seeds", seeds(facts)),
    ):
        if table is not None:
            console.print(Text(f"\n{title}", style="bold"), table, width=width)
    console.print(plain(f"\n{STRUCTURAL}", "yellow"), width=width)


def summary(facts: RunFacts) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines(facts):
        table.add_row(name, plain(value))
    return table


def lines(facts: RunFacts) -> list[tuple[str, str]]:
    """Name and value of each line; the page shows the same."""
    found = [("state", facts.state)]
    if facts.created is not None:
        found.append(("created", time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.created))))
    found.append(("model", f"{facts.model} ({facts.alias})"))
    rate = f"; {share(facts.accepted, facts.decided)} of those judged" if facts.decided else ""
    found.append(("accepted", f"{facts.accepted:,} of {facts.n:,} wanted{rate}"))
    surplus = f", {facts.surplus:,} passed but not counted" if facts.surplus else ""
    failed = f"{sum(facts.failed.values()):,} failed" + (f" ({counted(facts.failed)})" if facts.failed else "")
    rest = f"{facts.refused:,} rejected, {failed}, {facts.open:,} open{surplus}"
    found.append(("items", f"{facts.planned:,} planned, {rest}"))
    calls = ", ".join(f"{count:,} {ATTEMPTS.get(status, status)}" for status, count in facts.attempts.items())
    found.append(("calls", calls or "none sent"))
    if facts.possibly_paid_twice:
        found.append(("", f"{facts.possibly_paid_twice:,} possibly paid twice: on their way when the process ended"))
    found += [("tokens", tokens(facts)), ("cost", cost(facts))]
    if facts.repairs:
        found.append(("repairs", f"{counted(facts.repairs)}; in {share(facts.repaired, facts.accepted)} accepted"))
    if facts.accepted:
        shape = f"{spread(facts.messages)} messages, {spread(facts.calls)} calls"
        found.append(("length", f"{shape} (least / median / most)"))
        found.append(("", f"{spread(facts.tokens)} tokens with tools and policy, estimated"))
        errors = f"{facts.with_errors:,} with an error of a tool, {facts.recovered:,} of them recovered from"
        found.append(("variety", f"{errors}; {facts.parallel:,} with several calls in one turn"))
    if facts.licences:
        by = facts.by_licence
        named = (f"{name} {by[name]:,}" if name in by else name for name in facts.licences)
        found.append(("licences", f"{', '.join(named)} (of the seeds, and accepted from them)"))
    if facts.prompts:
        found.append(("prompts", ", ".join(f"{name} {digest[:8]}" for name, digest in facts.prompts.items())))
    return found


def rejections(facts: RunFacts) -> Table | None:
    """Each reason with its most frequent finding and an item to look at."""
    if not facts.rejected:
        return None
    table = columns("reason", ">items", ">share", "meaning")
    for reason in facts.reasons:
        table.add_row(
            plain(reason.code), f"{reason.count:,}", f"{reason.count / facts.refused:.0%}", meaning(reason.code)
        )
        for finding, count in list(reason.details.items())[:1]:
            such = f" (such as {reason.examples[0]})" if reason.examples else ""
            table.add_row("", f"{count:,}", "", plain(f"{finding}{such}"), style="dim")
    return table


def pairs(rows: list[tuple[str, str]]) -> Table | None:
    if not rows:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(plain(name), plain(value))
    return table


def spending(facts: RunFacts) -> RenderableType | None:
    rows = sections.spending(facts)
    if not rows:
        return None
    table = columns("items", ">replies", ">tokens in", ">cached", ">tokens out", ">cost")
    for row in rows:
        table.add_row(*row)
    wide = Table.grid()
    wide.add_row(table)
    wide.add_row(sections.each_accepted(facts))
    return wide


def frequent(facts: RunFacts) -> Table | None:
    found = sections.frequent_lines(facts)
    if not found:
        return None
    table = columns("what", ">in", ">share")
    for name, rows in found:
        table.add_row(plain(name, "bold"), "", "")
        for thing, count, part in rows[:MOST_FREQUENT]:
            table.add_row(plain(f"  {thing}"), f"{count:,}", part)
    return table


def overlap(facts: RunFacts) -> Table | None:
    if not facts.accepted:
        return None
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for figure, what in overlap_lines(facts):
        table.add_row(figure, what)
    return table


def overlap_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """Figure and what it is a share of; the page shows the same."""
    same, accepted = facts.overlap, facts.compared
    found = [
        (share(same.some, accepted), "accepted have a five-word run of their user's words in the seeds"),
        (share(same.half, accepted), "accepted have at least half of those runs in the seeds"),
        (share(same.grams_in_seeds, same.grams), "five-word runs of users stand in the seeds"),
        (share(same.same_sequence, accepted), "accepted call the same tools in the same order as their seed"),
        (share(same.copiers, accepted), "accepted use an identifier of the seeds"),
        (share(same.identifiers_in_seeds, same.identifiers), "identifiers in calls stand in the seeds"),
        (f"{same.sequences:,}", "distinct sequences of tools"),
    ]
    if facts.compared < facts.accepted:
        found.append((f"{facts.compared:,}", f"of {facts.accepted:,} accepted were drawn for this comparison"))
    return [(figure, what) for figure, what in found if figure]


def tools(facts: RunFacts) -> Table | None:
    """Those that were called; the others are named below."""
    if not facts.tools:
        return None
    table = columns("tool", "pack", ">accepted", ">rejected", ">seeds")
    called = [tool for tool in facts.tools if tool.accepted or tool.rejected]
    for tool in called[:MOST_TOOLS]:
        figures = (f"{count:,}" for count in (tool.accepted, tool.rejected, tool.seeds))
        table.add_row(plain(tool.name), plain(tool.pack), *figures, style="" if tool.accepted else "dim")
    if len(called) > MOST_TOOLS:
        table.add_row(f"and {len(called) - MOST_TOOLS} more", "", "", "", "", style="dim")
    wide = Table.grid()
    if called:
        wide.add_row(table)
    if facts.unused:
        names = ", ".join(facts.unused[:MOST_TOOLS])
        wide.add_row(plain(f"in no accepted trajectory ({len(facts.unused)} of {len(facts.tools)}): {names}", "yellow"))
    if facts.invented:
        first = counted(dict(list(facts.invented.items())[:5]))
        wide.add_row(
            plain(f"calls to tools that are not in the item's list: {sum(facts.invented.values()):,} ({first})")
        )
    return wide


def seeds(facts: RunFacts) -> RenderableType | None:
    if not facts.packs:
        return None
    table = columns("pack or seed", ">items", ">accepted", ">rate", "most often rejected for")
    for name, fate in facts.packs.items():
        table.add_row(plain(name or "no pack", "bold"), *fate_cells(fate))
    # The worst first: a seed that yields nothing is paid for again in every pass.
    poor = [seed for seed in facts.per_seed if seed.refused]
    for seed in sorted(poor, key=lambda seed: (seed.rate or 0.0, -seed.planned, seed.name))[:MOST_SEEDS]:
        table.add_row(plain(f"  {seed.name}"), *fate_cells(seed))
    if len(poor) > MOST_SEEDS:
        table.add_row(f"  and {len(poor) - MOST_SEEDS} more seeds with rejections", "", "", "", "", style="dim")
    wide = Table.grid()
    wide.add_row(table)
    if facts.barren:
        names = ", ".join(seed.name for seed in facts.barren[:MOST_TOOLS])
        wide.add_row(plain(f"nothing was accepted of {len(facts.barren)} seeds: {names}", "yellow"))
    wide.add_row(read_line(facts))
    for example in facts.seeds.examples[:3]:
        wide.add_row(plain(f"  refused: {example}"))
    return wide


def read_line(facts: RunFacts) -> str:
    read = facts.seeds
    left = read.read - read.used - read.refused
    others = f", {left:,} left out by the settings" if left > 0 else ""
    return f"{read.used:,} seeds used of {read.read:,} read, {read.refused:,} refused by the pre-filter{others}"


def fate_cells(fate: Fate) -> tuple[str, str, str, Text]:
    rate = "" if fate.rate is None else f"{fate.rate:.0%}"
    return f"{fate.planned:,}", f"{fate.accepted:,}", rate, plain(fate.worst or "")


def columns(*names: str) -> Table:
    """A table without lines; `>` before a name sets its column to the right."""
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in names:
        number = name.startswith(">")
        table.add_column(name.lstrip(">"), justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table


def share(part: int, whole: int) -> str:
    """Both counts and their share; empty when there is nothing to be a share of."""
    if not whole:
        return ""
    percent = 100 * part / whole
    # 1 of 90,000 is not none, and 89,999 of them are not all.
    edge = "<1" if 0 < percent < 1 else ">99" if 99 < percent < 100 else f"{percent:.0f}"
    return f"{edge}% ({part:,} of {whole:,})"


def counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def spread(of: Spread) -> str:
    return f"{of.least:,} / {of.median:,} / {of.most:,}"


def tokens(facts: RunFacts) -> str:
    cached = "" if facts.cached_share is None else f" ({facts.cached_share:.0%} from the prefix cache)"
    return f"{facts.usage.prompt:,} in{cached}, {facts.usage.completion:,} out"


def cost(facts: RunFacts) -> str:
    if facts.usage.cost is None:
        return "unknown"
    known = f"${facts.usage.cost:,.2f}" if facts.usage.cost >= 0.01 or not facts.usage.cost else "under $0.01"
    return f"{known}, and {facts.unpriced:,} replies of unknown price" if facts.unpriced else known
