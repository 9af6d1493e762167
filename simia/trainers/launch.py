"""The command that starts a trainer, and checks of settings that several trainers share."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from simia.config import CommandLineValue, assign_setting, drop_backend_settings, parse_scalar
from simia.envs.config import EnvironmentConfig
from simia.envs.opening import BACKEND_FIELDS, BACKEND_SETTINGS, list_packs, load_tasks, make_backend
from simia.envs.remote.remote_pack import plays_remotely
from simia.envs.role_models import RoleModels, judges_by_model, simulates_tools, user_kind
from simia.envs.scoring import check_reward_settings
from simia.envs.worlds.executable import check_code
from simia.errors import MissingKeyError, UserError
from simia.json_values import is_number
from simia.llm.backends import open_backend
from simia.llm.endpoint_pool import PoolSettings
from simia.llm.openai_settings import OpenAISettings
from simia.pack import Pack
from simia.task import Task
from simia.trainers.episode_plan import EpisodePlan

T = TypeVar("T")


@dataclass
class Launch:
    """The command that `simia train` prints or runs. `env` adds to the process's own variables; `notes` are printed before the start.

    `prepare` writes what the trainer reads. Only a start calls it: a dry run must not overwrite the files of a run.
    """

    command: list[str]
    cwd: Path | None = None
    env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    prepare: Callable[[], None] | None = None
    check: list[str] | None = None
    """A command in the trainer's environment that checks the run; its last line on stderr is the problem."""
    check_at_start: bool = False
    """Whether `check` also runs before a real start, since the trainer itself would report the problem late."""
    plan: Sequence[EpisodePlan] = ()
    """The episodes that the run plays, which a dry run prices."""
    before: list[str] | None = None
    """Arguments of a simia command that runs first, in this process, so that stopping it leaves no child process."""

    def __post_init__(self) -> None:
        # Neither the trainer nor its child processes import from the working directory. Python 3.10 ignores the variable: there
        # the working directory comes first, as for any `python -m`.
        self.env.setdefault("PYTHONSAFEPATH", "1")


def list_extras(*stages: EnvironmentConfig) -> list[str]:
    """Return the extras of simia that the models of these stages need in the trainer's environment."""
    models = [each for stage in stages for each in RoleModels(stage, load_tasks(stage)[0]).list_models().values()]
    return ["embedded"] if any(each.kind == "embedded" for each in models) else []


def format_setting(value: Any) -> str:
    """Write a value in the form that `--set` parses."""
    return value.text if isinstance(value, CommandLineValue) else json.dumps(value, default=str, separators=(",", ":"))


def explain_misfit(value: Any, known: Any) -> str | None:
    """Return the kind of value that a setting takes (a section, true or false, a number), if the type of this value differs; else None.

    Text with a reference such as `${a.b}` is not compared, nor is anything with null.
    """
    if value is None or known is None or any(isinstance(one, str) and "${" in one for one in (value, known)):
        return None
    if isinstance(known, dict):
        return None if isinstance(value, dict) else "a section of settings"
    if isinstance(known, bool):
        return None if isinstance(value, bool) else "true or false"
    if isinstance(known, int | float):
        number = parse_scalar(value) if isinstance(value, str) else value
        return None if is_number(number) else "a number"
    return None


def assign_settings(data: dict[str, Any], changes: Mapping[str, Any], *, added: bool = False) -> None:
    """Set values by dotted name: those whose name begins with `+` if `added`, else the others. A change of the back end drops its old settings."""
    if not added:
        drop_backend_settings(data, changes)
    for name, value in changes.items():
        if name.startswith("+") == added:
            assign_setting(data, name.removeprefix("+").split("."), value)


