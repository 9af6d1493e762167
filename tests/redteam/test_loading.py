"""A pack that is hostile while it loads: one line says so, in time, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from simia.errors import Code, UserError
from simia.sandbox.limits import MB, WorkerLimits
from tests.redteam.conftest import Listeners
from tests.sandbox.making import ANY, HEAD, NOTES, TASK, ask, gone, make_pack, notes_pack, opened

LIMITS = WorkerLimits(start=3.0, wall=2.0, load=256 * MB)
CONTROL = """
import os, struct, json
def tell(body, head=None):
    for n in range(3, 20):
        try:
            os.write(n, (head or struct.pack('!I', len(body))) + body)
        except OSError:
            pass
"""
FAILING = {
    "loop": "while True: pass",
    "swallow": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "exit": "raise SystemExit(0)",
    "os._exit": "import os; os._exit(0)",
    "interrupt": "raise KeyboardInterrupt",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "syntax": "def",
    "recursion": "def f(): f()\nf()",
    "memory": "held = []\nwhile True: held.append(bytearray(64 << 20))",
    "socket": "import socket; socket.create_connection(('127.0.0.1', PORT))",
    "vsock": "import socket; socket.socket(40)",
    "file": "open('/tmp/x', 'w')",
    "home": "print(open('/etc/passwd').read()); raise ValueError",
    "many lines": "raise ValueError('one\\ntwo\\nthree' * 500)",
    "loud": "class E(Exception):\n    def __str__(self): raise E\nraise E",
    "half": "raise ValueError('\\ud800')",
    "kill all": "import os; os.kill(-1, 9); os.kill(0, 9); os.kill(os.getpid(), 9)",
    "threads": "import threading\nfor _ in range(100000): threading.Thread(target=threading.Event().wait, daemon=True).start()",
    "garbage": CONTROL + "tell(b'{]')\nwhile True: pass",
    "huge": CONTROL + "tell(b'x', b'\\xff\\xff\\xff\\xff')\nwhile True: pass",
    "wrong": CONTROL + "tell(b'5')\nwhile True: pass",
    "forged": CONTROL + "tell(b'{\"ready\": true, \"tools\": 5}')\nwhile True: pass",
    "forged error": CONTROL + "tell(b'{\"ready\": false}')\nwhile True: pass",
    "half tools": CONTROL + "tell(b'{\"ready\":true,\"tools\":{\"agent\":5},\"declared\":{},\"by_convention\":true}')\nwhile True: pass",
}  # fmt: skip


@pytest.mark.attack("attack while the pack loads", where="process")
@pytest.mark.parametrize("name", FAILING)
async def test_code_that_attacks_at_its_import(tmp_path: Path, listeners: Listeners, name: str) -> None:
    code = FAILING[name].replace("PORT", str(listeners.tcp.getsockname()[1])) + "\n" + HEAD
    pack = make_pack(tmp_path / "bad", code, {})
    start = time.monotonic()
    async with opened(pack, limits=LIMITS) as backend:
        with pytest.raises(UserError) as caught:
            await asyncio.wait_for(backend.open(TASK), 160)
    assert time.monotonic() - start < 64
    assert str(caught.value).startswith("bad: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert listeners.reached() == []
    assert await gone(str(pack.root)) == []


async def test_children_left_by_loading_end_with_the_sandbox(tmp_path: Path) -> None:
    code = (
        NOTES
        + "\nimport os, time\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(3600)\n"
    )
    pack = notes_pack(tmp_path / "bad", isolation="process", code=code)
    async with opened(pack, limits=LIMITS) as backend:
        world = await backend.open(TASK)
        assert (await ask(world, "add", text="x")).error is None
        await world.close()
    assert await gone(str(pack.root)) == []


@pytest.mark.attack("fork without end while the pack loads", where="process")
async def test_a_fork_bomb_at_import_ends_in_time(tmp_path: Path) -> None:
    pack = make_pack(
        tmp_path / "bad", "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError: pass", {}
    )
    start = time.monotonic()
    async with opened(pack, limits=WorkerLimits(start=1.0)) as backend:
        with pytest.raises(UserError, match="took more than 1 s"):
            await backend.open(TASK)
    assert await gone(str(pack.root), 160) == []
    assert time.monotonic() - start < 160


@pytest.mark.attack("link from the pack to a file of the host", where="process")
async def test_links_of_a_pack_lead_nowhere(tmp_path: Path) -> None:
    """A link to a file of the host is not followed, neither in place nor where a private pack is copied."""
    secret = tmp_path / "secret"
    secret.write_text("the host's")
    secret.chmod(0o600)
    code = HEAD + (
        "import pathlib\nclass State(BaseModel): pass\nclass World(Tools[State]):\n    State = State\n"
        "    @read\n    def look(self) -> str:\n        return pathlib.Path('/pack/link').read_text()\n"
    )
    for name, mode in (("open", 0o644), ("private", 0o600)):
        folder = tmp_path / name
        pack = make_pack(folder, code, {"look": {"type": "object"}})
        (folder / "link").symlink_to(secret)
        (folder / "tools.py").chmod(mode)
        async with opened(pack) as backend:
            result = await ask(await backend.open(TASK), "look")
        assert result.detail.startswith("FileNotFoundError"), result
    assert os.stat(secret).st_mode & 0o777 == 0o600


@pytest.mark.attack("send one byte now and then to prolong loading", where="process")
async def test_bytes_now_and_then_do_not_prolong_loading(tmp_path: Path) -> None:
    drip = (
        CONTROL + "import time\ntell(b'', b'\\0\\x70\\0\\0')\nwhile True:\n    time.sleep(0.2)\n    tell(b'', b' ')\n"
    )
    pack = make_pack(tmp_path / "bad", drip, {})
    async with opened(pack, limits=WorkerLimits(start=2.0)) as backend:
        with pytest.raises(UserError, match="took more than 2 s"):
            await asyncio.wait_for(backend.open(TASK), 240)
    assert await gone(str(pack.root), 160) == []


UNCONFINE = """
from simia.sandbox.inside import confine
confine.set_worker_limits = lambda **limits: None
confine.install_filter = lambda program: None
"""
DAEMON = """
import mmap, os, time
started = mmap.mmap(-1, 4096)
if os.fork() == 0:
    while started[0] == 0:
        time.sleep(0.02)
    held = bytearray(b"x") * (900 << 20)
    time.sleep(600)
