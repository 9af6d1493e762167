"""Print a synthesis run: items, replies, tokens and cost by stage, and why items were refused."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from simia.errors import UserError
from simia.jobs import Run
from simia.jobs.ledger import PASSED, REJECTED
from simia.report.console import Terminal, make_plain_text, make_table
from simia.report.terminal_report import make_grid
from simia.synthesis.gyms.original_comparison import describe_missing
from simia.synthesis.reasons import Reason, explain_reason
from simia.synthesis.refusal_advice import advise
from simia.synthesis.stage_figures import StageFigures, cost_by_stage
from simia.synthesis.stages.problems import ProblemStage

MOST_REFUSALS = 12  # items with their details
MOST_NAMES = 40  # of further items


def print_synthesis(run: Run, out: Console) -> None:
    """Print a run's figures by stage and its refused items."""
    facts, stopped = run.ledger.meta("facts") or {}, run.ledger.meta("stopped") or {}
    state = " ".join(each for each in (stopped.get("kind", "not finished"), stopped.get("detail", "")) if each)
    rows = [
        ("recipe", str(facts.get("recipe"))),
        ("model", str(facts.get("model"))),
        ("state", state),
        ("packs", str(run.ledger.meta("out"))),
    ]
    out.print(Text(f"run {run.id}", style="bold"), make_grid(rows))
    print_stages(cost_by_stage(run), out)
    print_comparisons(run, out)
    refused = [item for item in run.ledger.items() if item.status == "rejected"]
    for item in refused[:MOST_REFUSALS]:
        out.print(make_plain_text(f"  {item.id}: {item.reason}: {item.detail}"), soft_wrap=True)
    if more := [item.id for item in refused[MOST_REFUSALS:]]:
        out.print(
            make_plain_text(f"  and {len(more)} more: {', '.join(more[:MOST_NAMES])}{' …' * (len(more) > MOST_NAMES)}"),
            soft_wrap=True,
        )
    if refused:
        command = shlex.join(["simia", "runs", "show", str(run.folder), "--item", refused[0].id])
        out.print(make_plain_text(f"to read the replies of one: {command}"), soft_wrap=True)


def print_stages(stages: Sequence[StageFigures], out: Console) -> None:
    """Print a table of stages, and the meaning of each reason."""
    table = make_table("stage", ">planned", ">made", ">refused", ">open", ">asked", ">tokens in", ">out", ">cost")
    for each in stages:
        mark = "~" if each.estimated else ""
        counts = [each.inputs, each.made, sum(each.refused.values()), each.open, each.questions]
        tokens = [f"{mark}{count:,}" for count in (each.tokens.prompt, each.tokens.completion)]
        cost = "" if each.cost is None else f"${each.cost:,.4f}"
        table.add_row(make_plain_text(each.name), *(f"{count:,}" for count in counts), *tokens, cost)
    out.print(table)
    for each in stages:
        for reason, count in each.refused.items():
            line = f"{each.name}: {count:,} refused: {reason} ({explain_reason(reason)})"
            todo = advise(reason)
            out.print(make_plain_text(f"{line}; what to do: {todo}" if todo else line), soft_wrap=True)


def print_refused_rows(run: Run, out: Console) -> None:
    """Name the problems that cannot be used, with file and line."""
    rows = [item for item in run.ledger.items() if item.status == REJECTED and item.reason == Reason.BAD_PROBLEM]
    for item in rows[:MOST_REFUSALS]:
        out.print(make_plain_text(f"  {item.id}: {item.detail}"), soft_wrap=True)
    if more := rows[MOST_REFUSALS:]:
        out.print(make_plain_text(f"  and {len(more)} more: simia runs show {run.id}"), soft_wrap=True)


def print_comparisons(run: Run, out: Console) -> None:
    """Name the coding problems whose rewritten solution could not be compared with the original, or not on everything."""
    prefix = f"{ProblemStage.name}/"
    for item in run.ledger.items():
        if item.status == PASSED and item.id.startswith(prefix):
            notes = (run.ledger.result(item.id) or {}).get("notes") or {}
            if line := describe_missing(item.id.removeprefix(prefix), notes):
                out.print(make_plain_text(line), soft_wrap=True)


def print_stage_item(run: Run, name: str) -> None:
    """Print the verdict on an item, its notes, its output and its replies. Raises `UserError` for an unknown item."""
    item = next((each for each in run.ledger.items() if each.id == name), None)
    if item is None:
        first = next(run.ledger.items(), None)
        form = f"items are named STAGE/KEY, the first is {first.id}" if first else "there is none yet"
        raise UserError(f"run {run.id} has no item {name!r}: {form}")
    out, body = Terminal(), run.ledger.result(name) or {}
    verdict = {"passed": "made", "rejected": "refused"}.get(item.status, item.status)
    out.print(make_plain_text(f"{item.id}: {verdict}" + (f": {item.reason}: {item.detail}" if item.reason else "")))
    if item.reason and (todo := advise(item.reason)):
        out.print(make_plain_text(f"what to do: {todo}"), soft_wrap=True)
    for what in ("notes", "output"):
        if body.get(what):
            out.print(make_plain_text(f"--- {what} ---", "dim"))
            out.print_json(data=body[what])
    for key in run.ledger.reply_keys(name):
        reply = run.ledger.recall(key)
        out.print(make_plain_text("--- reply ---", "dim"), make_plain_text(reply.text if reply else "(no reply)"))
