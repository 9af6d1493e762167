"""A world that runs functions of generated code: its two calls are `run` and `reply`, and each run has a process of its own.

Nothing here protects anything: the code runs in this process and can change all of it. What must hold is enforced from outside (time,
memory, size and form of the answers), and what the code must not see is in no memory and in no file of this sandbox.
"""

from __future__ import annotations

import inspect
import json
import random
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

SOURCE = "<generated>"


class CallError(Exception):
    """A call was refused, in the environment's words."""


class FunctionWorld:
    """One run: `run` executes a source and calls a function that it defines."""

    rolls_back = False
    ended = False

    def __init__(self, folder: Path) -> None:
        self.simia_exchange: Callable[[Any], Any] = lambda value: None
        """The worker sets it: sends a value to the parent process, and returns the arguments of its next request."""

    def tools(self) -> dict[str, dict[str, bool]]:
        return {"agent": {"run": False, "reply": False}, "user": {}}

    def reset(self, initial: dict[str, Any], seed: int) -> None: ...

    def dump(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Any) -> None: ...

    def call(self, by: str, name: str, arguments: dict[str, Any], index: int) -> dict[str, Any]:
        if name != "run":
            raise LookupError("no function is running")
        memory: int = arguments.pop("memory")
        before = measure_peak()
        try:
            found = self.run(**arguments)
        except MemoryError:
            found = {}
        if not found or measure_peak() - before > memory:
            return {"ended": "out_of_memory", "detail": f"it takes more than {memory >> 20} MB"}
        return found

    def run(
        self, source: str, function: str, inputs: dict[str, Any] | None, seed: str | None, output: int
    ) -> dict[str, Any]:
        """Run a function and describe how it ended. Without `inputs` it gets `call`; with a `seed`, a generator if it takes one."""
        random.seed()  # each process would continue the same numbers, so that code without a seed would look repeatable
        try:
            names: dict[str, Any] = {"__name__": "generated", "CallError": CallError}
            exec(compile(source, SOURCE, "exec"), names)
            found = names.get(function)
            if not callable(found):
                return {"ended": "raised", "detail": f"the code defines no function {function!r}"}
            if inputs is None:
                return describe_returned(found(self.call_environment), output)
            takes_generator = seed is not None and bool(inspect.signature(found).parameters)
            return describe_returned(found(random.Random(seed)) if takes_generator else found(**inputs), output)
        except MemoryError:
            raise
        except BaseException as error:
            return {"ended": "raised", "detail": describe_raised(error)}

    def call_environment(self, name: str, /, **arguments: Any) -> Any:
        answer = self.simia_exchange({"call": name, "arguments": arguments})
        if "error" in answer:
            raise CallError(answer["error"])
        return answer["value"]


def measure_peak() -> int:
    """The most memory that this process had at once, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def describe_returned(value: Any, output: int) -> dict[str, Any]:
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        return {"ended": "no_json", "detail": f"{type(value).__name__}: {error}"[:300]}
    if len(text) > output:
        return {"ended": "no_json", "detail": f"{len(text):,} characters are more than {output:,}"}
    return {"ended": "returned", "value": json.loads(text)}


def describe_raised(error: BaseException) -> str:
    """Type, words and line of an error of the generated code."""
    try:
        words = str(error)[:300].encode(errors="replace").decode()
    except BaseException:
        words = "(no words)"
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == SOURCE:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"{type(error).__name__}: {words}" + (f" (line {lines[-1]})" if lines else "")
