"""How a trainer is started: what `simia train` prints or runs; and checks that several trainers need."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.config import CommandLineValue, parse_scalar
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import make_backend
from simia.envs.role_models import judges_by_model, simulates_tools, user_kind
from simia.errors import UserError
from simia.llm.backends import open_backend
from simia.llm.endpoint_pool import PoolSettings
from simia.llm.openai_settings import OpenAISettings
from simia.pack import Pack
from simia.task import Task


@dataclass
class Launch:
    """`env` is added to the process's own; `notes` are said before it starts; `prepare` writes what it reads, and is called by a
    start alone: a dry run must not overwrite the files of a run."""

    command: list[str]
    cwd: Path | None = None
    env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    prepare: Callable[[], None] | None = None
    check: list[str] | None = None
    """A command of the trainer's environment that a dry run asks; what it says on stderr is what is wrong."""
    check_at_start: bool = False
    """Whether a start asks it too, for a trainer that would say it late."""
    before: list[str] | None = None
    """Words of a command of simia's own that comes first, in this process, so that stopping it leaves no child behind."""

    def __post_init__(self) -> None:
        # Neither the trainer nor a process that it starts imports from the folder it is started in. Python 3.10 knows no such
        # variable: there, the current folder comes first, as it does for `python -m` everywhere.
        self.env.setdefault("PYTHONSAFEPATH", "1")


def format_setting(value: Any) -> str:
    """A value as `--set` reads it back."""
    return value.text if isinstance(value, CommandLineValue) else json.dumps(value, default=str, separators=(",", ":"))


def explain_misfit(value: Any, known: Any) -> str | None:
    """What a setting takes, if this value is of another type than the trainer's own: sections, switches and numbers. Text of either
    kind may stand for more than it says, as `${a.b}` does, and what is null there says nothing."""
    if value is None or known is None or any(isinstance(one, str) and "${" in one for one in (value, known)):
        return None
    if isinstance(known, dict):
        return None if isinstance(value, dict) else "a section of settings"
    if isinstance(known, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(known, int | float):
        number = parse_scalar(value) if isinstance(value, str) else value
        return None if isinstance(number, int | float) and not isinstance(number, bool) else "a number"
    return None


def check_writable(folder: Path, setting: str) -> None:
    """Raises `UserError` where a trainer could not write its checkpoints, hours later. Makes nothing."""
    there = folder.expanduser().absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise UserError(f"{setting}: {folder} cannot be made, for {there} is a file: name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{setting}: {folder} cannot be written, for {there} is not writable: name another folder")


def check_folder(model: Any, setting: str) -> None:
    """Raises `UserError` for a path of a model where nothing is; a name of the hub is not asked for."""
    if str(model).startswith(("/", ".", "~")) and not Path(str(model)).expanduser().is_dir():
        raise UserError(f"{setting}: there is no folder {model}")


def look_up(config: Any, name: str, default: Any = None) -> Any:
    """A setting of a nested mapping (a dict, or OmegaConf's) by its dotted name."""
    for key in name.split("."):
        if not isinstance(config, Mapping) or key not in config:
            return default
        config = config[key]
    return config


def select_split(pack: Pack, tasks: Sequence[Task], split: str | None, wanted: str = "") -> list[Task]:
    """Those of the tasks that are of this split (None: all). Raises `UserError` where there are none; `wanted`: what for."""
    found = [task for task in tasks if split in (None, task.split)]
    if not found:
        splits = ", ".join(sorted({task.split or "none" for task in tasks})) or "none"
        raise UserError(f"pack {pack.name} has no task of split {split!r}{wanted}; its splits: {splits}")
    return found


def check_stage(stage: EnvironmentConfig, pack: Pack) -> None:
    """Raises `UserError` for what workers would find out when the policy is loaded: a back end or a user that there is not, a key
    that is not exported. Nothing is started, and nothing sent."""
    simulator, user = stage.simulator or stage.llm, user_kind(stage, pack)
    needed = [simulator] if simulates_tools(stage) else []
    needed += [stage.player or simulator] if user == "llm" else []
    needed += [stage.judge or simulator] if judges_by_model(stage) else []

    async def begin() -> None:
        await make_backend(pack, stage).close()
        for settings in needed:
            if isinstance(settings, OpenAISettings | PoolSettings):  # which read keys when they start
                model = open_backend(settings)
                try:
                    await model.start()
                finally:
                    await model.close()

    asyncio.run(begin())
