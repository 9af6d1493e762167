"""A reward of the user's own: a Python function that the config names, as `my_rewards.py:concise` or `my_package.rewards:concise`.

    def concise(episode: FinishedEpisode) -> float:
        turns = sum(message.role == "assistant" for message in episode.trajectory.messages)
        return episode.reward.value * (1.0 if turns <= 6 else 0.5)

It is trusted code and runs in simia's own process, so only the user's config names it and never a pack: code of a pack runs in the sandbox.
An error in it is reported in one line with its name, and the reward is None, never 0.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import logging
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any

from simia.errors import Code, UserError
from simia.reward import Reward
from simia.search_path import locate
from simia.task import Task
from simia.terminal import write_count
from simia.trajectory import Trajectory, digest

log = logging.getLogger(__name__)
FORM = "write it as FILE.py:FUNCTION or MODULE:FUNCTION"
RESULT = "a number, None, or a dict with value and, if wanted, parts, steps and rationale"
FIELDS = ("value", "parts", "steps", "rationale")
LONGEST = 300  # characters of an error's text


@dataclass(frozen=True, slots=True)
class FinishedEpisode:
    """The argument of a reward function."""

    trajectory: Trajectory
    """Messages, ending and evidence, such as the changes of the state."""
    task: Task
    """The task that was played, with its reference solution."""
    reward: Reward | None = None
    """The reward by the task's rules or by the judge; None with `reward: function`."""
    state: Any = None
    """The final state as JSON; None where the world has none, and for a stored episode."""


@dataclass(slots=True)
class RewardFunction:
    """A loaded function. Calls of a plain function run one after the other in a thread, those of a coroutine function in the event loop."""

    name: str
    function: Callable[[FinishedEpisode], Any]
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "reward-function"), repr=False)
    _reported: set[str] = field(default_factory=set)

    async def score(self, episode: FinishedEpisode) -> Reward:
        """Call the function. Whatever it raises, or a result that is no reward, gives a reward of None."""
        try:
            if inspect.iscoroutinefunction(self.function):
                result = await self.function(episode)
            else:
                result = await asyncio.get_running_loop().run_in_executor(self._thread, self.function, episode)
            return convert_returned_value(result, episode)
        except Exception as error:
            why = f"reward_function {self.name}: {describe_user_error(error, find_source(self.function))}"
        if why not in self._reported:
            self._reported.add(why)
            log.warning("%s: the episode has no reward", why)
        return Reward(error=Code.REWARD_FUNCTION, rationale=why)


def describe_user_error(error: BaseException, file: str = "") -> str:
    """Return an error's type, message and line number in one line. `file`: the user's file, in which the line is looked up."""
    if isinstance(error, ResultError):
        return str(error)
    words = " ".join(str(error).split())[:LONGEST]
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or frames
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}{': ' if words else ''}{words}{place}"


