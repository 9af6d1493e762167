"""`simia rollout`: play tasks with an agent and store the trajectories with rewards in a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from simia import event_loop
from simia.cli.amplify import RUNS
from simia.cli.common import GRANT_READ, make_granted_paths
from simia.config import load_config
from simia.jobs.run import check_name
from simia.report.console import Terminal
from simia.rollouts.settings import RolloutConfig

out = Terminal()
err = Terminal(stderr=True)


def rollout(
    pack: Annotated[str | None, typer.Argument(help="Name of a bundled pack, or a pack's folder.")] = None,
    config: Annotated[str | None, typer.Option("--config", "-c", help="Config by name or path.")] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", "-a", help="reference, nothing, canned, echo, policy, random, or llm (the default)."),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", "-b", help="executable, simulated, mixed, shadow, or an installed one.")
    ] = None,
    group: Annotated[int | None, typer.Option("--group", "-g", help="Episodes of each task.")] = None,
    limit: Annotated[int | None, typer.Option(help="Play only the first N tasks.")] = None,
    split: Annotated[str | None, typer.Option(help="Only tasks of this split.")] = None,
    tasks: Annotated[list[str] | None, typer.Option("--task", help="Only this task; may be repeated.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any setting, as llm.model=gpt-5-mini.")] = None,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Run the pack's code without a sandbox; only for your own code.")
    ] = False,
    network: Annotated[bool, typer.Option("--network", help="Grant the pack's code the network.")] = False,
    variables: Annotated[
        list[str] | None, typer.Option("--variable", help="Grant it this environment variable; may be repeated.")
    ] = None,
    grant_read: GRANT_READ = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run.")] = None,
    runs: RUNS = Path("runs"),
) -> None:
    """Play a pack's tasks with an agent: rewards, pass@k and pass^k with intervals, trajectories in a run.

    The agent's model is a small local one, or an endpoint: --set llm.base_url=… (--set sampling.calls=hermes if the
    server does not support tools).
    """
    if name is not None:
        check_name(name)  # before a model is fetched
    given = add_endpoint_settings(settings or [])
    if unsafe:
        given.append("backend_settings.unsafe=true")
    resolved = load_config(
        RolloutConfig, config or "rollout/default", given,
        pack=pack, agent=agent, backend=backend, group=group, limit=limit, split=split, tasks=tasks or None,
        backend_settings__network=network or None, backend_settings__variables=variables or None,
        backend_settings__read=make_granted_paths(grant_read) or None,
    )  # fmt: skip
    from simia.rollouts.session import start_rollout as start

    with EpisodeBar() as watch:
        done = event_loop.run_command(
            start(resolved, runs=runs, name=name, say=err.print, on_progress=watch, handle_signals=True)
        )
    finish_rollout(done, runs)


def add_endpoint_settings(settings: list[str]) -> list[str]:
    """Set native tool calls for an endpoint. The default, a local model, writes its calls as text."""
    given = list(settings)
    if any(s.startswith("llm.base_url=") for s in given):
        for field, value in (("llm.kind=", "openai"), ("sampling.calls=", "native"), ("sampling.bare=", "false")):
            if not any(s.startswith(field) for s in given):
                given.insert(0, field + value)
    return given


class EpisodeBar:
    """A live line of progress on stderr."""

    def __enter__(self) -> EpisodeBar:
        columns = (TextColumn("episodes"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[mean]}"))
        self._show = Progress(*columns, console=err, transient=True, disable=not err.is_terminal)
        self._bar = self._show.add_task("", total=None, mean="")
        self._show.start()
        return self

    def __call__(self, progress: object) -> None:
        from simia.rollouts.progress import RolloutProgress

        assert isinstance(progress, RolloutProgress)
        mean = "" if progress.mean is None else f"mean reward {progress.mean:.3f}"
        self._show.update(self._bar, completed=progress.done, total=progress.n, mean=mean)

    def __exit__(self, *_: object) -> None:
        self._show.stop()


def finish_rollout(done: object, runs: Path) -> None:
    from simia.jobs import Run
    from simia.report.rollout_report import print_scores, summarize_shadow
    from simia.rollouts.session import RolloutResult

    assert isinstance(done, RolloutResult)
    print_scores(done.scores, done.folder.name, done.accepted, out)
    run = Run.read_only(runs, str(done.folder))
    try:
        if line := summarize_shadow(run):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    finally:
        run.close()
    at = "" if runs == Path("runs") else f" --runs {runs}"
    if done.complete:
        out.print(
            f"next: simia export {done.folder.name} --to llamafactory --out data/{done.folder.name}{at}",
            soft_wrap=True,
            highlight=False,
        )
        return
    detail = f" ({done.stop.detail})" if done.stop.detail else ""
    line = f"stopped: {done.stop.kind}{detail}; nothing is lost"
    out.print(line, markup=False, highlight=False, soft_wrap=True)
    out.print(f"next: simia runs resume {done.folder.name}{at}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(130 if done.stop.kind == "interrupted" else 1)
