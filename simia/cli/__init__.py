"""The `simia` command, with one module per verb. Only user errors end with one line on stderr and exit code 2."""

from __future__ import annotations

import functools
import sqlite3
import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

from simia.errors import UserError
from simia.terminal import install_output_guard, say, say_error

# Each command is a function in the module of its name.
COMMANDS = (
    "amplify", "synth", "export", "report", "judge", "rollout", "train", "serve", "fidelity", "config", "doctor",
)  # fmt: skip
# Group of commands → the module with its `app`.
GROUPS = {"eval": "evaluate", "pack": "pack", "import": "imports", "reward": "reward", "runs": "runs", "model": "model"}


class CommandGroup(TyperGroup):
    """The commands. Ctrl-C ends with one line, also in a command that does not handle it: typer ends it without any."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            say_error("simia: interrupted")
            raise typer.Exit(130) from None


def main(app: typer.Typer | None = None) -> None:
    """Run the console command. `app`: the command line, if it is built already."""
    install_output_guard()
    try:
        (app or build_app(*sys.argv[1:2]))()
    except UserError as error:
        say_error("simia: " + " ".join(str(error).splitlines()))  # one line, even if it quotes several
        sys.exit(2)
    except sqlite3.DatabaseError as error:  # a damaged page that the command's checks did not find
        from simia.jobs.run import RECENT_RUNS

        todo = " or ".join(f"simia runs rebuild {folder}" for folder in RECENT_RUNS) or "give another file"
        say_error(f"simia: a database cannot be read ({error}); to recover what can be: {todo}")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(141)


@functools.cache
def build_app(verb: str = "") -> typer.Typer:
    """Build the command line, once for each verb.

    `verb`: the first word of the command line. For a command or a group, only its module is imported and added: importing all of them takes
    over a second. `--version` needs none. For any other word, such as `--help` or a misspelt command, all are added.
    """
    app = typer.Typer(
        name="simia",
        cls=CommandGroup,
        help="Turn seed trajectories into validated training data.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(describe)
    known = verb in (*COMMANDS, *GROUPS, "--version")
    for name in COMMANDS:
        if name == verb or not known:
            app.command()(getattr(import_module(f"simia.cli.{name}"), name))
    for name, module in GROUPS.items():
        if name == verb or not known:
            app.add_typer(import_module(f"simia.cli.{module}").app, name=name)
    return app


def print_version(show: bool) -> None:
    """Print the version with Python and system, and end before a command is looked for."""
    if show:
        from simia.cli.machine_report import write_version

        say(write_version())
        raise typer.Exit


def describe(
    version: bool = typer.Option(
        False,
        "--version",
        help="Print the versions of simia and Python, and the system. For a bug report, use `simia doctor --report`.",
        is_eager=True,
        callback=print_version,
    ),
) -> None:
    """Simulated and executable environments for training language-model agents."""
    from simia.search_path import describe_overrides

    for line in describe_overrides():
        say_error(f"simia: {line}")
