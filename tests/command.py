"""Run the `simia` command inside of the test's process, which saves the second that an interpreter and its imports take.

A test that kills or signals the command, limits its process or measures its memory starts a process: `python -m simia`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO, Any

import pytest
from typer.testing import CliRunner

from simia import masking
from simia.cli import build_app, main

PATIENCE = 600


def invoke(*words: str) -> str:
    """Run a command, which must succeed, and return its output."""
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, f"{words}\n{done.output[-2000:]}\n{done.exception!r}"
    return done.output


def run_simia(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str | None] | None = None, patience: int = PATIENCE
) -> CompletedProcess[str]:
    """Run `simia WORDS` in the folder `cwd` and return its exit status and what it and its children wrote.

    `env` sets variables of the environment; None removes one. Raises `TimeoutError` after `patience` seconds.
    """
    command = ["simia", *map(str, words)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with pytest.MonkeyPatch.context() as patch, redirected(patch, out, err), limited(patience):
            patch.setattr(sys, "argv", command)
            patch.setattr(sys, "excepthook", sys.excepthook)  # `main` replaces these two
            patch.setattr(logging, "lastResort", logging.lastResort)
            patch.setattr(masking, "_secrets", {})
            if cwd is not None:
                patch.chdir(cwd)
            for name, value in (env or {}).items():
                if value is None:
                    patch.delenv(name, raising=False)
                else:
                    patch.setenv(name, value)
            code = exit_status()
        return CompletedProcess(command, code, text_of(out), text_of(err))


def exit_status() -> int:
    """Run `main` and return the status that its process would end with."""
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except TimeoutError:
        raise
    except Exception:
        traceback.print_exc()
        return 1
    return 0


@contextmanager
def redirected(patch: pytest.MonkeyPatch, out: IO[bytes], err: IO[bytes]) -> Iterator[None]:
    """Let descriptors 1 and 2 and Python's streams write into these files: the command's children inherit the descriptors."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    streams = [os.fdopen(os.dup(file.fileno()), "w", encoding="utf-8", buffering=1) for file in (out, err)]
    try:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        yield
    finally:
        for stream in streams:
            stream.close()
        for number, descriptor in enumerate(kept, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise `TimeoutError` in the main thread after so many seconds."""

    def expire(*_: Any) -> None:
        raise TimeoutError(f"the command took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def text_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")
