"""Folders that a killed process left are removed; those of a living one are not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Aborted, UserError
from simia.pack import Pack
from simia.sandbox import copies, zygote
from simia.sandbox.copies import make_private
from tests.sandbox.making import NOTES, notes_pack

ROOT = Path(__file__).parents[2]
MAKE = "import sys, time; from simia.sandbox.copies import make_temporary; print(make_temporary('simia-test-'), flush=True); time.sleep(60)"


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


# -- what a sandbox reads -----------------------------------------------------------------------------------------

OPEN = """
import asyncio, sys
from pathlib import Path
from simia.pack import Pack
from simia.sandbox.limits import WorkerLimits
from simia.task import Task
from simia.envs.worlds.executable import ExecutableBackend

async def main():
    backend = ExecutableBackend(Pack.load(sys.argv[1]), limits=WorkerLimits(start=60), unsafe="unsafe" in sys.argv)
    print("opening", flush=True)
    world = await backend.open(Task(id="t"))
    print("open", flush=True)
    await asyncio.sleep(60 if "wait" in sys.argv else 0)

asyncio.run(main())
"""
ISOLATIONS = ("shared", "process", "sandbox")


def private_pack(folder: Path, isolation: str, code: str = NOTES) -> Path:
    """A pack that is copied for whoever runs it: its owner alone can read it, and it holds a pipe."""
    notes_pack(folder, isolation=isolation, code=code)
    os.mkfifo(folder / "pipe")
    (folder / "tools.py").chmod(0o600)
    return folder


def begin(pack: Path, temporary: Path, *words: str) -> subprocess.Popen[str]:
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", OPEN, str(pack), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(temporary)}, cwd=ROOT,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "opening\n"
    return process


@pytest.mark.attack("read other users' packs in /tmp")
@pytest.mark.parametrize("isolation", ISOLATIONS)
def test_copies_are_their_owners_alone_and_go_at_an_interrupt(tmp_path: Path, isolation: str) -> None:
    pack = private_pack(tmp_path / "pack", isolation)
    process = begin(pack, tmp_path / "temporary", "wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    [made] = (tmp_path / "temporary").iterdir()
    assert made.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in made.glob("pack-*/tools.py")] == ["tools.py"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=240)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.attack("leave copies behind by a start that fails or never ends")
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("code", ["raise ValueError", "while True: pass"])
def test_copies_go_after_a_start_that_fails_or_is_interrupted(tmp_path: Path, isolation: str, code: str) -> None:
    pack = private_pack(tmp_path / "pack", isolation, code)
    process = begin(pack, tmp_path / "temporary")
    if code.startswith("while"):
        for _ in range(600):  # until the sandbox is about to start
            if list((tmp_path / "temporary").glob("*/pack-*")):
                break
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGINT)
    process.communicate(timeout=240)
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_failed_start_leaves_no_copy_in_a_process_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    folder = private_pack(tmp_path / "pack", isolation, "raise ValueError")
    made: list[Path] = []

    def make(name: str) -> Path:
        made.append(make_private(name))
        return made[-1]

    monkeypatch.setattr(copies, "make_private", make)
    backend = ExecutableBackend(Pack.load(folder))
    with pytest.raises(UserError, match="ValueError"):
        await backend.start()
    (folder / "tools.py").write_text(NOTES)
    monkeypatch.setattr(zygote.BubblewrapSandbox, "command", lambda self, inner, program, processes: ["/nowhere/bwrap"])
    with pytest.raises(Aborted, match="cannot be started"):
        await backend.start()
    monkeypatch.setattr(copies.shutil, "copytree", failing)
    with pytest.raises(UserError, match=r"tools.py cannot be read \(no\): make it readable"):
        await backend.start()
    await backend.close()
    packs = [path for path in made if path.name.startswith("pack-")]
    assert len(packs) == 3
    assert not any(path.exists() for path in packs)


def failing(source: Path, target: str, **_: object) -> None:
    (Path(target) / "half").write_text("")
    raise shutil.Error([(str(Path(source) / "tools.py"), target, "no")])


def test_an_unsafe_episodes_folder_goes_too(tmp_path: Path) -> None:
    pack = private_pack(tmp_path / "pack", "sandbox")
    process = begin(pack, tmp_path / "temporary", "unsafe")
    process.communicate(timeout=240)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_forked_child_leaves_its_parents_folder_alone(tmp_path: Path) -> None:
    code = (
        "import os, sys; from simia.sandbox.copies import make_private; made = make_private('x')\n"
        "if os.fork() == 0:\n    other = make_private('y')\n    sys.exit(0 if other.parent != made.parent else 1)\n"
        "status = os.wait()[1]\nassert status == 0 and made.exists()"
    )
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert list(tmp_path.iterdir()) == []
