"""`simia eval`: play a suite of packs or a benchmark, list the benchmarks, and compare two evaluations."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from simia.cli import options
from simia.cli.eval_tables import print_published
from simia.cli.options import RUN, RUNS
from simia.cli.terminal_output import note_incomplete, watch_rollout
from simia.errors import UserError
from simia.jobs import Run
from simia.jobs.run import check_name
from simia.report.console import Terminal
from simia.terminal import say, say_error, say_json

PLAY = "play"


class SuiteGroup(TyperGroup):
    """Takes a first word that is no subcommand for the suite to play, and `--list` for `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] == "--list":
            args = ["list", *args[1:]]
        elif args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = [PLAY, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=SuiteGroup,
    help="Evaluate a model: simia eval SUITE, for example simia eval tau2. List the suites: simia eval list. Show the "
    "options: simia eval SUITE --help.",
    no_args_is_help=True,
)


@app.command(PLAY, hidden=True)
def evaluate(
    suite: Annotated[
        str, typer.Argument(help="Name of a suite (see simia eval list), or path of a config that extends one.")
    ],
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            help="llm (a model, the default), reference (upper bound), a baseline (nothing, random, …), or your function: FILE.py:FUNCTION.",
        ),
    ] = None,
    packs: Annotated[
        list[str] | None,
        typer.Option(
            "--pack", help="Play this pack (name, folder or pattern) instead of the suite's packs; may be repeated."
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Folder of the benchmark's data, for benchmarks that need one.")
    ] = None,
    trials: Annotated[int | None, typer.Option("--trials", "-g", help="Number of episodes of each task.")] = None,
    calls: Annotated[
        str | None, typer.Option("--calls", help="How the model writes calls: native, react, hermes or codegym.")
    ] = None,
    limit: options.LIMIT = None,
    settings: options.SETTINGS = None,
    engine: options.ENGINE = None,
    unsafe: options.UNSAFE = False,
    network: options.NETWORK = False,
    name: options.NAME = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Play a suite. Prints scores by part, the cost, and failures by the responsible party. To continue an interrupted evaluation, use `simia
    runs resume`.

    The agent is an endpoint with --set llm.base_url=URL --set llm.model=NAME, or else a small local model.
    """
    from simia.evaluation.suites import load_suite, make_rollout_config
    from simia.rollouts.session import start_rollout

    if name is not None:
        check_name(name)  # before data are fetched
    if trials is not None and trials < 1:  # the config's name of it is another
        raise UserError(f"--trials: expected a number of at least 1, got {trials}")
    given = [*options.add_engine(settings, engine), *([f"sampling.calls={calls}"] if calls is not None else [])]
    grants = {"unsafe": unsafe, "network": network}
    overrides: dict[str, Any] = {f"backend_settings__{grant}": True for grant, granted in grants.items() if granted}
    config = load_suite(
        suite, options.add_endpoint_settings(given),
        group=trials, limit=limit, data=data, packs=packs or None, **options.read_agent(agent), **overrides,
    )  # fmt: skip
    resolved = make_rollout_config(config, say_error)
    watch_rollout(partial(start_rollout, resolved, runs=runs, name=name), runs)


@app.command("list")
def list_suites() -> None:
    """List the benchmarks of the five papers: those that run, those that need their data, and those that are not supported, with the reason."""
    from simia.evaluation.benchmarks import WORDS, list_benchmarks

    for each in list_benchmarks():
        command = f": simia eval {each.suite}" if each.suite else ""
        say(f"{each.name}{f' ({each.papers})' if each.papers else ''}")
        say(f"    {WORDS[each.state]}{command}; {each.why}")


@app.command()
def compare(
    left: RUN,
    right: Annotated[str, typer.Argument(help="The run to compare it with, over the same tasks.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    runs: RUNS = Path("runs"),
) -> None:
    """Compare two evaluations task by task. Prints differences with intervals, and whether they are significant."""
    from simia.evaluation.scores import compare_evaluations, list_other_conditions
    from simia.report.evaluation_report import print_comparison, write_comparison_json

    if left == right:
        raise UserError(f"{left} is compared with itself: name another run")
    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(contextlib.closing(Run.read_only(runs, name))) for name in (left, right))
        for each in (one, two):
            note_incomplete(each)
        rows, conditions = compare_evaluations(one, two), list_other_conditions(one, two)
        if as_json:
            say_json(write_comparison_json(rows, conditions))
        else:
            print_comparison(one.id, two.id, rows, conditions, Terminal())


app.command("table")(print_published)
