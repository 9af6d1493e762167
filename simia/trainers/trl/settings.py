"""The configuration of `simia train trl`: simia's settings, and the fields of TRL's GRPOConfig, checked."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from typing import Any, Literal

from pydantic import Field

from simia.envs.config import EnvironmentConfig
from simia.errors import UserError
from simia.trainers.kept_episodes import KeptSettings
from simia.trainers.tokens import CallForm
from simia.trainers.val_environment import StageSettings

EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")
DDP_TIMEOUT = 1800.0  # seconds; TRL's default
NO_EVALUATION = {"eval_strategy": "no", "eval_on_start": False}


class TrlConfig(StageSettings):
    """The configuration of `simia train trl`, as in configs/trl/*.yaml."""

    model: str = Field(
        min_length=1, description="The policy to train: a model name on the Hugging Face Hub, or a folder."
    )
    stage: EnvironmentConfig = Field(
        default_factory=EnvironmentConfig, description="The environment: pack, back end, models and judge."
    )
    through: Literal["rollout_func", "environment_factory"] = Field(
        "rollout_func",
        description="TRL's interface. rollout_func: simia plays the episodes. environment_factory: TRL's own loop, without a user who "
        "replies.",
    )
    calls: CallForm = Field(
        "template",
        description="How tools and calls are written. template: by the chat template. codegym: in CodeGym's dialect.",
    )
    at_once: int | None = Field(
        None, ge=1, description="rollout_func: maximum number of concurrent episodes. null: all."
    )
    max_turn_tokens: int | None = Field(
        None,
        ge=1,
        description="rollout_func: maximum number of tokens of one message of the policy. null: grpo.max_completion_length.",
    )
    world_seconds: float | None = Field(
        None,
        gt=0,
        description="Maximum duration of one answer of the environment, in seconds. After that, the episode is aborted. null: 1800; "
        "with several ranks, less than grpo.ddp_timeout.",
    )
    evaluate: str | None = Field(
        None, description="Split to evaluate on. Also set grpo.eval_strategy. null: no evaluation."
    )
    processes: int = Field(
        1, ge=1, description="Number of training processes, one for each GPU. With `accelerate launch`, set 1."
    )
    episodes: KeptSettings | None = Field(
        default_factory=KeptSettings, description="The run that stores all episodes of the training. null: none."
    )
    resume: bool = Field(
        True, description="Whether to continue from the last checkpoint in output_dir, if there is one."
    )
    allow_evaluation_tasks: bool = Field(
        False, description="Whether to allow training on tasks that are meant for evaluation only."
    )
    grpo: dict[str, Any] = Field(default_factory=dict, description="Fields of TRL's GRPOConfig.")


def find_collective_timeout(config: TrlConfig) -> float | None:
    """Return the seconds after which ranks that wait for others give up; None for one rank."""
    if max(config.processes, int(os.environ.get("WORLD_SIZE", "1"))) == 1:
        return None
    given = config.grpo.get("ddp_timeout", DDP_TIMEOUT)
    return float(given) if isinstance(given, int | float) else DDP_TIMEOUT  # TRL refuses another value itself


def make_arguments(config: TrlConfig, made: Any) -> Any:
    """Make TRL's configuration. Raises `UserError` for a name or a value that TRL does not accept."""
    kinds = {field.name: str(field.type) for field in dataclasses.fields(made)}
    given = check_fields(config.grpo, list(kinds))
    if config.evaluate is None:
        given |= {name: no for name, no in NO_EVALUATION.items() if name in given}
    for name, value in given.items():
        if isinstance(value, str) and not re.search(r"\b(str|Any|dict|list|Strategy|Type)", kinds[name]):
            kind = re.sub(r"<class '(\w+)'>", r"\1", kinds[name])
            raise UserError(f"grpo.{name} is {value!r}: it takes {kind}")
    try:
        return made(**given)
    except (ValueError, TypeError) as error:  # such as bf16 without a GPU, or a batch without a whole group
        raise UserError(f"grpo: {' '.join(str(error).split())}") from None


def check_arguments(config: TrlConfig) -> None:
    """Check the configuration for a dry run, which may run on a machine without the GPU to train on."""
    from trl import GRPOConfig  # type: ignore[import-not-found,unused-ignore]

    elsewhere: dict[str, Any] = {"bf16": False, "fp16": False, "tf32": None}
    # TRL checks that the batches of all ranks together hold whole groups.
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size"):
        size = config.grpo.get(name, 8)
        elsewhere[name] = size * config.processes if isinstance(size, int) else size
    make_arguments(config.model_copy(update={"grpo": {**config.grpo, **elsewhere}}), GRPOConfig)


def check_fields(given: dict[str, Any], known: list[str]) -> dict[str, Any]:
    """Check the names of TRL's fields. YAML reads `1e-6` as text, which becomes a number; quoted numbers ("64") stay text."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UserError(f"grpo.{name}: GRPOConfig has no such field{hint}")
    if "output_dir" not in given:
        raise UserError("grpo.output_dir is not set: name the folder for checkpoints")
    return {
        name: float(value) if isinstance(value, str) and EXPONENT.fullmatch(value) else value
        for name, value in given.items()
    }


def check_task_count(arguments: Any, tasks: int) -> None:
    """Raise `UserError` if the tasks are too few for a batch: the trainer would stop at step 0 as if it had finished."""
    groups = arguments.generation_batch_size // arguments.num_generations
    if groups > tasks:
        raise UserError(
            f"a step plays {groups} groups, each of another task, and there are {tasks} tasks: raise grpo.num_generations, or lower "
            "grpo.gradient_accumulation_steps, per_device_train_batch_size or the number of processes"
        )
