"""Folders that a killed process left are removed; those of a living one are not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

MAKE = "import sys, time; from simia.sandbox.temporary import temporary; print(temporary('simia-test-'), flush=True); time.sleep(60)"


def test_what_the_dead_left_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen([sys.executable, "-c", MAKE], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    left = Path(process.stdout.readline().strip())
    old = time.time() - 3600
    os.utime(left, (old, old))
    subprocess.run([sys.executable, "-c", MAKE.replace("60", "0")], env=env, check=True, stdout=subprocess.DEVNULL)
    assert left.is_dir(), "its process lives"
    process.kill()
    process.wait()
    (fresh,) = [folder for folder in tmp_path.iterdir() if folder != left]
    subprocess.run([sys.executable, "-c", MAKE.replace("60", "0")], env=env, check=True, stdout=subprocess.DEVNULL)
    assert not left.exists()
    assert fresh.is_dir(), "it is younger than a minute: its maker may not have locked it yet"
