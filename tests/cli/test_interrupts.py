"""Ctrl-C in the first seconds of a command: one line and status 130, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from simia.__main__ import end_on_interrupt
from simia.cli import machine_report
from tests.command import run_simia

STARTING = "simia: stopped before the command began\n"
INTERRUPTED = "simia: interrupted\n"
# CPU time, so that a busy machine interrupts at the same places.
AFTER = """
signal.signal(signal.SIGVTALRM, interrupt)
signal.setitimer(signal.ITIMER_VIRTUAL, {seconds})
"""
AT_AN_IMPORT = """
sys.addaudithook(lambda event, args: interrupt_here() if event == "import" and args[0] == "typer" else None)
"""
WITHIN_EXEC = """
def interrupt_here():
    exec("interrupt()", globals())
"""
WITHIN_FINALIZER = """
class Interrupting:
    def __del__(self):
        interrupt()

def interrupt_here():
    Interrupting()
"""


def run_interrupted(moment: str) -> subprocess.CompletedProcess[str]:
    """Run `simia doctor` in a process that interrupts itself at a moment."""
    code = f"""
import os, signal, sys
from simia.__main__ import main
def interrupt(*_):
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(10))  # here Python calls the handler
{moment}
sys.argv[1:] = ["doctor"]
main()
"""
    return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("seconds", [0.001, 0.05, 0.1, 0.2])
def test_an_early_interrupt_is_one_line(seconds: float) -> None:
    done = run_interrupted(AFTER.format(seconds=seconds))
    assert done.returncode == 130
    assert done.stderr in (STARTING, INTERRUPTED)  # the imports, or the command itself


def test_an_interrupt_during_the_first_imports_is_one_line() -> None:
    done = run_interrupted("def interrupt_here():\n    interrupt()\n" + AT_AN_IMPORT)
    assert (done.returncode, done.stderr) == (130, STARTING)


@pytest.mark.parametrize("place", [WITHIN_EXEC, WITHIN_FINALIZER], ids=["exec", "finalizer"])
def test_an_interrupt_where_an_exception_would_be_lost_is_one_line(place: str) -> None:
    done = run_interrupted(place + AT_AN_IMPORT)
    assert (done.returncode, done.stderr) == (130, STARTING)


def test_an_interrupt_of_a_command_that_does_not_handle_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> Iterator[str]:
        os.kill(os.getpid(), signal.SIGINT)
        yield from ()

    monkeypatch.setattr(machine_report, "describe_machine", interrupt)
    done = run_simia("doctor", "--report")
    assert (done.returncode, done.stderr, done.stdout) == (130, INTERRUPTED, "")


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_the_handling_of_interrupts_is_restored(handler: Any) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        with end_on_interrupt():
            assert (signal.getsignal(signal.SIGINT) is signal.SIG_IGN) == (handler is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)
