"""The table of perturbations in the reports of rollouts and evaluations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from simia.envs.perturbation.settings import USER_EVENTS
from simia.evaluation.perturbations import PerturbationCount
from simia.report.console import make_plain_text, make_table, print_whole
from simia.statistics import Estimate

HEADS = ("perturbation", ">planned", ">happened", ">again", ">misled", ">solved", ">without")
LEGEND = (
    "planned: events of the schedules; happened: events that the messages show, of those that were made: the others found no such call or "
    "message before the episode was over; again: the agent made the same call again; misled: it obeyed an injected instruction, or acted on "
    "a withdrawn wish before the user renewed it; solved: of the scored episodes in which it happened, with Wilson's 95 % interval; without: of the others"
)


def list_perturbation_rows(counts: Sequence[PerturbationCount]) -> list[list[str]]:
    """List a row of cells for each kind, in the order of `HEADS`."""
    return [
        [
            each.kind, f"{each.planned:,}", f"{each.happened:,}/{each.made:,}", f"{each.repeated:,}",
            f"{each.followed + each.too_early:,}",
            f"{each.solved:,}/{each.episodes:,}{format_interval(each.success)}",
            f"{each.other_solved:,}/{each.other_episodes:,}",
        ]
        for each in counts
    ]  # fmt: skip


def list_perturbation_lines(row: Mapping[str, Any]) -> list[str]:
    """Write a line for each event of a stored trajectory: kind, place, whether it happened, the agent's reaction. Events that never
    came are last."""
    found = []
    for event in row.get("perturbations") or []:
        of = f" of {event['tool']}" if event.get("tool") else ""
        happened = "happened" if event.get("happened", True) else "did not happen"
        reaction = f", {event['reaction']}" if event.get("reaction") else ""
        found.append(f"perturbation: {event['kind']}{of}, messages[{event['message']}], {happened}{reaction}")
    for event in (row.get("extra") or {}).get("missed_events") or []:
        of = f" of {event['tool']}" if event.get("tool") else ""
        unit = "message of the user" if event["kind"] in USER_EVENTS else "call"
        found.append(f"perturbation: {event['kind']}{of}, planned from {unit} {event['at']} on, never came")
    return found


def format_interval(share: Estimate | None) -> str:
    return "" if share is None else f" [{share.low:.2f}, {share.high:.2f}]"


def print_perturbations(counts: Sequence[PerturbationCount], to: Console) -> None:
    """Print the table; nothing if no episode was perturbed."""
    if not counts:
        return
    table = make_table(*HEADS)
    table.padding = (0, 1, 0, 0)  # so that it fits 80 columns
    for number, column in enumerate(table.columns):
        column.no_wrap = number == 0  # a long figure is wrapped, not cut
    for row in list_perturbation_rows(counts):
        table.add_row(*map(make_plain_text, row))
    print_whole(table, to)
    to.print(make_plain_text(LEGEND), soft_wrap=True)
