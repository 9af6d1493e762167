"""The hostile pack, its sandbox with two neighbours beside each attack, and listeners that nobody may reach."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.sandbox.limits import MB, WorkerLimits
from tests.redteam import hostile
from tests.sandbox.making import ANY, TASK, ask, gone, make_pack

WALL = 4.0
SOURCE = Path(hostile.__file__).read_text()
SECRET = "hunter2-of-the-host"


@dataclass
class Listeners:
    """A socket of each kind, of the test's."""

    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    abstract: socket.socket

    def reached(self) -> list[str]:
        found = []
        for name, sock in vars(self).items():
            sock.setblocking(False)
            try:
                sock.recv(10) if name == "udp" else sock.accept()
            except BlockingIOError:
                continue
            found.append(name)
        return found


@dataclass
class Arena:
    """One sandbox in which attacks and honest episodes run side by side."""

    backend: ExecutableBackend
    outside: Path
    listeners: Listeners

    @asynccontextmanager
    async def neighbours(self) -> AsyncIterator[None]:
        """Two honest episodes around what happens inside: begun before it, ended after it, never even restarted."""
        worlds = [await self.backend.open(TASK, seed=seed) for seed in (1, 2)]
        gave = [[await ask(world, "note", text=f"secret of {seed}")] for seed, world in enumerate(worlds)]
        yield
        for seed, world in enumerate(worlds):
            gave[seed].append(await ask(world, "note", text="later"))
            ids = [result.data["note_id"] for result in gave[seed]]
            assert ids == IDS[seed]
            state = await world.state()
            assert state == {
                "notes": {ids[0]: f"secret of {seed}", ids[1]: "later"}, "number": 0.0, "anything": None,
            }  # fmt: skip
            assert world._slot.generation == 1, "a neighbour's process was lost"
            await world.close()

    async def attacker(self, seed: int = 9) -> ExecutableWorld:
        return await self.backend.open(TASK, seed=seed)


IDS = [["N-472716", "N-911385"], ["N-0", "N-0"]]  # what an undisturbed run gives; see `arena`


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    folder = tmp_path_factory.mktemp("s")
    folder.chmod(0o777)
    tcp = socket.create_server(("127.0.0.1", 0))
    udp = socket.socket(type=socket.SOCK_DGRAM)
    udp.bind(("127.0.0.1", 0))
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(str(folder / "l"))
    unix.listen()
    (folder / "l").chmod(0o777)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0simia-test-{os.getpid()}")
    abstract.listen()
    yield Listeners(tcp, udp, unix, abstract)
    for sock in (tcp, udp, unix, abstract):
        sock.close()


@pytest.fixture(scope="module", params=["process"])
def isolation(request: pytest.FixtureRequest) -> str:
    """How the arena's episodes are kept apart; a test that asks for more ways parametrises it."""
    return str(request.param)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def arena(tmp_path_factory: pytest.TempPathFactory, listeners: Listeners, isolation: str) -> AsyncIterator[Arena]:
    os.environ["SIMIA_TEST_SECRET"] = SECRET
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text(SECRET)
    tools: dict[str, Any] = {
        n: ANY for n in dir(hostile.Hostile) if hasattr(getattr(hostile.Hostile, n), "__simia_tool__")
    }
    pack = make_pack(outside / "hostile", SOURCE, tools, object="Hostile", isolation=isolation)
    backend = ExecutableBackend(pack, limits=WorkerLimits(wall=WALL, memory=96 * MB), workers=1)
    for seed in (1, 2):
        world = await backend.open(TASK, seed=seed)
        IDS[seed - 1] = [(await ask(world, "note", text=text)).data["note_id"] for text in ("a", "b")]
        await world.close()
    yield Arena(backend, outside, listeners)
    await backend.close()
    del os.environ["SIMIA_TEST_SECRET"]
    assert await gone(str(pack.root)) == []
