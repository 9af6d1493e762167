"""The report on a terminal, and one trajectory as a conversation."""

from __future__ import annotations

import orjson
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from simia.report.facts import RunFacts
from simia.trajectory import Message, Trajectory

MOST_ROWS = 24


def print_report(facts: RunFacts, console: Console) -> None:
    console.print(summary(facts))
    if facts.rejected:
        console.print(rejections(facts))
    console.print(tools(facts))
    for refused in facts.seeds_refused[:5]:
        console.print(f"seed refused: {refused}", markup=False, highlight=False)


def grid() -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    return table


def summary(facts: RunFacts) -> Table:
    table = grid()
    end = f"{facts.stopped}: {facts.detail}" if facts.detail else facts.stopped
    table.add_row("run", Text(f"{facts.run} ({end})"))
    table.add_row("model", Text(facts.model))
    rate = f" ({facts.accepted / facts.decided:.0%} of {facts.decided:,} replies judged)" if facts.decided else ""
    table.add_row("accepted", f"{facts.accepted:,} of {facts.n:,}{rate}")
    if facts.failed:
        table.add_row("failed", f"{facts.failed:,} items that the endpoint did not answer; a resume asks again")
    table.add_row("seeds", f"{facts.seeds_used} used of {facts.seeds_read} read, {len(facts.seeds_refused)} refused")
    shape = f"messages {facts.messages.least}–{facts.messages.most}, calls {facts.calls.least}–{facts.calls.most}"
    table.add_row("length", f"{shape}, about {facts.tokens.median:,} tokens with tools and policy (median)")
    table.add_row(
        "overlap",
        f"{facts.grams_from_seed:.0%} of word 5-grams and {facts.values_from_seed:.0%} of values in calls stand in the seed",
    )
    kinds = f"{facts.sequences} tool sequences; {facts.same_sequence:.0%} are the seed's own"
    table.add_row(
        "variety", f"{kinds}; {facts.parallel} with parallel calls, {facts.recoveries} with errors recovered from"
    )
    usage = facts.usage
    cached = f" ({usage.cached / usage.prompt:.0%} from the prefix cache)" if usage.prompt else ""
    table.add_row("tokens", f"{usage.prompt:,} in{cached}, {usage.completion:,} out")
    table.add_row("cost", "unknown" if usage.cost is None else f"${usage.cost:,.2f}")
    if facts.possibly_paid_twice:
        table.add_row("", f"{facts.possibly_paid_twice} calls were on their way at a kill: possibly paid twice")
    if facts.repairs:
        table.add_row("repairs", ", ".join(f"{name} {count}" for name, count in facts.repairs.items()))
    table.add_row("", Text("the checks are structural: nobody has judged whether the answers are true", style="dim"))
    return table


def rejections(facts: RunFacts) -> Table:
    table = Table("rejected", "items", "because", box=None, header_style="dim", padding=(0, 2, 0, 0))
    for reason, count in facts.rejected.items():
        table.add_row(reason, f"{count:,}", facts.meaning(reason))
    return table


def tools(facts: RunFacts) -> Table:
    table = Table("tool", "accepted", "rejected", "seeds", box=None, header_style="dim", padding=(0, 2, 0, 0))
    by_use = sorted(facts.tools.items(), key=lambda pair: (-pair[1].accepted, pair[0]))
    for name, tool in by_use[:MOST_ROWS]:
        table.add_row(
            name, f"{tool.accepted:,}", f"{tool.rejected:,}", f"{tool.seeds:,}", style="" if tool.accepted else "dim"
        )
    unused = sum(1 for tool in facts.tools.values() if not tool.accepted)
    if unused:
        table.add_row(f"{unused} of {len(facts.tools)} tools are in no accepted trajectory", "", "", "", style="dim")
    return table


COLOURS = {"user": "bold cyan", "assistant": "bold green", "tool": "bold yellow", "system": "bold"}


def print_trajectory(trajectory: Trajectory, console: Console) -> None:
    """As a conversation; the system text is left out, its first line stands for it."""
    origin = ", ".join(trajectory.provenance.seed_ids)
    console.rule(
        Text(f"{trajectory.task_id or trajectory.id} from seed {origin}" if origin else trajectory.task_id or "")
    )
    for message in trajectory.messages:
        print_message(message, console)
    console.rule()


def print_message(message: Message, console: Console) -> None:
    console.print(Text(message.role, style=COLOURS[message.role]))
    if message.reasoning:
        console.print(Padding(Text(message.reasoning, style="dim italic"), (0, 0, 0, 2)))
    if message.text:
        style = "red" if message.error else ""
        console.print(Padding(Text(message.text, style=style), (0, 0, 0, 2)))
    for call in message.calls:
        arguments = orjson.dumps(call.arguments).decode() if call.arguments is not None else f"{call.raw} (not JSON)"
        console.print(Padding(Text.assemble((call.name, "magenta"), " ", arguments), (0, 0, 0, 2)))
