"""Settings of the executable back end."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from simia.config import Config
from simia.sandbox.limits import WorkerLimits


class ExecutableSettings(Config):
    """`backend_settings` of the executable back end."""

    isolation: Literal["shared", "process", "sandbox"] | None = Field(
        None,
        description="Isolation of episodes. shared: many episodes in one process. process: one process for each. sandbox: one sandbox "
        "for each. null: as the pack says, but process instead of shared for packs that are not bundled with simia.",
    )
    workers: int | None = Field(
        None,
        ge=1,
        description="Number of processes for episodes with `isolation: shared`. null: one less than the number of CPUs, at most 8.",
    )
    unsafe: bool = Field(False, description="Run the pack's code without a sandbox. Only for code that you trust.")
    network: bool = Field(
        False, description="Allow the pack's code to use the network. Only for packs with `isolation: sandbox`."
    )
    variables: list[str] = Field(
        default_factory=list,
        description="Environment variables that the pack's code may read. Only for packs with `isolation: sandbox`.",
    )
    read: list[str] = Field(
        default_factory=list, description="Files and folders of this machine that the pack's code may read."
    )
    limits: WorkerLimits | None = Field(
        None, description="Limits of the pack's code: time, memory, files. null: the defaults of WorkerLimits."
    )