"""
DAEMONS = """
import mmap, os, resource, time
started = mmap.mmap(-1, 4096)
if os.fork() == 0:
    while started[0] == 0:
        time.sleep(0.02)
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    resource.setrlimit(resource.RLIMIT_NPROC, (hard, hard))
    for _ in range(200):
        if os.fork() == 0:
            break
    time.sleep(600)
"""
BOMB_TOOLS = """
class State(BaseModel):
    number: int = 0

class World(Tools[State]):
    State = State

    @write
    def grow(self) -> str:
        self.held = bytearray(b"x") * (900 << 20)
        time.sleep(600)

    @write
    def wait(self) -> str:
        started[0] = 1
        time.sleep(600)
"""
BOMBS = {"unconfined worker": ("grow", UNCONFINE), "process left behind": ("wait", DAEMON), "many": ("wait", DAEMONS)}


@pytest.mark.attack("leave loading with more than a worker may have")
@pytest.mark.parametrize("isolation", ["shared", "process"])
@pytest.mark.parametrize("name", BOMBS)
async def test_what_loading_leaves_is_bounded(tmp_path: Path, isolation: str, name: str) -> None:
    """Code that runs at import can take away the limits of its workers; the supervisor bounds the whole sandbox from outside."""
    tool, bomb = BOMBS[name]
    code = HEAD + "\nimport time\n" + bomb + BOMB_TOOLS
    pack = make_pack(tmp_path / "bad", code, dict.fromkeys(("grow", "wait"), ANY), isolation=isolation, state={})
    limits = WorkerLimits(wall=60.0, memory=32 * MB, resident=128 * MB)
    async with opened(pack, limits=limits) as backend:
        world = await backend.open(TASK)
        result = await ask(world, tool)
        assert result.error is Code.RESOURCE_LIMIT, result
        await world.close()
    assert await gone(str(pack.root), 160) == []
