"""Functions of generated code run in the sandbox: a JSON value, or how the run ended."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from simia.synthesis.gyms.function_runs import Ending, FunctionLimits, FunctionRun, FunctionRunner

LOOP = "def f():\n    while True:\n        try:\n            while True:\n                pass\n        except:\n            pass\n"
SYSTEM = '__import__("o" + "s")'
ENDINGS = {
    LOOP: (Ending.TIMED_OUT, "more than 1 s"),
    "def f():\n    while True:\n        print('x' * 10_000)\n": (Ending.TIMED_OUT, "more than 1 s"),
    "def f():\n    return len(bytearray(b'x' * 60_000_000))\n": (Ending.OUT_OF_MEMORY, "more than 50 MB"),
    "def f():\n    return [0] * 10**10\n": (Ending.OUT_OF_MEMORY, "more than 50 MB"),
    "def f():\n    return 'x' * 5000\n": (Ending.NO_JSON, "5,002 characters"),
    "def f():\n    return float('nan')\n": (Ending.NO_JSON, "not JSON compliant"),
    "def f():\n    return {1, 2}\n": (Ending.NO_JSON, "set"),
    "def f():\n    return f()\n": (Ending.RAISED, "RecursionError"),
    "def f():\n    raise ValueError('no such edge')\n": (Ending.RAISED, "ValueError: no such edge (line 2)"),
    "def f():\n    raise SystemExit\n": (Ending.RAISED, "SystemExit"),
    "def g():\n    return 1\n": (Ending.RAISED, "no function 'f'"),
    "def f(:\n": (Ending.FORBIDDEN, "no Python"),
    "import subprocess\nimport os\ndef f():\n    return 1\n": (Ending.FORBIDDEN, "line 1: import subprocess, line 2: import os"),
    "import requests\ndef f():\n    return 1\n": (Ending.FORBIDDEN, "line 1: import requests"),
    f"def f():\n    {SYSTEM}._exit(0)\n": (Ending.CRASHED, "exit code 0"),
    f"def f():\n    return {SYSTEM}.fork()\n": (Ending.RAISED, "PermissionError"),
    f"def f():\n    {SYSTEM}.kill({SYSTEM}.getppid(), 9)\n": (Ending.RAISED, "PermissionError"),
    "def f():\n    __import__('soc' + 'ket').create_connection(('127.0.0.1', 80))\n": (Ending.RAISED, "PermissionError"),
    f"def f():\n    {SYSTEM}.writev(3, [b'x' * 100])\n    while True: pass\n": (Ending.CRASHED, ""),
}  # fmt: skip


def run_all(folder: Path, *runs: tuple[str, Mapping[str, Any]], **limits: int) -> list[FunctionRun]:
    async def run() -> list[FunctionRun]:
        async with FunctionRunner(folder / "functions", FunctionLimits(**limits)) as runner:
            return await asyncio.gather(*(runner.run(source, "f", inputs) for source, inputs in runs))

    return asyncio.run(run())


def test_values_are_json(tmp_path: Path) -> None:
    runs = [
        ("def f(a, b=2):\n    return a + b\n", {"a": 40}),
        ("def f(rows):\n    return {'n': len(rows), 'pair': (1, 2**80)}\n", {"rows": [1, 2]}),
        ("import math\n\ndef f():\n    print('words')\n    return math.inf > 1\n", {}),
    ]
    found = run_all(tmp_path, *runs)
    assert [run.value for run in found] == [42, {"n": 2, "pair": [1, 2**80]}, True]
    assert {run.ended for run in found} == {Ending.RETURNED}


def test_hostile_and_wrong_functions_end_with_a_name(tmp_path: Path) -> None:
    found = run_all(tmp_path, *((source, {}) for source in ENDINGS), seconds=1, memory=50, output=1000)
    for (source, (ended, words)), run in zip(ENDINGS.items(), found, strict=True):
        assert (run.ended, words in run.detail) == (ended, True), f"{source}: {run}"


def test_runs_share_nothing(tmp_path: Path) -> None:
    leave = "import builtins\n\ndef f():\n    found = getattr(builtins, 'left', 0)\n    builtins.left = 1\n    return found\n"
    write = f"def f():\n    return {SYSTEM}.system('echo x > /tmp/simia-left')\n"
    read = f"def f():\n    return {SYSTEM}.path.exists('/tmp/simia-left')\n"
    found = run_all(tmp_path, *[(source, {}) for source in (leave, leave, write, read)])
    assert [run.value for run in found[:2] + found[3:]] == [0, 0, False]
    assert not Path("/tmp/simia-left").exists()
    assert (tmp_path / "functions" / "function_world.py").read_text().startswith('"""A world that runs functions')


def test_a_generator_with_a_seed_is_repeatable_and_code_without_one_is_not(tmp_path: Path) -> None:
    async def run() -> list[FunctionRun]:
        async with FunctionRunner(tmp_path / "functions", FunctionLimits()) as runner:
            seeded = "def f(random):\n    return random.random()\n"
            unseeded = "import random\n\ndef f():\n    return random.random()\n"
            return [
                await runner.run(source, "f", {}, seed=seed)
                for source, seed in ((seeded, "a"), (seeded, "a"), (seeded, "b"), (unseeded, "a"), (unseeded, "a"))
            ]

    values = [run.value for run in asyncio.run(run())]
    assert values[0] == values[1] != values[2]
    assert values[3] != values[4]


@pytest.mark.parametrize(
    ("source", "ended", "value"),
    [
        ("def f(call):\n    return [call('double', number=n) for n in range(3)]\n", Ending.RETURNED, [0, 2, 4]),
        ("def f(call):\n    try:\n        call('x')\n    except CallError as error:\n        return str(error)\n", Ending.RETURNED, "no tool x"),
        ("def f(call):\n    while True:\n        try:\n            call('x')\n        except: pass\n", Ending.TOO_MANY_CALLS, None),
        ("def f(call):\n    call('double', number={1})\n", Ending.RAISED, None),
        ("def f(call):\n    call.__self__.simia_exchange({'call': 7})\n", Ending.CRASHED, None),
        ("def f(call):\n    call('double', number='x' * 10**8)\n", Ending.CRASHED, None),
    ],
)  # fmt: skip
def test_calls_are_answered_by_this_process(tmp_path: Path, source: str, ended: Ending, value: Any) -> None:
    async def answer(name: str, arguments: dict[str, Any]) -> Mapping[str, Any]:
        return {"value": 2 * arguments["number"]} if name == "double" else {"error": f"no tool {name}"}

    async def run() -> FunctionRun:
        async with FunctionRunner(tmp_path / "functions", FunctionLimits(calls=20, memory=300)) as runner:
            return await runner.run_with_calls(source, "f", answer)

    found = asyncio.run(run())
    assert (found.ended, found.value) == (ended, value), str(found)
