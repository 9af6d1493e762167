"""Evaluation during GRPO in TRL, in the environment of training or in one of its own (`val_environment`).

TRL calls one rollout function for both, with the trainer's model in training or in evaluation mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simia.errors import UserError
from simia.pack import Pack
from simia.task import Task
from simia.trainers.launch import select_split
from simia.trainers.trl.rollout import RolloutFunc
from simia.trainers.trl.tool_methods import check_tool_methods
from simia.trainers.val_environment import StageSettings, check_val_environment


def check_evaluation(
    settings: StageSettings,
    pack: Pack,
    split: str | None,
    grpo: Mapping[str, Any],
    *,
    methods: bool,
    later: list[str] | None = None,
) -> tuple[Pack, list[Task]] | None:
    """Check the tasks of `split` (None: no evaluation), their environment, and that TRL evaluates. Returns them with their pack.

    `pack`: that of training. `methods`: whether TRL's own loop plays, with the tools of one pack as methods. `later`: as for `check_stage`. Raises
    `UserError`.
    """
    if split is None:
        return None
    if grpo.get("eval_strategy", "no") == "no" and not grpo.get("eval_on_start"):
        raise UserError(
            f"evaluate is {split}, but TRL's evaluation is off: set grpo.eval_strategy=steps and grpo.eval_steps, or evaluate=null"
        )
    try:
        if settings.val_environment is None:
            judged_in, tasks = pack, select_split(pack, pack.tasks, split, " to evaluate on")
        else:
            judged_in, tasks = check_val_environment(settings, split, later)
    except UserError as error:
        raise UserError(f"{error}; or set evaluate=null for no evaluation") from None
    if methods:
        check_evaluated_methods(pack, judged_in, tasks)
    return judged_in, tasks


def check_evaluated_methods(pack: Pack, judged_in: Pack, tasks: list[Task]) -> None:
    """Check that TRL's own loop can play the tasks to evaluate on with the tools of the training pack. Raises `UserError`."""
    check_tool_methods(judged_in, tasks)
    if [tool.name for tool in judged_in.tools] != [tool.name for tool in pack.tools]:
        raise UserError(
            f"val_environment: pack {judged_in.name} has other tools than {pack.name}, and TRL's environment_factory lists those of one "
            "pack; train with rollout_func"
        )


def choose_by_mode(training: RolloutFunc, evaluation: RolloutFunc) -> RolloutFunc:
    """Make a rollout function that plays evaluations by `evaluation`."""

    def roll(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
        return (training if trainer.model.training else evaluation)(prompts, trainer)

    return roll
