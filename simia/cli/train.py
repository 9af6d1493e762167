"""`simia train`: start a trainer on simia's data or environments, after checking versions, data and settings."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from simia import search_path
from simia.cli.export import export
from simia.cli.options import parse_settings
from simia.cli.terminal_output import report_interrupt
from simia.config import find_config, parse_scalar, read_command_line_value
from simia.errors import UserError
from simia.terminal import say
from simia.trainers.launch import Launch
from simia.trainers.training_cost import describe_training
from simia.trainers.versions import compare_versions, find_own_interpreter, list_installed

# Trainer → the module whose `launch(config, changes, python=…)` describes how to start it.
TRAINERS = {
    "llamafactory": "simia.trainers.llamafactory",
    "trl": "simia.trainers.trl.start",
    "verl": "simia.trainers.verl.start",
    "ragen": "simia.trainers.ragen.start",
}
MODEL = {"verl": "actor_rollout_ref.model.path", "ragen": "model_path"}


def train(
    trainer: Annotated[str, typer.Argument(help=f"One of {', '.join(TRAINERS)}.")],
    config: Annotated[
        str,
        typer.Argument(
            help="Config of the trainer, by name or path. For llamafactory: an exported folder, or a run of runs.yaml."
        ),
    ],
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting of the config, as a.b=c; may be repeated.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="llamafactory: name of a model in models.yaml. trl: a model's name, or a folder."),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option("--python", help="Python interpreter of an environment in which the trainer is installed."),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check the run and print its projected price and its command. The trainer need not be installed.",
        ),
    ] = False,
) -> None:
    """Check versions, data and settings, then replace this process by the trainer, which handles signals such as Ctrl-C and sets the exit code."""
    place = TRAINERS.get(trainer)
    if place is None:
        raise UserError(f"no trainer named {trainer!r}; there are: {', '.join(TRAINERS)}")
    # TRL's config is simia's, with typed fields; values of other trainers' configs are parsed as YAML.
    changes = parse_settings(settings, read_command_line_value if trainer == "trl" else parse_scalar)
    if model is not None:
        if trainer in MODEL:
            raise UserError(f"--model is for llamafactory and trl; here: --set {MODEL[trainer]}={model}")
        changes["model"] = model
    # Absolute, without following links: the interpreter of a virtual environment is a link.
    interpreter = Path(os.path.abspath(python.expanduser())) if python else None
    if interpreter is None and compare_versions(trainer, list_installed()):
        interpreter = find_own_interpreter(trainer)
    # LLaMA-Factory's config is a folder, or the name of a run.
    found = Path(config) if trainer == "llamafactory" else find_trainer_config(trainer, config)
    options = {"dry_run": dry_run} if trainer != "llamafactory" else {}
    with report_interrupt() if dry_run else contextlib.nullcontext():
        launch: Launch = import_module(place).launch(found, changes, python=interpreter, **options)
        for note in launch.notes:
            say(note)
        if dry_run or launch.check_at_start:
            check_with_trainer(launch)
        if dry_run:
            for line in describe_training(launch.plan) if launch.plan else []:
                say(line)
            if launch.command:
                say(format_launch(launch))
            return
    if launch.before is not None:
        command = typer.Typer()
        command.command()(export)  # the only command that a launch needs first
        if code := command(launch.before[1:], standalone_mode=False):
            raise typer.Exit(code)
    if launch.prepare is not None:
        try:
            launch.prepare()
        except OSError as error:
            raise UserError(f"{error.filename} cannot be written: {error.strerror}") from None
    exec_trainer(launch)


def find_trainer_config(trainer: str, config: str) -> Path:
    """Return the absolute path of a config. Raises `UserError`, with the trainer's configs, if it does not exist."""
    try:
        if (found := find_config(config)).is_file():
            return found.absolute()
        problem = f"{config} is a folder"
    except UserError:
        problem = f"there is no config {config!r}"
    known = [name.removesuffix(".yaml") for name in search_path.list_names("configs") if Path(name).parts[0] == trainer]
    raise UserError(f"{problem}; configs of {trainer}: {', '.join(known)}; or give the path of a YAML file")


def check_with_trainer(launch: Launch) -> None:
    """Run the trainer's own check of its configuration. Raises `UserError` with its message."""
    if launch.check is None:
        return
    env = {**os.environ, **launch.env}
    done = subprocess.run(launch.check, env=env, cwd=launch.cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()] or ["it does not start"]
        raise UserError(lines[-1].removeprefix("simia: "))


def format_launch(launch: Launch) -> str:
    """Format the launch as a shell command."""
    first = [f"{shlex.join([sys.executable, '-P', '-m', 'simia', *launch.before])} &&"] if launch.before else []
    first += [f"cd {shlex.quote(str(launch.cwd))} &&"] if launch.cwd else []
    return " ".join(
        [*first, *(f"{name}={shlex.quote(value)}" for name, value in launch.env.items()), shlex.join(launch.command)]
    )


def exec_trainer(launch: Launch) -> None:
    """Replace this process by the trainer, which then owns signals, exit code and terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    env = {**os.environ, **launch.env}
    try:
        if launch.cwd is not None:
            os.chdir(launch.cwd)
        os.execvpe(launch.command[0], launch.command, env)
    except OSError as error:
        raise UserError(f"{launch.command[0]} cannot be started: {error.strerror}") from None
