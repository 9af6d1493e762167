"""What happens where there is no sandbox, and when a pack's code cannot be loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.sandbox import capabilities
from simia.sandbox.capabilities import Isolation
from simia.sandbox.limits import WorkerLimits
from simia.task import Task
from simia.trajectory import ToolCall
from tests.envs.worlds.counter import counter

T = Task(id="t")


def no_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        capabilities,
        "probe_isolation",
        lambda: Isolation(False, None, "", False, "there is no bubblewrap on this machine"),
    )


async def total(backend: ExecutableBackend) -> object:
    try:
        world = await backend.open(T)
        try:
            return (await world.call([ToolCall(id="", name="add", arguments={"n": 2})]))[0].data
        finally:
            await world.close()
    finally:
        await backend.close()


def test_this_machine_has_walls_and_says_so() -> None:
    walls = capabilities.probe_isolation()
    assert walls.works, walls.why
    assert "bubblewrap" in dict(walls.lines())["sandbox"]


async def test_without_walls_nothing_is_run_and_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_walls(monkeypatch)
    with pytest.raises(UserError) as caught:
        await total(ExecutableBackend(counter(tmp_path)))
    for words in ("there is no bubblewrap", "apt-get install bubblewrap", "--unsafe"):
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_unsafe_is_a_plain_process_on_request_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_walls(monkeypatch)
    for isolation in ("shared", "process"):
        assert await total(ExecutableBackend(counter(tmp_path), unsafe=True, isolation=isolation)) == {"total": 2}


def test_walls_that_do_not_stand_are_told_with_their_own_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'bubblewrap 9' && exit\necho 'No permissions to create new namespace' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr(capabilities, "find_bubblewrap", lambda: str(fake))
    capabilities.probe_isolation.cache_clear()
    try:
        walls = capabilities.probe_isolation()
        assert not walls.works
        assert "No permissions to create new namespace" in walls.why
        with pytest.raises(UserError, match="No permissions"):
            capabilities.require_isolation()
    finally:
        capabilities.probe_isolation.cache_clear()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_of_that_name", "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = 1", "LookupError: tools.py has no class 'Counter'"),
        ("def f(:", "SyntaxError"),
        ("while True:\n    pass", "took more than"),
        ("import os\nos._exit(0)", "ended at its start"),
        ("raise SystemExit", "SystemExit"),
        ("import os\nos.kill(os.getpid(), 9)", "ended at its start"),
        ("x = 'x' * (1 << 45)", "MemoryError"),
        ("import socket\nsocket.create_connection(('127.0.0.1', 1), 1)", "not permitted"),
    ],
)
async def test_code_that_does_not_load_is_one_line(tmp_path: Path, code: str, words: str) -> None:
    pack = counter(tmp_path)
    (tmp_path / "tools.py").write_text(code)
    with pytest.raises(UserError) as caught:
        await total(ExecutableBackend(pack, limits=WorkerLimits(start=6 if "while True" in code else 60)))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def close_to_others(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o600)
    folder.chmod(0o700)


async def test_a_pack_that_only_its_owner_can_read_is_run_all_the_same(tmp_path: Path) -> None:
    pack = counter(tmp_path)
    close_to_others(tmp_path)
    assert await total(ExecutableBackend(pack)) == {"total": 2}


COMPILED = """
import sys
simia = [module for name, module in sys.modules.items() if name.split(".")[0] == "simia"]
inside = [module for module in simia if getattr(module, "__file__", None)]
assert len(inside) > 6, inside
for module in inside:
    with open(module.__cached__, "rb") as file:
        assert file.read(12)[8:] == int(os.stat(module.__file__).st_mtime).to_bytes(4, "little"), module
"""


async def test_no_sandbox_compiles_what_every_sandbox_runs(tmp_path: Path) -> None:
    pack = counter(tmp_path)
    with (tmp_path / "tools.py").open("a") as file:
        file.write(COMPILED)
    assert await total(ExecutableBackend(pack)) == {"total": 2}