def find_source(function: Callable[..., Any]) -> str:
    """Return the file that a function was written in; empty where that is not known."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return str(code.co_filename) if code is not None else ""


class ResultError(ValueError):
    """A reward function returned something that is not a reward."""


def convert_returned_value(result: Any, episode: FinishedEpisode) -> Reward:
    """Convert what a reward function returned. Raises `ResultError`."""
    if isinstance(result, Reward):
        check_steps(result.steps, episode)
        return result
    given = dict(result) if isinstance(result, Mapping) else {"value": result}
    if unknown := [str(name) for name in given if name not in FIELDS]:
        raise ResultError(f"returned the key {unknown[0]!r}; return {RESULT}")
    value, parts, steps = given.get("value"), given.get("parts") or {}, given.get("steps") or []
    if not isinstance(parts, Mapping) or not isinstance(steps, list | tuple):
        raise ResultError(f"returned parts or steps of the wrong type; return {RESULT}")
    before = episode.reward or Reward()
    if value is None:
        return Reward(error=Code.REWARD_FUNCTION, rationale=str(given.get("rationale") or "the function returned None"))
    found = require_number(value)
    numbers = [require_number(each) for each in steps]
    check_steps(numbers, episode)
    return Reward(
        value=found,
        parts={**before.parts, **{str(name): require_number(each) for name, each in parts.items()}, "function": found},
        steps=numbers or before.steps,
        rationale=str(given.get("rationale") or before.rationale),
    )


def require_number(value: Any) -> float:
    if not isinstance(value, Real) or not math.isfinite(value):
        raise ResultError(f"returned {value!r:.80}; return {RESULT}")
    return float(value)


def check_steps(steps: list[float], episode: FinishedEpisode) -> None:
    """Raise `ResultError` unless there is one number for each message of the agent, or none at all."""
    turns = sum(message.role == "assistant" for message in episode.trajectory.messages)
    if steps and len(steps) != turns:
        raise ResultError(
            f"returned {write_count(len(steps), 'step')}; the episode has {write_count(turns, 'message')} of the agent"
        )


# -- finding the function -----------------------------------------------------------------------------------------


def load_reward_function(name: str) -> RewardFunction:
    """Import the function that a config names. Raises `UserError` in one line."""
    return RewardFunction(name, load_function(name, "reward_function"))


def load_function(name: str, setting: str) -> Callable[..., Any]:
    """Import the function that a setting names. Raises `UserError` in one line, which begins with the setting."""
    place, attribute = split_name(name, setting)
    try:
        module = (
            import_file(find_file(name, place, setting)) if place.endswith(".py") else importlib.import_module(place)
        )
        found = getattr(module, attribute, None)
    except UserError:
        raise
    except ModuleNotFoundError as error:
        own = error.name is not None and f"{place}.".startswith(f"{error.name}.")
        hint = f"; if it is a file, name it as ./{place}.py:{attribute}" if own else ""
        raise UserError(f"{setting} {name}: {error}{hint}") from None
    except (Exception, SystemExit) as error:
        file = str(find_file(name, place, setting).resolve()) if place.endswith(".py") else ""
        raise UserError(f"{setting} {name} cannot be imported: {describe_user_error(error, file)}") from None
    if not callable(found):
        raise UserError(f"{setting} {name}: {place} has no function {attribute!r}")
    function: Callable[..., Any] = found
    return function


def check_reward_function(name: str) -> None:
    """Check that a file has the function, without importing it, since the trainer's own environment will run it. Raises `UserError`."""
    place, attribute = split_name(name)
    if not place.endswith(".py"):
        return
    try:
        tree = ast.parse(find_file(name, place).read_bytes())
    except (SyntaxError, ValueError) as error:
        raise UserError(f"reward_function {name} is not Python: {' '.join(str(error).split())}") from None
    stores = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    imported = {
        name.asname or name.name for node in tree.body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    if attribute not in defined | imported | set(stores):
        raise UserError(f"reward_function {name}: {place} has no function {attribute!r}")


def make_absolute(name: str) -> str:
    """Return the name with the file's whole path, for a process that runs in another folder."""
    place, attribute = split_name(name)
    return name if not place.endswith(".py") else f"{find_file(name, place)}:{attribute}"


def split_name(name: str, setting: str = "reward_function") -> tuple[str, str]:
    """Split a name into the file or module and the function. Raises `UserError`."""
    place, _, attribute = name.rpartition(":")
    dotted = all(part.isidentifier() for part in place.split("."))
    if not attribute.isidentifier() or not (dotted or place.endswith(".py")):
        raise UserError(f"{setting} {name!r}: {FORM}")
    return place, attribute


def find_file(name: str, place: str, setting: str = "reward_function") -> Path:
    """Find the file of a name. Raises `UserError` for a missing file, and for one in a pack or a run, which may be untrusted."""
    path = locate(place).absolute()
    if not path.is_file():
        raise UserError(f"{setting} {name}: there is no file {path}")
    for mark, kind in (("pack.yaml", "pack, whose code runs in the sandbox only"), ("ledger.db", "run's folder")):
        if any((folder / mark).exists() for folder in (*path.parents, *path.resolve().parents)):
            raise UserError(f"{setting} {name}: the file lies in a {kind}; copy it elsewhere")
    return path


def import_file(path: Path) -> ModuleType:
    """Import a file as a module, once for each content of it."""
    source, resolved = path.read_bytes(), str(path.resolve())
    key = f"simia_reward_{digest([resolved, source.hex()])[:12]}"
    if key in sys.modules:
        return sys.modules[key]
    module = ModuleType(key)
    module.__file__ = resolved
    sys.modules[key] = module  # dataclasses look their module up
    try:
        exec(compile(source, resolved, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[key]
        raise
    return module