def check_settings(
    values: Mapping[str, Any], known: Mapping[str, Any], trainer: str, *, free: Sequence[str] = (), at: str = ""
) -> dict[str, Any]:
    """Check the names and types of settings, since the trainer would ignore unknown names. Returns the settings.

    `known`: the trainer's settings; an empty section allows any name. `free`: names of sections that are not checked. A setting `+name`
    is known only to the trainer's code: it is not checked, and returned without the `+`. Raises `UserError`.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if str(name).startswith("+"):
            found[str(name)[1:]] = value
            continue
        if known and name not in known and name not in free:
            near = difflib.get_close_matches(str(name), list(known), n=1)
            hint = f"did you mean {at}{near[0]}?" if near else f"there are: {', '.join(sorted(known)[:20])}"
            raise UserError(f"{trainer} has no setting {at}{name}: {hint}; write +{name} if only its code knows it")
        own: Any = known.get(name)
        if (wanted := explain_misfit(value, own)) is not None:
            raise UserError(f"{at}{name} is {value!r}: {trainer} takes {wanted}")
        nested = isinstance(value, Mapping) and isinstance(own, Mapping) and name not in free
        found[name] = check_settings(value, own, trainer, free=free, at=f"{at}{name}.") if nested else value
    return found


def find_or_note(find: Callable[[], T], notes: list[str], *, needed: bool) -> T | None:
    """Return the result of `find`. If it fails and the thing is not `needed`, as in a dry run, add a note and return None; else raise `UserError`."""
    try:
        return find()
    except UserError as error:
        if needed:
            raise
        notes.append(f"the trainer's own settings were not checked, and there is no command yet: {error}")
        return None


def check_writable(folder: Path, setting: str) -> None:
    """Raise `UserError` now if a trainer could not write into the folder later. Creates nothing."""
    there = folder.expanduser().absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise UserError(f"{setting}: {folder} cannot be created, because {there} is a file: name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"{setting}: {folder} cannot be written, because {there} is not writable: name another folder")


def check_folder(model: Any, setting: str, later: list[str] | None = None) -> list[str]:
    """Raise `UserError` for a model's path that does not exist; names on the Hub are not looked up. `later`: as for `check_stage`.

    Returns a warning for an ambiguous name: one on the Hub whose first part is also a folder here.
    """
    name = str(model)
    first, *rest = Path(name).parts or ("",)
    if Path(name).expanduser().is_dir():
        return []
    if name.startswith(("/", ".", "~")) or (first == "checkpoints" and rest):
        line = f"{setting}: there is no folder {model}"
        if later is None:
            raise UserError(line)
        later.append(f"before the run: {line}: train it, or name another model")
    elif rest and Path(first).is_dir():
        return [f"warning: {setting}: {first} has no folder {'/'.join(rest)}, so {model} is looked up on the Hub"]
    return []


def look_up(config: Any, name: str, default: Any = None) -> Any:
    """Return a setting of a nested mapping (a dict, or OmegaConf's) by its dotted name."""
    for key in name.split("."):
        if not isinstance(config, Mapping) or key not in config:
            return default
        config = config[key]
    return config


def look_up_number(config: Any, name: str, default: int | None = None) -> int:
    """Return a setting as a whole number, looked up as by `look_up`. Raises `UserError` with its name for another value."""
    value = look_up(config, name, default)
    number = parse_scalar(value) if isinstance(value, str) else value
    if not is_number(number) or number % 1:
        raise UserError(f"{name} is {format_setting(value)}: set it to a whole number")
    return int(number)


def select_split(pack: Pack, tasks: Sequence[Task], split: str | None, wanted: str = "") -> list[Task]:
    """Return the tasks of a split (None: all). Raises `UserError` if there are none; `wanted` is their use, for the message."""
    found = [task for task in tasks if split in (None, task.split)]
    if not found:
        splits = ", ".join(sorted({task.split or "none" for task in tasks})) or "none"
        raise UserError(f"pack {pack.name} has no task of split {split!r}{wanted}; its splits: {splits}")
    return found


def name_backend(stage: EnvironmentConfig) -> str:
    """Name the back end that plays a stage: `remote` for servers, `mixed` for several back ends in one pack."""
    if plays_remotely(stage):
        return "remote"
    return stage.backend if isinstance(stage.backend, str) else "mixed"


def check_stage(stage: EnvironmentConfig, pack: Pack, where: str = "stage", later: list[str] | None = None) -> None:
    """Raise `UserError` for errors that workers would report only after the policy is loaded: an unknown back end or user, a missing key.

    Nothing is started, and no request is sent. `where`: the name of the stage's section, for messages. `later`: for a dry
    run, a list that gets a line for a missing key in place of the error.
    """
    own = BACKEND_FIELDS.get(stage.backend) if isinstance(stage.backend, str) else None
    for name in stage.backend_settings:
        if own is not None and name not in own and name in BACKEND_SETTINGS:
            place = f"{where}.backend_settings".lstrip(".")
            raise UserError(
                f"{place}.{name} is not a setting of the {stage.backend} back end: remove it, or set {place}={{}}"
            )
    check_reward_settings(stage, pack.tasks)
    simulator, user = stage.simulator or stage.llm, user_kind(stage, pack, f"{where}." if where else "")
    needed = [simulator] if simulates_tools(stage) else []
    needed += [stage.player or simulator] if user == "llm" else []
    needed += [stage.judge or simulator] if judges_by_model(stage) else []

    async def begin() -> None:
        for settings, member in list_packs(stage, pack):
            await make_backend(member, settings).close()
        for llm in needed:
            if isinstance(llm, OpenAISettings | PoolSettings):  # these read keys when they start
                model = open_backend(llm)
                try:
                    await model.start()
                except MissingKeyError as error:
                    if later is None:
                        raise
                    if (line := f"before the run: {error}") not in later:
                        later.append(line)
                finally:
                    await model.close()

    for settings, member in list_packs(stage, pack):
        if settings.backend == "executable" and not plays_remotely(settings):
            check_code(member, f"{where}." if where else "")
    asyncio.run(begin())
