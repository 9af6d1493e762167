"""Episodes in one worker process: transactional calls, rollback, export and checks.

A call that raises does not change the state: the last checkpoint is restored and the writes since then are repeated. The first checkpoint
is the start of the episode; others follow every few writes (the driver defines how many), less often if the state is large. So reads cost
nothing extra, writes little, and a refusal costs one copy. Idle episodes are frozen as compressed JSON.
"""

from __future__ import annotations

import types
import zlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from simia.sandbox.inside.drivers import FileDriver, StateDriver, make_driver
from simia.sandbox.inside.frames import MOST_LEVELS, nests_deeper, pack_json, unpack_json
from simia.sandbox.inside.loading import LoadedPack, load_module
from simia.state import apply_changes, diff_states

AWAKE = 8  # latest episodes that are never frozen: otherwise a few large ones would be frozen and thawed at every step
SWOLLEN = 10  # bytes in memory for each byte of a state's JSON
OK, REFUSED, FAILED, ENDED = 0, 1, 2, 3
WORDS = 2000  # characters of an error that are sent


class ToolRefusal(Exception):  # noqa: N818 - the tool's own word
    """A refusal, in words for the agent."""


class OutOfMemory(Exception):  # noqa: N818 - a state of the process
    """The process has reached its memory limit: it must end, and its episodes with it."""


class WorkerSession:
    """One episode: its driver, and the writes since its last checkpoint."""

    def __init__(self, loaded: LoadedPack, isolated: bool, spec: dict[str, Any]) -> None:
        self.driver = make_driver(loaded, isolated)
        self.driver.reset(spec.get("initial") or {}, spec.get("seed", 0))
        if "state" in spec:
            self.driver.restore(spec["state"])
        self._spec, self._tools = spec, loaded.tools
        self._checkpoint: bytes | None = None
        self._since: list[tuple[str, str, bytes, int]] = []
        self._every = self.driver.every
        self._rolls_back = getattr(loaded.object, "rolls_back", True) is not False
        self.frozen: bytes | None = None
        self.size = 0

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int, most: int) -> list[Any]:
        """Return [status, value]: the result as JSON, or the text of the refusal or the fault."""
        driver = self.driver
        writes = self._rolls_back and self._tools.get(by, {}).get(name, False)
        kept = pack_json(arguments) if writes else b""  # the tool may change its arguments
        try:
            if name not in self._tools.get(by, {}):
                raise ToolRefusal(f"there is no tool {name!r}")
            value = driver.call(by, name, arguments, index)
            body = pack_json(value)
            if len(body) > most:
                raise ToolRefusal(f"the result is {len(body):,} bytes, more than {most:,} that a call may return")
            if body.count(b"[") + body.count(b"{") > MOST_LEVELS and nests_deeper(value, MOST_LEVELS):
                raise ToolRefusal(f"the result nests deeper than {MOST_LEVELS} levels")
            # If the state cannot be written as JSON, the call that finds this fails.
            if writes and len(self._since) >= self._every:
                self._checkpoint, self._since = driver.freeze(), []
                self._every = driver.every + len(self._checkpoint) // driver.bytes_a_write
                return [ENDED if driver.ended else OK, value]
        except MemoryError:
            raise OutOfMemory from None
        except BaseException as error:  # a tool may raise anything, SystemExit among it
            if writes or isinstance(driver, StateDriver):  # a tool that is marked as reading may have changed the state
                self._roll_back()
            if isinstance(error, ToolRefusal) or is_declared_refusal(error):
                return [REFUSED, read_error_text(error)]
            return [FAILED, describe_error(error)]
        if writes:
            self._since.append((by, name, kept, index))
        return [ENDED if driver.ended else OK, value]

    def _roll_back(self) -> None:
        driver = self.driver
        if self._checkpoint is not None:
            driver.thaw(self._checkpoint)
        elif "state" in self._spec:
            driver.restore(self._spec["state"])
        else:
            driver.begin_again()
        for by, name, arguments, index in self._since:
            driver.call(by, name, unpack_json(arguments), index)

    def restore(self, state: Any) -> list[dict[str, Any]]:
        """Continue from another state. Returns the changes from the start of the episode to it."""
        self.driver.restore(state)
        self._spec = {**self._spec, "state": state}
        self._checkpoint, self._since = None, []
        return self.changes()

    def changes(self) -> list[dict[str, Any]]:
        """Return the changes from the start of the episode to now."""
        return diff_states(self.driver.beginning(), self.driver.dump())

    def freeze(self) -> None:
        body = self.driver.freeze()
        self.size = len(body)
        self.frozen = zlib.compress(body, 1)
        if isinstance(self.driver, StateDriver):
            self.driver.tools.state = None

    def thaw(self) -> None:
        if self.frozen is not None:
            self.driver.thaw(zlib.decompress(self.frozen))
            self.frozen = None


