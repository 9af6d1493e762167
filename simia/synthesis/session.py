"""Synthesize packs from config to stop: `simia.synthesize`, the session of a new run, and the session of a resume."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from simia import terminal
from simia.authoring.pack_draft import refuse_existing
from simia.jobs import Run, find_run
from simia.jobs.coordinator import Coordinator
from simia.jobs.progress import Progress
from simia.jobs.run import saved_config
from simia.jobs.run_session import OpenRun, SessionOptions, SessionResult, continue_run, coordinate, reopen_run
from simia.llm.backends import find_price, open_backend
from simia.llm.budget import share_budget
from simia.llm.engine import Engine
from simia.synthesis.job import SynthesisWork
from simia.synthesis.recipes import find_recipe
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Recipe, StageOutputs


@dataclass(slots=True)
class Synthesized(SessionResult):
    """The result of a synthesis: the run's folder, the reason why it stopped, and the packs, written once it is complete."""

    progress: Progress
    outputs: StageOutputs
    packs: list[Path]


async def start_synthesis(
    config: SynthesisConfig,
    out: Path,
    *,
    runs: Path = Path("runs"),
    name: str | None = None,
    **options: Unpack[SessionOptions],
) -> Synthesized:
    """Start a run and work on it until its packs are written to `out`, or a stop. Raises `UserError` if `out` exists."""
    refuse_existing(out)
    open_run: OpenRun = lambda facts: Run.create(runs, config, name=name, facts=facts)  # noqa: E731
    recipe = find_recipe(config.recipe).make(config)
    return await work_on_synthesis(config, recipe, out, open_run, **options)


async def resume_synthesis(
    run_id: str,
    out: Path | None = None,
    *,
    runs: Path = Path("runs"),
    changes: dict[str, Any] | None = None,
    **options: Unpack[SessionOptions],
) -> Synthesized:
    """Continue a run. `out`: another folder for the packs. `changes` (dotted names) may touch operational settings."""
    say = options.get("say", terminal.say)
    kind = find_recipe(saved_config(find_run(runs, run_id)).get("recipe"))
    with reopen_run(kind.config, runs, run_id, changes, say=say) as (run, config):
        out = out or Path(run.ledger.meta("out"))
        return await work_on_synthesis(config, kind.make(config), out, partial(continue_run, run, config), **options)


async def work_on_synthesis(
    config: SynthesisConfig,
    recipe: Recipe,
    out: Path,
    open_run: OpenRun,
    *,
    say: Callable[[str], None] = terminal.say,
    on_progress: Callable[[Any], None] | None = None,
    handle_signals: bool = False,
) -> Synthesized:
    """Start the models, open the run, work on the stages, and write the packs if all are complete."""
    async with contextlib.AsyncExitStack() as stack:
        models = {"writer": config.llm, **config.roles}
        backends = {role: open_backend(settings, say=say) for role, settings in models.items()}
        for backend in backends.values():
            await backend.start()
            stack.push_async_callback(backend.close)
        writer = backends["writer"]
        facts = {
            "model": writer.model,
            "alias": writer.alias,
            "roles": {role: each.model for role, each in backends.items() if role != "writer"},
            "recipe": recipe.name,
        }
        run = stack.enter_context(contextlib.closing(open_run(facts)))
        keep_out(run, out)
        engines = {
            role: Engine(backend, run.ledger, config.limits, find_price(models[role]))
            for role, backend in backends.items()
        }
        for engine in engines.values():
            stack.callback(engine.gate.close)
        spent, attempts = run.ledger.spent()
        share_budget(list(engines.values()), spent, sent=sum(attempts.values()), answered=run.ledger.answered_count())
        work = SynthesisWork(run, config, recipe.list_stages(), engines)
        job = Coordinator(run, work, list(engines.values()), work.progress, config.stop, on_progress=on_progress)
        stop = await coordinate(job, handle_signals=handle_signals, say=say)
        packs = recipe.write(work.outputs, out) if stop.kind == "complete" else []
        return Synthesized(run.folder, stop, work.progress, work.outputs, packs)


def keep_out(run: Run, out: Path) -> None:
    """Store where the packs are written, for a resume from any working directory."""
    run.ledger.set_meta("out", str(out.absolute()))
