"""Episodes in one process: transactional calls, rollback, export, checks; many episodes or one.

A call that raises leaves the state as it was: the state is set back to a checkpoint and the writes since are run again.
A checkpoint is taken every few writes (the driver says how many), more where the state is large, and the first is the start
of the episode, which costs nothing; so reads cost nothing, writes little, and a refusal the price of one copy. Idle episodes
lie frozen as compressed JSON.
"""

from __future__ import annotations

import types
import zlib
from collections import OrderedDict
from typing import Any

from simia.sandbox.inside.convention import ToolRefusal
from simia.sandbox.inside.drivers import LoadedPack, StateDriver, load_module
from simia.sandbox.inside.files import FileDriver
from simia.sandbox.inside.frames import MOST_LEVELS, nests_deeper, pack_json, unpack_json
from simia.state import apply_changes, diff_states

AWAKE = 8  # episodes that are never frozen: who plays a few large ones would freeze and thaw at every step
SWOLLEN = 10  # a state as objects takes about so many times its JSON's bytes
OK, REFUSED, FAILED, ENDED = 0, 1, 2, 3
WORDS = 2000  # characters of an error that travel


class OutOfMemory(Exception):  # noqa: N818 - a state of the process
    """The process is at its limit: it must go, and its episodes with it."""


class WorkerSession:
    """One episode: its driver, and what a rollback needs."""

    def __init__(self, loaded: LoadedPack, isolated: bool, spec: dict[str, Any]) -> None:
        self.driver = loaded.driver(isolated)
        self.driver.reset(spec.get("initial") or {}, spec.get("seed", 0))
        if "state" in spec:
            self.driver.restore(spec["state"])
        self._spec, self._loaded, self._isolated = spec, loaded, isolated
        self._checkpoint: bytes | None = None
        self._since: list[tuple[str, str, bytes, int]] = []
        self._every = self.driver.every
        self._rolls_back = getattr(loaded.object, "rolls_back", True) is not False
        self.frozen: bytes | None = None
        self.size = 0

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int, most: int) -> list[Any]:
        """[status, value]: the result as JSON, the refusal's words, or the fault's."""
        driver = self.driver
        writes = self._rolls_back and driver.known.get(by, {}).get(name, False)
        kept = pack_json(arguments) if writes else b""  # the tool may change its arguments
        try:
            value = driver.call(by, name, arguments, index)
            body = pack_json(value)
            if len(body) > most:
                raise ToolRefusal(f"the result is {len(body):,} bytes, more than {most:,} that a call may return")
            if body.count(b"[") + body.count(b"{") > MOST_LEVELS and nests_deeper(value, MOST_LEVELS):
                raise ToolRefusal(f"the result nests deeper than {MOST_LEVELS} levels")
            # A state that cannot be written fails the call that finds it.
            if writes and len(self._since) >= self._every:
                self._checkpoint, self._since = driver.freeze(), []
                self._every = driver.every + len(self._checkpoint) // driver.bytes_a_write
                return [ENDED if driver.ended else OK, value]
        except MemoryError:
            raise OutOfMemory from None
        except BaseException as error:  # a tool may raise anything, SystemExit among it
            if writes:
                self._roll_back()
            if isinstance(error, ToolRefusal) or is_declared_refusal(error):
                return [REFUSED, read_error_text(error)]
            return [FAILED, f"{type(error).__name__}: {read_error_text(error)}"]
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

    def changes(self) -> list[dict[str, Any]]:
        """From the start of the episode to now."""
        return diff_states(self.initial(), self.driver.dump())

    def initial(self) -> Any:
        """The state at the start of the episode."""
        return self.driver.beginning()

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
    """All episodes of this process, the idle ones frozen once the live ones pass `live` bytes."""

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


def read_error_text(error: BaseException) -> str:
    """What an error says, as text that can be sent; its `__str__` is the pack's code too."""
    try:
        return str(error)[:WORDS].encode(errors="replace").decode()
    except Exception:
        return "(an error whose words cannot be had)"


def is_declared_refusal(error: BaseException) -> bool:
    """Whether the tool declared it: `ToolError`, or what a foreign world marks the same way."""
    return getattr(type(error), "__simia_refusal__", False) is True


def run_checks(loaded: LoadedPack, spec: dict[str, Any]) -> dict[str, Any]:
    """Items of a checklist on one state, each on a copy of its own: item → true, false, or "error: …"."""
    session = WorkerSession(loaded, True, {"initial": spec.get("initial"), "seed": spec.get("seed", 0)})
    initial = session.initial()
    final = apply_changes(initial, spec["changes"])
    found: dict[str, Any] = {}
    functions = load_check_functions(loaded, spec)
    for item, function in functions.items():
        try:
            found[item] = bool(function(unpack_json(pack_json(final)), unpack_json(pack_json(initial))))
        except BaseException as error:
            found[item] = f"error: {type(error).__name__}: {read_error_text(error)}"
    if spec.get("calls"):
        session.driver.restore(final)
        if isinstance(session.driver, FileDriver):
            session.driver.remove_links()
        for number, call in enumerate(spec["calls"]):
            try:
                value = session.driver.check(call["name"], call.get("by", "agent"), call.get("arguments", {}))
                found[make_item_name(call, number)] = value == call.get("expect", True)
            except BaseException as error:
                found[make_item_name(call, number)] = f"error: {type(error).__name__}: {read_error_text(error)}"
    return found


def make_item_name(call: dict[str, Any], number: int) -> str:
    return f"{number}.{call['name']}"


def load_check_functions(loaded: LoadedPack, spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if spec.get("functions"):
        module = load_module(loaded.folder / spec["file"], "pack_checks")
        for name in spec["functions"]:
            found[name] = getattr(module, name, make_missing_check(name))
    for item, source in spec.get("code", {}).items():
        names: dict[str, Any] = {}
        try:
            exec(compile(source, f"<check {item}>", "exec"), names)
            found[item] = choose_check(names) or make_missing_check(item)
        except BaseException as error:
            found[item] = make_broken_check(error)
    return found


def choose_check(names: dict[str, Any]) -> Any:
    """The check among what a source defines: `check`, else its first public function. What it imports or its classes are none."""
    functions = {
        name: found for name, found in names.items()
        if isinstance(found, types.FunctionType) and found.__globals__ is names and not name.startswith("_")
    }  # fmt: skip
    return functions.get("check") or next(iter(functions.values()), None)


def make_missing_check(name: str) -> Any:
    def check(final: Any, initial: Any) -> bool:
        raise LookupError(f"there is no check function {name!r}")

    return check


def make_broken_check(error: BaseException) -> Any:
    def check(final: Any, initial: Any) -> bool:
        raise error

    return check
