"""Import Gymnasium's text environments as packs: one tool, `act`, whose schema is the action space, and a task for each seed.

The pack contains a driver (`gymnasium_world`) that runs the installed environment, in a cached virtual environment or with an
interpreter that the user names. The environment never runs outside the sandbox: the importer opens a draft of the pack there to learn
the spaces, the first observations and whether the environment is deterministic. It first tries a process per episode, which is cheaper;
an environment that does not load or play in it gets a sandbox per episode.

The reward is the sum of the environment's rewards, scaled from `low`..`high` to 0..1 and clipped.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from simia import event_loop
from simia.authoring.pack_draft import copy_driver, draft_pack, refuse_existing, write_pack_files
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.pack_requests import list_requested_paths, option_words
from simia.errors import Aborted, UserError
from simia.pack import Pack
from simia.sandbox.limits import WorkerLimits
from simia.task import Task
from simia.terminal import write_count
from simia.trajectory import ToolCall
from simia.venvs import Say, ensure_packages

GYMNASIUM = "gymnasium==1.4.0"
AT_ONCE, COMPARED = 10, 3  # seeds per request to the draft; seeds that are reset a second time
HELD_OUT = 5  # every fifth task is in the test split
SECONDS = 120.0
ANY = {"type": "object", "properties": {}}
NOISE = re.compile(r"^.*?an episode cannot be set up: |^UnsupportedSpace: |^DeprecatedEnv: |^NameNotFound: ")
LOADING = re.compile(r"^.*? cannot be loaded(?: \([^)]*\))?: ")
POLICY = """\
You act in the environment {name} with the tool `act`, one action a call. Its result shows what you see then, the reward of \
this step and the sum so far. Earn as much as you can until it says `terminated` or `truncated`; then the episode is over.
"""


@dataclass(slots=True)
class EnvironmentRequest:
    """The environment to import, and how it is run and rewarded.

    `python`: name of a cached environment, or an interpreter's absolute path. `modules` register the environment when they
    are imported; a `.py` file is copied into the pack. `actions`: names, for an environment that has none.
    """

    id: str
    python: str
    modules: Sequence[str] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    actions: Sequence[str] | None = None
    tasks: int = 20
    low: float = 0.0
    high: float = 1.0
    licence: str = "unknown"

    @property
    def name(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.id.lower()).strip("-") or "environment"


def import_environment(
    env_id: str,
    out: Path | None = None,
    *,
    python: str | None = None,
    pip: Sequence[str] = (),
    say: Say = lambda line: None,
    **more: Any,
) -> Path:
    """Write the pack and return its folder.

    `pip`: packages of the cached virtual environment in addition to Gymnasium; `python`: an interpreter to use instead.
    `more`: see `EnvironmentRequest`. Raises `UserError` for an environment that does not load, or whose actions or
    observations cannot be expressed as text.
    """
    if python is not None:
        where = shutil.which(python)
        if where is None:
            raise UserError(f"{python} is not an executable interpreter: give its path with --python")
        wanted = EnvironmentRequest(env_id, os.path.abspath(where), **more)
    else:
        gym = [] if any(re.match(r"gymnasium\b", each) for each in pip) else [GYMNASIUM]
        made = ensure_packages("gymnasium", pip=[*gym, *pip], say=say)
        wanted = EnvironmentRequest(env_id, made.parent.parent.name, **more)
    check_request(wanted)
    out = out or Path(wanted.name)
    refuse_existing(out)
    with draft_pack(out) as draft:
        found, how = probe_environment(draft, wanted, say)
        write_gymnasium_pack(draft, wanted, found, how)
    say(f"{out}: {write_count(wanted.tasks, 'task')} of {env_id}, isolation: {how['isolation']}")
    if options := option_words(Pack.load(out.absolute())):
        say(f"open it with {options}: a pack grants itself nothing")
    return out


def check_request(wanted: EnvironmentRequest) -> None:
    if wanted.low >= wanted.high:
        raise UserError(f"the lowest reward, {wanted.low:g}, must be less than the highest, {wanted.high:g}")
    if wanted.tasks < 1:
        raise UserError("a pack needs a task: give --tasks 1 or more")
    for module in wanted.modules:
        path = Path(module)
        if path.suffix == ".py" and not (path.is_file() and path.stem.isidentifier()):
            raise UserError(f"{module} is not a Python file with an importable name")
        if path.suffix != ".py" and not all(step.isidentifier() for step in module.split(".")):
            raise UserError(f"{module!r} is not a module: --import takes its name, or a .py file")


# -- probe --------------------------------------------------------------------------------------------------------


def probe_environment(draft: Path, wanted: EnvironmentRequest, say: Say) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the driver's description with the first observations of all seeds, and how the environment is run."""
    counts = [(first, min(AT_ONCE, wanted.tasks - first)) for first in range(0, wanted.tasks, AT_ONCE)]
    for isolation in ("process", "sandbox"):
        how = {"isolation": isolation, "repeatable": True}
        write_driver(draft, wanted, how, probe=True)
        try:
            calls = [(first, "describe", {"first": first, "count": count}) for first, count in counts]
            parts = event_loop.run_command(play_draft(draft, calls))
            break
        except ProbeError as error:
            if isolation == "sandbox":
                raise UserError(f"{wanted.id}: {error}") from None
            say(f"{wanted.id} needs a sandbox for each episode ({error})")
    if unfit := parts[-1].get("unfit"):
        raise UserError(f"{wanted.id} cannot be played by text: {unfit}")
    starts = [start for part in parts for start in part["starts"]]
    looks: list[tuple[int, str, dict[str, Any]]] = [(seed, "look", {}) for seed in range(min(COMPARED, wanted.tasks))]
    again = event_loop.run_command(play_draft(draft, looks))
    if again != starts[: len(again)]:
        how["repeatable"] = False
        say(f"{wanted.id} is not deterministic: one seed gives different episodes; repeatable: false")
    return {**parts[-1], "starts": starts}, how


