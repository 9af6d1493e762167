"""`simia eval table`: print a published result table, with rows of our rollouts below."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from simia.cli.options import RUNS
from simia.cli.terminal_output import note_incomplete
from simia.jobs import Run
from simia.report.console import Terminal


def print_published(
    paper: Annotated[str, typer.Argument(help="Paper: simia, scaleenv, envscaler, envfactory or codegym.")],
    number: Annotated[str | None, typer.Argument(help="Number or name of the table. Default: list the tables.")] = None,
    run: Annotated[
        list[str] | None,
        typer.Option("--run", help="Add a row for this rollout: id, unique prefix, path, or `last`; may be repeated."),
    ] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Print a published result table, with its footnotes and recomputed averages. With --run, it has a row for each of your rollouts."""
    from simia.evaluation.published.tables import (
        collect_placed_rewards,
        describe_conditions,
        measure_columns,
        read_paper,
    )
    from simia.evaluation.scores import collect_scenarios, read_episodes
    from simia.report.published_table import OurRow, print_table, print_table_list

    found = read_paper(paper)
    if number is None:
        print_table_list(found, Terminal())
        return
    table, ours = found.find_table(number), []
    for name in run or ():
        with contextlib.closing(Run.read_only(runs, name)) as opened:
            rewards = collect_placed_rewards(opened)
            note_incomplete(opened)
            model = str((opened.ledger.meta("facts") or {}).get("model") or "unknown")
            conditions = describe_conditions(opened, rewards)
            figures = measure_columns(table, rewards, collect_scenarios(read_episodes(opened)))
            ours.append(OurRow(opened.id, model, figures, len(rewards), conditions))
    print_table(found, table, ours, Terminal())
