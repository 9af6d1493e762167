"""Train in one environment and validate in another: `val_environment` beside a trainer's `stage`, with the same fields.

    stage: {pack: customer_service, backend: simulated, reward: oracle, llm: {kind: openai, model: o4-mini}}
    val_environment: {backend: executable, reward: rules}

`val_environment` needs only the fields that differ. With another pack, the selection of tasks (`split`, `tasks`, `limit`, `difficulty`) does
not carry over from `stage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from simia.config import Config, merge_sections
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import load_tasks
from simia.errors import UserError
from simia.pack import Pack
from simia.task import Task
from simia.trainers.launch import check_stage

OF_PACK = ("pack", "packs", "split", "tasks", "limit", "difficulty")
"""Settings that do not carry over to another pack."""


class StageSettings(Config):
    """The environments for training and for validation."""

    stage: EnvironmentConfig = Field(description="The environment: pack, back end, models and judge.")
    val_environment: EnvironmentConfig | None = Field(
        None,
        description="The environment for validation; only the settings that differ from `stage`. null: the same environment.",
    )

    @model_validator(mode="before")
    @classmethod
    def complete_val_environment(cls, data: Any) -> Any:
        """Fill in the fields that `val_environment` leaves out from `stage`."""
        if not isinstance(data, dict):
            return data
        stage, changes = (to_plain(data.get(name)) for name in ("stage", "val_environment"))
        if not isinstance(changes, Mapping):
            return data
        return {**data, "val_environment": derive_environment(stage if isinstance(stage, Mapping) else {}, changes)}

    @property
    def validation_place(self) -> str:
        """Name of the section with the environment to validate in."""
        return "stage" if self.val_environment is None else "val_environment"

    def for_validation(self) -> Self:
        """Return the settings with the environment to validate in as `stage`."""
        return self if self.val_environment is None else self.model_copy(update={"stage": self.val_environment})


def to_plain(value: Any) -> Any:
    """Return a section as a config file would hold it."""
    return value.model_dump(mode="json", exclude_unset=True) if isinstance(value, EnvironmentConfig) else value


def derive_environment(stage: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `stage` with the changes. Another back end drops the old one's settings, and another pack the selection of
    tasks. A named reward drops the step rewards and, unless it is `function`, the reward function."""
    left_out: set[str] = set()
    if any(changes[name] != stage.get(name) for name in ("pack", "packs") if name in changes):
        left_out.update(OF_PACK)
    if "backend" in changes:
        left_out.add("backend")  # back ends by tool are replaced as a whole
        if changes["backend"] != stage.get("backend", EnvironmentConfig.model_fields["backend"].default):
            left_out.add("backend_settings")
    if "reward" in changes:
        left_out.update({"step_rewards"} if changes["reward"] == "function" else {"step_rewards", "reward_function"})
    return merge_sections({name: value for name, value in stage.items() if name not in left_out}, dict(changes))


def check_val_environment(
    settings: StageSettings, split: str | None = None, later: list[str] | None = None, section: str = ""
) -> tuple[Pack, list[Task]]:
    """Load the tasks to validate on, and check their environment with `check_stage`, like that of training. Raises `UserError`.

    `section`: prefix of the name `val_environment` in the config, such as `simia.`.
    """
    stage = settings.for_validation().stage.with_split(split)
    try:
        pack, tasks = load_tasks(stage)
        if settings.val_environment is not None:
            check_stage(stage, pack, f"{section}val_environment", later)
    except UserError as error:
        if f"{section}val_environment." in str(error):
            raise
        raise UserError(f"{'' if settings.val_environment is None else 'val_environment: '}{error}") from None
    return pack, tasks
