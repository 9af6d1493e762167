"""Run the original solution of a coding problem, and its tests, and keep what it returned.

The source of this module runs in the sandbox, as generated code does: see `simia.synthesis.gyms.original_comparison`.
"""

from __future__ import annotations

import copy
import io
import json
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

ORIGINAL = "<original>"
MOST_CALLS = 200  # that are kept
FLAG_VARIABLE = 0x04 | 0x08  # of a code object: it takes *args or **kwargs


def record_original(
    solution: str, tests: str, entry: str | None, count: int, examples: list[list[Any]]
) -> dict[str, Any]:
    """Run the original on examples (lists of positional arguments), and its tests; return the calls of the function with `count` inputs.

    Returns: `calls`, each [positional arguments, arguments by name, result]; `failed`, tests that failed; `missing`, why the original
    cannot be called or its tests cannot be run.
    """
    module = load_module(solution)
    original = find_function(module, entry, count)
    if original is None:
        return {"calls": [], "failed": [], "missing": f"it has no function of {count} arguments"}
    recorder = CallRecorder(original)
    for given in examples:
        recorder.call(*given)
    for name, value in list(vars(module).items()):
        if value is original:
            setattr(module, name, recorder.call)
    failed, missing = run_tests(tests, dict(vars(module)), recorder.call) if tests else ([], "")
    return {"calls": recorder.calls, "failed": failed, "missing": missing}


def find_failed_assert(solution: str) -> int:
    """Execute the original, and return the line of its own assert that fails; 0 if none does."""
    try:
        load_module(solution)
    except AssertionError as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == ORIGINAL]
        return (lines[0] if lines else None) or 0
    except BaseException:
        return 0
    return 0


def record_printed(solution: str, inputs: list[str]) -> list[list[str]]:
    """Run the original as a program on each text of standard input; return for each what it printed and, if it failed, why."""
    code, found = compile(solution, ORIGINAL, "exec"), []
    for text in inputs:
        kept, printed, fault = (sys.stdin, sys.stdout), io.StringIO(), ""
        sys.stdin, sys.stdout = io.TextIOWrapper(io.BytesIO(text.encode()), encoding="utf-8"), printed
        try:
            exec(code, {"__name__": "__main__"})
        except SystemExit:
            pass
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"[:200]
        finally:
            sys.stdin, sys.stdout = kept
        found.append([printed.getvalue(), fault])
    return found


def load_module(solution: str) -> types.ModuleType:
    module = types.ModuleType("solution")
    sys.modules["solution"] = module
    exec(compile(solution, ORIGINAL, "exec"), vars(module))
    return module


class CallRecorder:
    """Keeps the calls of a function whose arguments and result are JSON."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.calls: list[Any] = []

    def call(self, *given: Any, **named: Any) -> Any:
        kept = copy.deepcopy([list(given), named])
        result = self._function(*given, **named)
        if len(self.calls) < MOST_CALLS:
            try:
                self.calls.append(json.loads(json.dumps([*kept, result], allow_nan=False)))
            except (TypeError, ValueError, RecursionError):
                pass
        return result


def run_tests(tests: str, names: dict[str, Any], function: Callable[..., Any]) -> tuple[list[str], str]:
    """Run plain asserts, functions `test…()` and `check(candidate)`; return failed ones, and why none can be run."""
    names["__name__"] = "original_tests"
    try:
        exec(compile(tests, "<tests>", "exec"), names)
    except AssertionError as error:
        return [f"assert: {error}"[:200]], ""
    except Exception as error:
        return [], f"its tests cannot be run: {type(error).__name__}: {error}"[:200]
    failed = []
    for name, value in list(names.items()):
        if not isinstance(value, types.FunctionType):
            continue
        given = (function,) if name == "check" else ()
        if (name == "check" or name.startswith("test")) and value.__code__.co_argcount == len(given):
            try:
                value(*given)
            except Exception as error:
                failed.append(f"{name}: {type(error).__name__}: {error}"[:200])
    return failed, ""


def find_function(module: types.ModuleType, entry: str | None, count: int) -> Callable[..., Any] | None:
    """The named function, or the only method of the class `Solution`, or the last public function that takes so many arguments."""
    own = [value for name, value in vars(module).items() if not name.startswith("_")]
    functions: list[Any] = [each for each in own if isinstance(each, types.FunctionType)]
    solver = getattr(module, "Solution", None)
    if isinstance(solver, type):
        methods = [
            name for name, value in vars(solver).items() if isinstance(value, types.FunctionType) and name[0] != "_"
        ]
        wanted = entry if entry in methods else methods[0] if len(methods) == 1 else None
        functions += [getattr(solver(), wanted)] if wanted else []
    named = [each for each in functions if each.__name__ == entry]
    fitting = [each for each in named or functions if takes(each, count)]
    return fitting[-1] if fitting else None


def takes(function: Any, count: int) -> bool:
    """Whether it takes so many positional arguments."""
    code = function.__code__
    bound = 1 if isinstance(function, types.MethodType) else 0
    most = code.co_argcount - bound
    least = most - len(function.__defaults__ or ())
    return not code.co_flags & FLAG_VARIABLE and not code.co_kwonlyargcount and least <= count <= most
