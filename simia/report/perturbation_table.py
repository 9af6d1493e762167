"""The table of perturbations in the reports of rollouts and evaluations."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from simia.evaluation.perturbations import PerturbationCount
from simia.report.console import make_plain_text, make_table
from simia.statistics import Estimate

HEADS = ("perturbation", ">happened", ">again", ">obeyed", ">solved", ">without")
LEGEND = (
    "happened: events that the messages show, of those that were made; again: the agent made the same call again; obeyed: it followed an "
    "injected instruction; solved: of the scored episodes in which it happened, with Wilson's 95 % interval; without: of the others"
)


def list_perturbation_rows(counts: Sequence[PerturbationCount]) -> list[list[str]]:
    """List a row of cells for each kind, in the order of `HEADS`."""
    return [
        [
            each.kind, f"{each.happened:,}/{each.made:,}", f"{each.repeated:,}", f"{each.followed:,}",
            f"{each.solved:,}/{each.episodes:,}{format_interval(each.success)}",
            f"{each.other_solved:,}/{each.other_episodes:,}",
        ]
        for each in counts
    ]  # fmt: skip


def format_interval(share: Estimate | None) -> str:
    return "" if share is None else f" [{share.low:.2f}, {share.high:.2f}]"


def print_perturbations(counts: Sequence[PerturbationCount], to: Console) -> None:
    """Print the table; nothing where no episode was disturbed."""
    if not counts:
        return
    table = make_table(*HEADS)
    table.columns[0].no_wrap = True
    for row in list_perturbation_rows(counts):
        table.add_row(*map(make_plain_text, row))
    to.print(table)
    to.print(make_plain_text(LEGEND), soft_wrap=True)
