"""`simia rollout`: play tasks with an agent and store the trajectories with rewards in a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simia.cli import options
from simia.cli.terminal_output import watch_rollout
from simia.config import load_config
from simia.jobs.run import check_name
from simia.rollouts.settings import RolloutConfig
from simia.terminal import say_error


def rollout(
    pack: Annotated[str | None, typer.Argument(help="Name of a bundled pack, or folder of a pack.")] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="Config by name or path.")] = None,
    agent: Annotated[
        str | None,
        typer.Option(
            "--agent",
            "-a",
            help="llm (a model, the default), reference, following, repeating, a baseline (nothing, canned, echo, policy, random), "
            "or your own function as FILE.py:FUNCTION or MODULE:FUNCTION.",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            "-b",
            help="executable, simulated, shadow, or an installed back end. For one per tool: --set 'backend={…}'.",
        ),
    ] = None,
    group: Annotated[int | None, typer.Option("--group", "-g", help="Number of episodes of each task.")] = None,
    limit: options.LIMIT = None,
    split: options.SPLIT = None,
    tasks: options.TASKS = None,
    settings: options.SETTINGS = None,
    engine: options.ENGINE = None,
    unsafe: options.UNSAFE = False,
    network: options.NETWORK = False,
    variables: options.VARIABLES = None,
    grant_read: options.GRANT_READ = None,
    name: options.NAME = None,
    runs: options.RUNS = Path("runs"),
) -> None:
    """Play a pack's tasks with an agent. Prints rewards, pass@k and pass^k with intervals, and stores the trajectories in a run.

    The agent's model is a small local model, or an endpoint with --set llm.base_url=… (add --set sampling.calls=hermes if the server does
    not support tool calls).
    """
    if name is not None:
        check_name(name)  # before a model is fetched
    grants = options.collect_grants(unsafe, network, variables, grant_read)
    resolved = load_config(
        RolloutConfig, config or "rollout/default", options.add_endpoint_settings(options.add_engine(settings, engine)),
        pack=pack, **options.read_agent(agent), backend=backend, group=group, limit=limit, split=split, tasks=tasks or None,
        **{f"backend_settings__{grant}": value for grant, value in grants.items()},
    )  # fmt: skip
    if pack is None and resolved.packs is None and not resolved.model_fields_set & {"pack"}:
        say_error(f"no pack is given: playing {resolved.pack}")
    from simia.llm.question_files import note_shared_batches
    from simia.rollouts.session import start_rollout

    for line in note_shared_batches(resolved.model_dump(mode="json")):
        say_error(line)
    watch_rollout(partial(start_rollout, resolved, runs=runs, name=name), runs)
