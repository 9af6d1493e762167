"""Print a published result table: the paper's figures, discrepancies in them, and our rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console

from simia.evaluation.published.tables import PublishedPaper, PublishedTable, find_discrepancies
from simia.report.console import make_plain_text, make_table, print_uncut, print_whole
from simia.statistics import Estimate


@dataclass(frozen=True, slots=True)
class OurRow:
    """Figures of one rollout. `parts`: the parts of the papers' suites that were played."""

    run: str
    model: str
    figures: Mapping[str, Estimate]
    parts: int
    conditions: str = ""
    """Conditions of the rollout: tasks, trials, user model, turns."""


def print_table_list(paper: PublishedPaper, to: Console) -> None:
    """Print the tables of a paper."""
    to.print(make_plain_text(f"{paper.title} ({paper.year})"), soft_wrap=True)
    listed = make_table("table", "section", "what it shows")
    for table in paper.tables:
        listed.add_row(table.id, table.section, table.caption)
    for number, content in paper.others.items():
        listed.add_row(number, "", f"no results: {content}")
    print_whole(listed, to)


def print_table(paper: PublishedPaper, table: PublishedTable, ours: Sequence[OurRow], to: Console) -> None:
    """Print a table with our rows, then our intervals, discrepancies and notes. If a printed average does not follow from its row, the
    computed one is added in parentheses."""
    digits = max(0, -round(math.log10(table.unit)))
    wrong = find_discrepancies(table)
    computed = {(each.model, each.what): each.computed for each in wrong}
    to.print(
        make_plain_text(f"{paper.paper}, table {table.id}, section {table.section}: {table.caption}"), soft_wrap=True
    )
    listed = make_table("model", *(f">{column.title}" for column in table.columns.values()))
    for group in table.groups:
        if group.title:
            listed.add_row(f"{group.title}:")
        for row in group.rows:
            cells = []
            for column, value in zip(table.columns.values(), row.values, strict=True):
                mean = computed.get((row.model, column.title))
                cells.append(f"{value:.{digits}f}" + ("" if mean is None else f" ({mean:.2f})"))
            listed.add_row(row.model, *cells)
    if ours:
        listed.add_row("our runs:")
    for mine in ours:
        figures = [mine.figures.get(name) for name in table.columns]
        cells = ["" if each is None else f"{each.value:.{digits}f}" for each in figures]
        listed.add_row(f"{mine.run} ({mine.model})", *cells)
    print_uncut(listed, to)
    lines = [line for mine in ours for line in describe_row(mine, table)]
    lines += [f"does not agree: {each}" for each in wrong]
    lines += [f"note: {note}" for note in table.notes]
    units = sorted({column.unit for column in table.columns.values()})
    lines.append(f"unit: {', '.join(units)}")
    for line in lines:
        to.print(make_plain_text(line), soft_wrap=True)


def describe_row(mine: OurRow, table: PublishedTable) -> list[str]:
    """Describe the intervals of our row, or say why it is empty."""
    if not mine.figures:
        why = (
            "it has no episode of the table's suites yet"
            if not mine.parts
            else "too few episodes of each task, or other parts"
        )
        return [f"{mine.run}: no column of this table is measured: {why}"]
    found = [f"{table.columns[name].title} {each.low:.1f} to {each.high:.1f}" for name, each in mine.figures.items()]
    played = f"{mine.run}: {mine.conditions}; comparable to the printed rows only if these were played alike"
    return [f"{mine.run}: 95 % intervals: {', '.join(found)}", *([played] if mine.conditions else [])]
