"""`simia pack export`: write a pack in the form that another tool loads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from simia import event_loop
from simia.cli.options import LIMIT, PACK, SPLIT, TASKS, UNSAFE
from simia.cli.terminal_output import make_progress_bar
from simia.errors import UserError
from simia.pack import Pack
from simia.terminal import say, write_count
from simia.version import __version__

if TYPE_CHECKING:
    from simia.task import Task

Form = Literal["harbor", "verifiers", "openenv"]


def export_pack(
    pack: PACK,
    to: Annotated[Form, typer.Option("--to", help="Format of the export.")],
    out: Annotated[Path, typer.Option("--out", help="Folder of the export. It must not exist.")],
    tasks: TASKS = None,
    split: SPLIT = None,
    limit: LIMIT = None,
    requirement: Annotated[
        str,
        typer.Option(
            "--requirement",
            help="How the export installs simia: a requirement for pip, or the path of a wheel, which is copied.",
        ),
    ] = f"simia=={__version__}",
    base: Annotated[
        str | None, typer.Option("--base", help="Harbor, OpenEnv: base image, with Python 3.11 or newer on Debian.")
    ] = None,
    trust_container: Annotated[
        bool,
        typer.Option(
            "--trust-container", help="Harbor: use only the container, without a sandbox, to isolate the pack's code."
        ),
    ] = False,
    unsafe: UNSAFE = False,
) -> None:
    """Export a pack as Harbor tasks, a verifiers environment or an OpenEnv environment.

    For Harbor, each task's solution is played first, and tasks that an agent cannot solve without a user are left out.
    """
    from simia.authoring.pack_draft import draft_pack, refuse_existing
    from simia.exporting.requirements import describe_requirement

    if to != "harbor" and (trust_container or unsafe):
        option = "--trust-container" if trust_container else "--unsafe"
        raise UserError(f"{option} is for --to harbor; the {to} environment has settings of its own for it")
    if to == "verifiers" and base is not None:
        raise UserError("--base is for --to harbor and --to openenv: a verifiers environment has no image")
    loaded = Pack.load(pack)
    refuse_existing(out)
    chosen = choose_tasks(loaded, tasks, split, limit)
    with draft_pack(out) as draft:
        if to == "harbor":
            lines = export_to_harbor(loaded, chosen, draft, requirement, base, trust_container, unsafe)
        elif to == "verifiers":
            lines = export_to_verifiers(loaded, chosen, draft, requirement)
        else:
            lines = export_to_openenv(loaded, chosen, draft, requirement, base)
    for line in [*lines, describe_requirement(requirement)]:
        say(line)
    if loaded.evaluation:
        say(f"{loaded.name} is for evaluation only, and what was exported says so")
    say(f"written to {out}")


def choose_tasks(pack: Pack, names: list[str] | None, split: str | None, limit: int | None) -> list[Task]:
    """Return the tasks to export. Raises `UserError` where there are none."""
    chosen = [pack.task(name) for name in names] if names else pack.tasks
    chosen = [task for task in chosen if split is None or task.split == split][:limit]
    if not chosen:
        splits = ", ".join(sorted({task.split for task in pack.tasks})) or "none"
        raise UserError(f"pack {pack.name} has no such tasks to export; its splits: {splits}")
    return chosen


def export_to_harbor(
    pack: Pack,
    tasks: list[Task],
    out: Path,
    requirement: str,
    base: str | None,
    trust_container: bool,
    unsafe: bool,
) -> list[str]:
    """Write Harbor tasks and return what to say about it."""
    from simia.exporting.harbor_tasks import ImageSettings, check_pack, write_harbor_tasks
    from simia.exporting.single_turn import SingleTurnTasks, select_single_turn_tasks

    check_pack(pack)

    async def verify() -> SingleTurnTasks:
        with make_progress_bar() as show:
            bar = show.add_task("tasks", total=len(tasks))
            return await select_single_turn_tasks(pack, tasks, unsafe=unsafe, on_task=lambda: show.advance(bar))

    found = event_loop.run_command(verify())
    if not found.tasks:
        task, reason = next(iter(found.refused.items()))
        raise UserError(f"pack {pack.name} has no task that one agent can solve alone: {task}: {reason}")
    settings = ImageSettings(requirement, unsafe=trust_container, **({"base": base} if base else {}))
    folders = write_harbor_tasks(pack, found.tasks, out, settings)
    refused = [
        f"left out: {write_count(count, 'task')}: {reason}"
        for reason, count in Counter(found.refused.values()).most_common()
    ]
    return [f"{write_count(len(folders), 'task')}: the solution has reward 1, doing nothing 0", *refused]


def export_to_verifiers(pack: Pack, tasks: list[Task], out: Path, requirement: str) -> list[str]:
    """Write the package of a verifiers environment and return what to say about it."""
    from simia.exporting.verifiers_package import write_verifiers_package

    name = write_verifiers_package(pack, tasks, out, requirement)
    return [
        f"environment {name} with {write_count(len(tasks), 'task')}; next: pip install it, then vf-eval {name} -m MODEL"
    ]


def export_to_openenv(pack: Pack, tasks: list[Task], out: Path, requirement: str, base: str | None) -> list[str]:
    """Write the folder of an OpenEnv environment and return what to say about it."""
    from simia.exporting.openenv_folder import write_openenv_folder

    name = write_openenv_folder(pack, tasks, out, requirement, **({"base": base} if base else {}))
    return [
        f"environment {name} with {write_count(len(tasks), 'task')}; next, in its folder: python -m server.app --port 8000"
    ]
