"""What the kernel does not limit for a sandbox as a whole: memory of all its processes, its files, and what a reply holds."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from pathlib import Path
from unittest.mock import patch

import pytest

from simia.envs.opening import open_environment
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.sandbox.inside.frames import count_values, unpack_bounded
from simia.sandbox.limits import MB, WorkerLimits
from simia.sandbox.supervisor import INTERVAL, LONGEST, SHARE, WatchedSandbox, choose_pause
from simia.trajectory import Message, ToolCall
from tests.sandbox.making import ANY, HEAD, TASK, ask, gone, make_pack, opened

LIMITS = WorkerLimits(wall=60, folder=16 * MB, memory=128 * MB, total=200 * MB, inodes=3000)
CODE = """
import subprocess
from simia.kit import FileTools, write

class Room(FileTools):
    @write
    def note(self, text):
        with open(self.root / "notes", "a") as file:
            file.write(text)
        return (self.root / "notes").read_text()

    @write
    def program(self, code):
        done = subprocess.run(["/usr/bin/env", "python3", "-c", code], cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.decode(errors="replace")[-4000:]

    @write
    def background(self, code):
        subprocess.Popen(["/usr/bin/env", "python3", "-c", code], cwd=self.root)
        return "started"
"""
STAY = "\nimport time\ntime.sleep(600)\n"
BOMBS = {
    "many processes": "import os\nfor _ in range(6):\n    if os.fork() == 0:\n        held = bytearray(b'x') * (60 << 20)\n        break" + STAY,
    "shared mappings": "import mmap\nheld = []\nfor _ in range(8):\n    held.append(mmap.mmap(-1, 60 << 20))\n    held[-1].write(b'x' * (60 << 20))" + STAY,
    "shared mappings that it drops": (
        "import mmap\nheld = []\nfor _ in range(8):\n    held.append(mmap.mmap(-1, 60 << 20))\n    held[-1].write(b'x' * (60 << 20))\n"
        "    held[-1].madvise(mmap.MADV_DONTNEED)" + STAY
    ),
    "files": "import os\nos.mkdir('many')\nfor n in range(9000):\n    open(f'many/{n}', 'w').close()" + STAY,
    "page tables": (  # one byte of every 2 MB of a mapping: no resident memory, and a page of the kernel's for each
        "import mmap\nsize = 128 << 30\nheld = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)\n"
        "held.madvise(mmap.MADV_NOHUGEPAGE)\nfor at in range(0, size, 2 << 20):\n    held[at]" + STAY
    ),
    "mappings": (  # which take long to be counted
        "import mmap, os\nany(os.fork() == 0 for _ in range(7))\nheld = [mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, (1, 3)[n % 2]) for n in range(50000)]" + STAY
    ),
    "folders in /tmp": "import os\nfor n in range(9000):\n    os.mkdir(f'/tmp/{n}')" + STAY,
}  # fmt: skip


def room(folder: Path, root: str = "/scratch") -> Pack:
    pack = make_pack(
        folder, CODE, dict.fromkeys(("note", "program", "background"), ANY), object="Room", isolation="sandbox"
    )
    assert pack.executable is not None
    pack.executable.root = root
    return pack


@pytest.mark.attack("use more memory or files than the sandbox may hold", where="sandbox")
@pytest.mark.parametrize("name", BOMBS)
async def test_supervisor_ends_an_episode_beyond_its_limits(tmp_path: Path, name: str) -> None:
    async with opened(room(tmp_path / "room"), limits=LIMITS) as backend:
        neighbour, world = await backend.open(TASK), await backend.open(TASK)
        assert (await ask(neighbour, "note", text="a")).content == "a"
        result = await ask(world, "program", code=BOMBS[name])
        assert (result.error, result.ends) == (Code.RESOURCE_LIMIT, True), result
        # Which limit is met first depends on the machine.
        reasons = ("MB of memory", "files and folders", "memory mappings", "takes too long to be counted")
        assert any(words in result.detail for words in reasons), result.detail
        assert "\n" not in result.content + result.detail
        assert (await world.state())["files"] == {}
        assert (await ask(neighbour, "note", text="b")).content == "ab"
        assert neighbour._slot.generation == 1
        await world.close()
        await neighbour.close()
    assert await gone(str(tmp_path / "room")) == []


@pytest.mark.attack("make a look of the supervisor expensive, so that it looks seldom", where="outside")
def test_costly_look_is_soon_followed_by_the_next() -> None:
    assert choose_pause(0.0) == INTERVAL
    assert choose_pause(0.02) == pytest.approx(0.02 / SHARE)
    assert choose_pause(60.0) == LONGEST <= 2


@pytest.mark.attack("make a look of the supervisor expensive, so that it looks seldom", where="outside")
def test_look_that_takes_too_long_is_given_up() -> None:
    watch = WatchedSandbox(os.getpid(), memory=1)
    with patch("simia.sandbox.supervisor.COST", -1.0):  # whatever it takes is too much
        assert "takes too long" in watch.look()
    with patch("simia.sandbox.supervisor.MOST_MAPS", 100):
        assert "memory mappings" in watch.look()
    assert "MB of memory" in watch.look()


@pytest.mark.attack("use more memory or files than the sandbox may hold", where="sandbox")
async def test_bomb_between_two_calls_is_told_at_the_next(tmp_path: Path) -> None:
    async with opened(room(tmp_path / "room", "/"), limits=LIMITS) as backend:
        world = await backend.open(TASK)
        assert (await ask(world, "background", code=BOMBS["many processes"])).content == "started"
        for _ in range(600):
            if world._slot.exceeded:
                break
            await asyncio.sleep(0.05)
        result = await ask(world, "note", text="a")
        assert (result.error, result.ends) == (Code.RESOURCE_LIMIT, True)
        await world.close()


@pytest.mark.attack("use more memory or files than the sandbox may hold", where="sandbox")
async def test_episode_says_that_a_limit_ended_it(tmp_path: Path) -> None:
    room(tmp_path / "room")
    (tmp_path / "room" / "tasks.jsonl").write_text(
        '{"id": "t", "instruction": "x", "opening": "x", "reward": {"parts": [{"kind": "answer", "expect": ["y"]}]}}'
    )
    with (tmp_path / "room" / "pack.yaml").open("a") as file:
        file.write("tasks: tasks.jsonl\n")
    async with await open_environment(
        str(tmp_path / "room"), user="none", backend_settings={"limits": LIMITS}
    ) as environment:
        episode = await environment.reset(environment.tasks[0])
        calls = [
            ToolCall(id="1", name="program", arguments={"code": BOMBS["many processes"]}),
            ToolCall(id="2", name="note", arguments={"text": "a"}),
        ]
        step = await episode.step(Message(role="assistant", calls=calls))
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("terminated", Code.RESOURCE_LIMIT)


@pytest.mark.attack("hold memory that belongs to no process", where="sandbox")
async def test_memory_of_no_process_cannot_be_had(tmp_path: Path) -> None:
    code = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def tried(act):\n    try:\n        return act()\n    except OSError as error:\n        return -1\n"
        "print([tried(lambda: os.memfd_create('x')), libc.shmget(0, 1 << 20, 0o1600), libc.msgget(0, 0o1600), libc.semget(0, 1, 0o1600)])"
    )
    async with opened(room(tmp_path / "room"), limits=LIMITS) as backend:
        world = await backend.open(TASK)
        assert (await ask(world, "program", code=code)).content.strip() == "[-1, -1, -1, -1]"
        await world.close()


@pytest.mark.attack("use much memory while the pack loads")
@pytest.mark.parametrize("isolation", ["shared", "process", "sandbox"])
async def test_memory_while_loading_is_limited(tmp_path: Path, isolation: str) -> None:
    code = HEAD + "held = bytearray(b'x') * (400 << 20)\nimport time\ntime.sleep(600)\n"
    pack = make_pack(tmp_path / "bad", code, {}, isolation=isolation)
    async with opened(pack, limits=WorkerLimits(resident=128 * MB)) as backend:
        with pytest.raises(UserError, match=r"loading tools\.py: the sandbox uses \d+ MB of memory"):
            await backend.open(TASK)


LARGE = HEAD + (
    "import simia.sandbox.inside.sessions as sessions\n"
    "class State(BaseModel):\n    text: str = ''\nclass World(Tools[State]):\n    State = State\n"
    "    @write\n    def fill(self, size: int) -> None:\n        self.state.text = 'x' * size\n"
    "    @write\n    def lie(self) -> None:\n        sessions.WorkerSession.changes = lambda self: [[]] * (13 << 20)\n"
    "    @write\n    def give(self) -> list:\n        return [[]] * 300_000\n"
)


def large(folder: Path, isolation: str, limits: WorkerLimits | None = None) -> ExecutableBackend:
    pack = make_pack(folder, LARGE, dict.fromkeys(("fill", "lie", "give"), ANY), isolation=isolation)
    return ExecutableBackend(pack, limits=limits)


@pytest.mark.attack("send a reply that takes much memory once it is read")
@pytest.mark.parametrize("isolation", [pytest.param("shared", marks=pytest.mark.all), "process"])
async def test_reply_of_many_values_is_not_parsed(tmp_path: Path, isolation: str) -> None:
    backend = large(tmp_path / "w", isolation, WorkerLimits(wall=60))
    world = await backend.open(TASK)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (await ask(world, "lie")).error is None
    with pytest.raises(Aborted):
        await world.changes()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10
    await world.close()
    await backend.close()


@pytest.mark.attack("send a reply that takes much memory once it is read")
@pytest.mark.parametrize("isolation", ["shared", "process"])
async def test_state_beyond_its_limit_is_an_error_and_the_worker_goes_on(tmp_path: Path, isolation: str) -> None:
    backend = large(tmp_path / "w", isolation, WorkerLimits(state=100_000, output=50_000))
    world, other = await backend.open(TASK), await backend.open(TASK)
    await ask(world, "fill", size=200_000)
    await ask(other, "fill", size=90_000)
    found = await asyncio.gather(world.state(), other.state(), other.initial(), return_exceptions=True)
    assert isinstance(found[0], Aborted)
    assert "more than" in str(found[0])
    assert [found[1], found[2]] == [{"text": "x" * 90_000}, {"text": ""}]
    assert (await ask(world, "give")).error is Code.TOOL_ERROR
    assert world._slot.generation == other._slot.generation == 1
    await world.close()
    await other.close()
    await backend.close()


def test_values_of_a_text_are_counted_without_parsing_it() -> None:
    for value in ([[]] * 500, {"a": [1, 2, {"b": None}]}, "x", [{"k": "v"}] * 300):
        body = json.dumps(value).encode()
        assert unpack_bounded(body, 1000) == value
    text = json.dumps({"t": ',[{"\\",' * 900}).encode()
    assert count_values(text, 1000) == 1
    for body in (
        b"[" + b"[]," * 2000 + b"0]",
        b"[" + b'"",' * 20_000 + b"0]",
        b'["' + b"," * 10 + b'",' + b"1," * 9000 + b"1]",
    ):
        with pytest.raises(ValueError, match="more than 1,000 values"):
            unpack_bounded(body, 1000)
