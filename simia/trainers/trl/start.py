"""`simia train trl` in simia's environment: check everything, and return the command that trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simia.config import find_config, parse_config, read_config_file
from simia.envs.opening import load_tasks
from simia.errors import UserError
from simia.terminal import write_count
from simia.trainers.checkpoint_pack import refuse_other_pack, write_pack_name
from simia.trainers.concurrency import fit_concurrency
from simia.trainers.evaluation_tasks import refuse_evaluation_tasks
from simia.trainers.kept_episodes import find_run_folder
from simia.trainers.launch import (
    Launch,
    assign_settings,
    check_folder,
    check_stage,
    check_writable,
    find_or_note,
    format_setting,
    list_extras,
    name_backend,
)
from simia.trainers.plan_notes import check_references, describe_shared_tasks
from simia.trainers.time_limits import settle_time_limits
from simia.trainers.trl.episode_plan import count_batch, describe_step, plan_episodes
from simia.trainers.trl.evaluation import check_evaluation
from simia.trainers.trl.settings import TrlConfig, check_fields, find_collective_timeout
from simia.trainers.trl.tool_methods import check_tool_methods
from simia.trainers.trl.vllm_sampler import check_vllm_settings
from simia.trainers.versions import interpreter
from simia.venvs import make_python_path

MODULE = "simia.trainers.trl.train"


def launch(config: Path, changes: dict[str, Any], *, python: Path | None = None, dry_run: bool = False) -> Launch:
    """Check config, pack and versions, and return the command.

    `python`: an interpreter with TRL (None: this one if it fits, else that of simia's own environment, which a dry run may lack). Raises
    `UserError`.
    """
    data = read_config_file(config)
    assign_settings(data, changes)
    settings = parse_config(TrlConfig, data, where=str(config))
    pack, tasks = load_tasks(settings.stage)
    refuse_evaluation_tasks(pack, tasks, "allow_evaluation_tasks", allowed=settings.allow_evaluation_tasks)
    methods = settings.through == "environment_factory"
    later: list[str] = []
    keys = later if dry_run else None
    if methods:
        check_tool_methods(pack, tasks)
        if settings.calls != "template":
            raise UserError(
                f"calls: TRL's own loop reads calls only in the template's form, not in {settings.calls}: set through=rollout_func"
            )
    else:
        check_vllm_settings(settings.grpo)
    warnings = check_folder(settings.model, "model", keys)
    check_stage(settings.stage, pack, later=keys)
    judged = check_evaluation(settings, pack, settings.evaluate, settings.grpo, methods=methods, later=keys)
    collective = find_collective_timeout(settings)
    world_seconds, *_ = (
        settle_time_limits(stage, settings.world_seconds, collective)
        for stage in (settings.stage, settings.for_validation().stage)
    )
    kept = None
    if isinstance(out := settings.grpo.get("output_dir"), str):
        check_writable(Path(out), "grpo.output_dir")
        refuse_other_pack(Path(out), pack.name, "grpo.output_dir")
        if settings.episodes is not None:
            kept = find_run_folder(settings.episodes, Path(out))
            check_writable(Path(kept), "episodes.run")
            if settings.episodes.tokens and settings.through == "environment_factory":
                raise UserError(
                    "episodes.tokens: TRL's own loop does not give the sampled token ids: set it to false, or set through=rollout_func"
                )
    named = python
    python = find_or_note(lambda: interpreter("trl", named), later, needed=not dry_run or named is not None)
    command = [str(python), "-m", MODULE, str(find_config(config).absolute())]
    for name, value in changes.items():
        command += ["--set", f"{name}={format_setting(value)}"]
    backend = name_backend(settings.stage)
    step = describe_step(settings.grpo, settings.processes)
    which = f"{step} on {write_count(len(tasks), 'task')} of {pack.name}" + (
        f", split {settings.stage.split}" if settings.stage.split else ""
    )
    where = python or "no environment"
    notes = [f"GRPO of {settings.model} on {which} ({backend}), through TRL's {settings.through} ({where})"]
    notes += [f"episodes are kept in {kept}"] if kept is not None else []
    if collective is not None:
        notes.append(
            f"an answer of the environment may take {world_seconds:g} s, and ranks wait {collective:g} s for each other"
        )
    if backend in ("simulated", "mixed") and settings.stage.llm.kind == "embedded" and settings.stage.simulator is None:
        notes.append(
            "the small local model plays the tools and judges, which is only good for a trial: set a stronger one under stage.llm"
        )
    if dry_run:  # a real start prints this in the process that trains
        each = max(1, int(count_batch(settings.grpo, settings.processes)) // settings.processes)
        warnings += fit_concurrency(settings.stage, min(each, settings.at_once or each))
    plan = plan_episodes(settings, settings.grpo, settings.processes, (pack, tasks), judged, methods=methods)
    notes += [
        *warnings,
        *check_references(plan),
        *describe_shared_tasks(plan, lambda each: "stage.split" if each.what == "training" else "evaluate"),
    ]
    notes += later
    if python is None:
        check_fields(settings.grpo, list(settings.grpo))
        return Launch([], notes=notes, plan=plan)
    judged_in = [] if settings.evaluate is None else [settings.for_validation().stage]
    extras = list_extras(settings.stage, *judged_in)
    env = {"PYTHONPATH": make_python_path(python, extras=extras), "TRL_EXPERIMENTAL_SILENCE": "1"}

    def prepare() -> None:
        if isinstance(out, str):
            write_pack_name(Path(out), pack.name)

    return Launch(command, env=env, notes=notes, prepare=prepare, check=[*command, "--check"], plan=plan)