class ProbeError(Exception):
    """The environment does not load or play; the message is one line."""


async def play_draft(draft: Path, calls: Iterable[tuple[int, str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Make calls (seed, tool, arguments) in a new sandbox, one episode each, up to the first call that shows the environment to be unfit."""
    pack = Pack.load(draft)
    # The user named the interpreter for this import, so it is granted.
    read = list(list_requested_paths(pack.executable)) if pack.executable else []
    backend = ExecutableBackend(pack, limits=WorkerLimits(wall=SECONDS, start=SECONDS), read=read)
    found: list[dict[str, Any]] = []
    try:
        for seed, tool, arguments in calls:
            found.append(await call_draft(backend, seed, tool, arguments))
            if "unfit" in found[-1]:
                break
    finally:
        await backend.close()
    return found


async def call_draft(backend: ExecutableBackend, seed: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        world = await backend.open(Task(id=str(seed), initial={"seed": seed}))
        try:
            [result] = await world.call([ToolCall(id="1", name=tool, arguments=arguments)])
        finally:
            await world.close()
    except Aborted as error:
        raise ProbeError(shorten_error(error.detail or str(error))) from None
    except UserError as error:
        if "no sandbox" in str(error) or "simia doctor" in str(error):
            raise
        raise ProbeError(shorten_error(LOADING.sub("", str(error)))) from None
    if result.error is not None or not isinstance(result.data, dict):
        raise ProbeError(shorten_error(result.detail or result.content))
    return result.data


def shorten_error(words: str) -> str:
    """Return one line, without colours and without names of exceptions that do not help a user."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", " ".join(words.split()))
    return NOISE.sub("", plain)[:400]


# -- write --------------------------------------------------------------------------------------------------------


def write_driver(
    folder: Path, wanted: EnvironmentRequest, how: dict[str, Any], *, probe: bool = False, **facts: Any
) -> None:
    """Write the code and its settings; with `probe` also a draft of the pack that describes the environment."""
    for module in wanted.modules:
        if module.endswith(".py"):
            (folder / "modules").mkdir(exist_ok=True)
            shutil.copy(module, folder / "modules")
    copy_driver("gymnasium_world.py", folder / "tools.py")
    copy_driver("gymnasium_text.py", folder / "gymnasium_text.py")
    modules = [Path(module).stem if module.endswith(".py") else module for module in wanted.modules]
    actions = list(wanted.actions) if wanted.actions else None
    given = {"id": wanted.id, "kwargs": wanted.kwargs, "modules": modules, "actions": actions, **how, **facts}
    files: dict[str, Any] = {"gymnasium.json": {**given, **({"probe": True} if probe else {})}}
    if probe:
        tools = [{"name": name, "parameters": ANY} for name in ("act", "describe", "look")]
        files |= {"tools.json": tools, "pack.yaml": make_pack_head(wanted, how)}
    write_pack_files(folder, files)


def make_pack_head(wanted: EnvironmentRequest, how: dict[str, Any]) -> dict[str, Any]:
    executable = {
        "code": "tools.py", "object": "GymnasiumWorld", "isolation": how["isolation"], "python": wanted.python,
        **({} if how["repeatable"] else {"repeatable": False}),
    }  # fmt: skip
    return {"format": 1, "name": wanted.name, "tools": "tools.json", "executable": executable}


def write_gymnasium_pack(folder: Path, wanted: EnvironmentRequest, found: dict[str, Any], how: dict[str, Any]) -> None:
    write_driver(folder, wanted, how, packages=found["packages"])
    description = f"{wanted.id}, an environment with Gymnasium's methods, run by its own code."
    limit = f" It ends after {found['limit']} actions at the latest." if found["limit"] else ""
    about = "Take one action; the result is what is seen then, and the reward."
    about += limit or " The episode ends when it says terminated or truncated."
    action = {**found["action"], "description": "What to do"}
    schema = {"type": "object", "properties": {"action": action}, "required": ["action"], "additionalProperties": False}
    policy = POLICY.format(name=wanted.id)
    if found["about"]:
        policy += f"\nWhat its author says of it:\n\n{found['about']}\n"
    rows = [make_seed_task(wanted, seed, start) for seed, start in enumerate(found["starts"])]
    more = {
        "description": description + limit,
        "licence": wanted.licence,
        "policy": "policy.md",
        "tasks": "tasks.jsonl",
    }
    tools = [{"name": "act", "description": about, "parameters": schema}]
    files = {"policy.md": policy, "tools.json": tools, "tasks.jsonl": rows}
    write_pack_files(folder, {**files, "pack.yaml": make_pack_head(wanted, how) | more})


def make_seed_task(wanted: EnvironmentRequest, seed: int, start: dict[str, Any]) -> dict[str, Any]:
    seen = start["observation"]
    shown = [seen if isinstance(seen, str) else f"Observation: {orjson.dumps(seen).decode()}"]
    shown += [start["screen"]] if start.get("screen") else []
    row = {
        "id": f"{wanted.name}-{seed}",
        "split": "test" if seed % HELD_OUT == HELD_OUT - 1 else "train",
        "instruction": "\n\n".join([f"Play {wanted.id} with the tool act, to its end.", *shown]),
        "initial": {"seed": seed},
        "reward": {"parts": [{"kind": "value", "path": "total_reward", "low": wanted.low, "high": wanted.high}]},
        "tags": ["gymnasium"],
    }
    Task.model_validate(row)
    return row
