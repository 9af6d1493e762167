"""Run functions of generated Python in the sandbox, under limits of time and memory (CodeGym §3.3.2).

Each run has its own process, forked in milliseconds in a sandbox that holds no secrets. A function may get `call` instead of inputs: the
parent process then answers each of its calls, so the function never runs in the process that computes the answers. Limits of time are CPU
time, so that a busy machine does not change which functions are fast enough.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pydantic import Field

from simia.authoring.code_lint import find_faults
from simia.authoring.findings import Fault
from simia.authoring.pack_draft import copy_driver
from simia.config import Config
from simia.errors import Code
from simia.sandbox.limits import MB, WorkerLimits
from simia.sandbox.worker import Worker, WorkerLost
from simia.sandbox.zygote import ForkServer

WAITS = 20.0  # wall-clock seconds for each second of CPU time: enough for a busy machine, and an end for functions that sleep
TRIES = 3  # tries if a process may have ended because of the machine; then the function is at fault
FORBIDDEN = {Fault.NETWORK, Fault.PROCESSES, Fault.FILES, Fault.CLOCK}
SYSTEM = {"os", "gc", "inspect", "posix", "pty", "socketserver"}
SESSION = 1
Answer = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]


class FunctionLimits(Config):
    """Limits of one run of a generated function (CodeGym §3.3.2)."""

    seconds: int = Field(default=3, ge=1)
    """Maximum CPU time, in seconds."""
    memory: int = Field(default=100, ge=16)
    """Maximum memory in addition to that of the interpreter, in megabytes."""
    output: int = Field(default=4_000_000, ge=100)
    """Maximum number of characters of the JSON that the function returns."""
    calls: int = Field(default=1024, ge=1)
    """Maximum number of calls of tools, if the function may make calls. One more call ends the run."""


class Ending(StrEnum):
    """How a run ended."""

    RETURNED = "returned"
    RAISED = "raised"
    NO_JSON = "no_json"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TOO_MANY_CALLS = "too_many_calls"
    FORBIDDEN = "forbidden"


@dataclass(frozen=True, slots=True)
class FunctionRun:
    """The result of one run."""

    ended: Ending
    value: Any = None
    """What it returned, as JSON."""
    detail: str = ""
    """What went wrong, in one line."""

    def __str__(self) -> str:
        return f"{self.ended}: {self.detail}" if self.detail else str(self.ended)


class FunctionRunner:
    """A sandbox that runs functions; use it with `async with`. Any number of runs at once."""

    def __init__(self, folder: Path, limits: FunctionLimits) -> None:
        """`folder`: an empty or missing folder for the code that runs them."""
        self._folder, self._limits = folder, limits

    async def __aenter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        copy_driver("function_world.py", self._folder / "function_world.py")
        limits = self._limits
        sandbox = WorkerLimits(
            wall=limits.seconds * WAITS, cpu=limits.seconds, memory=limits.memory * MB, output=max(limits.output, MB)
        )
        spec = {"code": "function_world.py", "object": "FunctionWorld", "state": None, "clock": None}
        self._sandbox = ForkServer(self._folder, spec, limits=sandbox)
        await self._sandbox.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._sandbox.close()

    async def run(
        self, source: str, function: str, inputs: Mapping[str, Any], *, seed: str | None = None
    ) -> FunctionRun:
        """Run `function(**inputs)`. With `seed`, the function instead gets a random generator, if it has a parameter."""
        return await self._repeat(source, function, dict(inputs), seed)

    async def run_with_calls(self, source: str, function: str, answer: Answer) -> FunctionRun:
        """Run `function(call)`. `answer` answers each `call(name, **arguments)` with `{"value": …}`, or with `{"error": "…"}`, which raises a
        `CallError` in the function. If the process is lost, the run is not repeated, since calls may have had effects."""
        run, _ = await self._run_once(source, function, None, None, answer)
        return run

    async def _repeat(self, source: str, function: str, inputs: dict[str, Any], seed: str | None) -> FunctionRun:
        for _ in range(TRIES):
            run, by_machine = await self._run_once(source, function, inputs, seed, None)
            if not by_machine:
                break
        return run

    async def _run_once(
        self, source: str, function: str, inputs: dict[str, Any] | None, seed: str | None, answer: Answer | None
    ) -> tuple[FunctionRun, bool]:
        """Run once in a new process; return the result, and whether the machine may have caused its end."""
        if words := find_forbidden(source):
            return FunctionRun(Ending.FORBIDDEN, detail=words), False
        limits = self._limits
        given = {
            "source": source, "function": function, "inputs": inputs, "seed": seed,
            "memory": limits.memory * MB, "output": limits.output,
        }  # fmt: skip
        worker = await Worker.start(self._sandbox, isolated=True)
        began = time.monotonic()
        try:
            await worker.ask("open", SESSION, {"initial": {}, "seed": 0})
            found = await ask_worker(worker, "run", given)
            made = 0
            while answer is not None and isinstance(found, dict) and "call" in found:
                if made == limits.calls:
                    return FunctionRun(Ending.TOO_MANY_CALLS, detail=f"more than {made} calls"), False
                made += 1
                name, arguments = found["call"], found.get("arguments")
                if not isinstance(name, str) or not isinstance(arguments, dict):
                    found = {"ended": "crashed", "detail": "the process sent what is no call"}
                    break
                found = await ask_worker(worker, "reply", dict(await answer(name, arguments)))
            return read_run(found), False
        except WorkerLost as error:
            used_up = error.outside and time.monotonic() - began >= limits.seconds  # the kernel ends it by SIGKILL
            if error.code is Code.TOOL_TIMEOUT or used_up:
                return FunctionRun(Ending.TIMED_OUT, detail=f"more than {limits.seconds} s"), False
            if error.code is Code.RESOURCE_LIMIT or "out of memory" in str(error):
                return FunctionRun(Ending.OUT_OF_MEMORY, detail=f"it takes more than {limits.memory} MB"), False
            return FunctionRun(Ending.CRASHED, detail=str(error)), not error.sure
        finally:
            await worker.close()


async def ask_worker(worker: Worker, name: str, arguments: dict[str, Any]) -> Any:
    """Return the value of one request; if the code that runs the function failed, how the run ended."""
    status, value = await worker.ask("call", SESSION, ["agent", name, arguments, 0], alone=True)
    return value if status == 0 else {"ended": "crashed", "detail": str(value)[:300]}


def read_run(found: Any) -> FunctionRun:
    """A run from what the process sent, which may be anything."""
    try:
        ended = Ending(found["ended"])
        return FunctionRun(
            ended, found.get("value") if ended is Ending.RETURNED else None, str(found.get("detail", ""))
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return FunctionRun(Ending.CRASHED, detail="the process sent what is no result")


def find_forbidden(source: str, *, input_allowed: bool = False) -> str:
    """Name the forbidden things that the code uses: network, files, processes, the clock, the interpreter. Empty if there are none.
    `input_allowed`: it may call `input`.

    The sandbox refuses all of them anyway; this check names them before anything runs.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"no Python: {error}"
    found = {(line, what) for line, fault, what in find_faults(tree) if fault in FORBIDDEN}
    found = {(line, what) for line, what in found if not (input_allowed and what == "input(…)")}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found |= {(node.lineno, f"import {name}") for name in names if name.split(".")[0] in SYSTEM}  # type: ignore[attr-defined]
    return ", ".join(f"line {line}: {what}" for line, what in sorted(found)[:3])
