"""`simia pack difficulty`: play agents, and store how often each solved each task."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from simia import event_loop
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Run
from simia.pack import Pack
from simia.report.console import Terminal
from simia.terminal import write_count

out = Terminal()
err = Terminal(stderr=True)


def difficulty(
    pack: Annotated[str, typer.Argument(help="Folder of a pack. Its tasks.jsonl is rewritten.")],
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", "-a", help="Agent that plays, as in simia rollout; may be repeated."),
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option("--run", help="Read this finished rollout of the pack instead of playing; may be repeated."),
    ] = None,
    group: Annotated[int, typer.Option("--group", "-g", min=1, help="Number of episodes of each task.")] = 4,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any setting of the rollouts, as a.b=c; may be repeated.")
    ] = None,
    runs: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
) -> None:
    """Play each task with each agent, and store the numbers of episodes and of solved episodes in tasks.jsonl, under the name of the agent or
    its model."""
    from simia.authoring.difficulty import measure_rewards, read_rewards, store_measurements
    from simia.cli.options import add_endpoint_settings
    from simia.cli.terminal_output import show_episodes
    from simia.rollouts.session import start_rollout
    from simia.rollouts.settings import RolloutConfig

    loaded = Pack.load(pack)
    if not agents and not read:
        raise UserError("name an agent to play (--agent reference) or a finished rollout (--run ID)")
    folders = list(read or [])
    for agent in agents or []:
        config = load_config(
            RolloutConfig, "rollout/default", add_endpoint_settings(settings), pack=pack, agent=agent, group=group
        )
        with show_episodes() as update:
            work = start_rollout(config, runs=runs, say=err.print, on_progress=update, handle_signals=True)
            done = event_loop.run_command(work)
        if not done.complete:
            err.print(
                f"{agent}: the rollout stopped ({done.stop.detail or done.stop.kind}): simia runs resume {done.run_id}, then --run {done.run_id}"
            )
            raise typer.Exit(1)
        folders.append(str(done.folder))
    for folder in folders:
        run = Run.read_only(runs, folder)
        try:
            rewards, played = read_rewards(run), run.ledger.meta("facts") or {}
        finally:
            run.close()
        name = str(played.get("model") or run.id)
        if str(played.get("pack")) != loaded.name:
            raise UserError(
                f"run {run.id} played pack {played.get('pack')}, not {loaded.name}: name a rollout of this pack"
            )
        measured = measure_rewards(rewards)
        path = store_measurements(loaded, name, measured)
        bands = Counter(describe_rate(each.rate) for each in measured.values())
        shares = ", ".join(f"{count} {band}" for band, count in bands.most_common())
        out.print(
            f"{name}: {write_count(len(measured), 'task')} measured in {path}: {shares}",
            highlight=False,
            soft_wrap=True,
        )


def describe_rate(rate: float) -> str:
    """A share of solved episodes, in words."""
    return "always solved" if rate == 1 else "never solved" if rate == 0 else "sometimes solved"