class WorkerSessions:
    """All episodes of this process. The idle ones are frozen once the live ones exceed `live` bytes."""

    def __init__(self, loaded: LoadedPack, isolated: bool, live: int) -> None:
        self._loaded, self._isolated, self._live = loaded, isolated, live
        self._all: dict[int, WorkerSession] = {}
        self._awake: OrderedDict[int, int] = OrderedDict()  # id → estimated bytes, the least recently used first
        self._size = 0
        self._estimate = SWOLLEN * len(pack_json(loaded.base)) + 4096

    def open(self, number: int, spec: dict[str, Any]) -> None:
        self._all[number] = WorkerSession(self._loaded, self._isolated, spec)
        self._touch(number)

    def get(self, number: int) -> WorkerSession:
        session = self._all[number]
        if session.frozen is not None:
            session.thaw()
        self._touch(number)
        return session

    def close(self, number: int) -> None:
        self._all.pop(number, None)
        self._size -= self._awake.pop(number, 0)

    def _touch(self, number: int) -> None:
        if self._isolated or not self._loaded.by_convention:
            return
        if number in self._awake:
            self._awake.move_to_end(number)
            return
        size = self._all[number].size * SWOLLEN or self._estimate
        self._awake[number] = size
        self._size += size
        while self._size > self._live and len(self._awake) > AWAKE:
            idle, freed = self._awake.popitem(last=False)
            self._size -= freed
            self._all[idle].freeze()


def describe_error(error: BaseException, what: str = "") -> str:
    return f"{type(error).__name__}: {what}{read_error_text(error)}"


def read_error_text(error: BaseException) -> str:
    """Return an error's text as it can be sent; its `__str__` is the pack's code too."""
    try:
        return str(error)[:WORDS].encode(errors="replace").decode()
    except Exception:
        return "(an error whose words cannot be had)"


def is_declared_refusal(error: BaseException) -> bool:
    """Check whether an exception is a refusal by the tool: `ToolError`, or an exception that a foreign world marks as one."""
    return getattr(type(error), "__simia_refusal__", False) is True


def run_checks(loaded: LoadedPack, spec: dict[str, Any]) -> dict[str, Any]:
    """Run the items of a checklist on one state, each on its own copy. Returns item → true, false, or "error: …"."""
    driver = WorkerSession(loaded, True, {"initial": spec.get("initial"), "seed": spec.get("seed", 0)}).driver
    initial = driver.beginning()
    final = apply_changes(initial, spec["changes"])

    def run_function(load: Callable[[], Any]) -> bool:
        return bool(load()(unpack_json(pack_json(final)), unpack_json(pack_json(initial))))

    def run_call(call: dict[str, Any]) -> Any:
        value = driver.check(call["name"], call.get("by", "agent"), call.get("arguments", {}))
        return value == call.get("expect", True)

    found = {item: run_check(run_function, load) for item, load in list_check_functions(loaded, spec).items()}
    if calls := spec.get("calls"):
        driver.restore(final)
        if isinstance(driver, FileDriver):
            driver.remove_links()
        found |= {f"{number}.{call['name']}": run_check(run_call, call) for number, call in enumerate(calls)}
    return found


def run_check(check: Callable[[Any], Any], argument: Any) -> Any:
    try:
        return check(argument)
    except BaseException as error:
        return f"error: {describe_error(error)}"


def list_check_functions(loaded: LoadedPack, spec: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return item → a function that loads its check. Raises what the checks file raises when it is imported."""
    found: dict[str, Callable[[], Any]] = {}
    if spec.get("functions"):
        module = load_module(loaded.folder / spec["file"], "pack_checks")
        found = {name: partial(require_check, name, getattr(module, name, None)) for name in spec["functions"]}
    return found | {item: partial(compile_check, item, source) for item, source in spec.get("code", {}).items()}


def compile_check(item: str, source: str) -> Any:
    """Return the check that a source defines: `check`, else its first public function. Imported functions and classes do not count."""
    names: dict[str, Any] = {}
    exec(compile(source, f"<check {item}>", "exec"), names)
    functions = {
        name: found for name, found in names.items()
        if isinstance(found, types.FunctionType) and found.__globals__ is names and not name.startswith("_")
    }  # fmt: skip
    return require_check(item, functions.get("check") or next(iter(functions.values()), None))


def require_check(name: str, found: Any) -> Any:
    if found is None:
        raise LookupError(f"there is no check function {name!r}")
    return found
