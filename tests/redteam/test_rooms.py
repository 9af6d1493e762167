"""Attacks from within a sandbox of an episode's own, where programs, sockets and a writable folder are allowed.

Each attack runs as a shell or Python program inside, beside a neighbour that began before it and must end as if alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.errors import Code
from simia.pack import Pack
from simia.reward_spec import RewardSpec
from simia.sandbox.limits import MB, WorkerLimits
from tests.redteam.conftest import SECRET, Listeners
from tests.sandbox.making import ANY, TASK, ask, gone, make_pack, opened

CODE = '''
import os, subprocess
from simia.kit import FileTools, ToolError, write

class Room(FileTools):
    @write
    def note(self, text):
        with open(self.root / "notes", "a") as file:
            file.write(text)
        return (self.root / "notes").read_text()

    @write
    def program(self, language, code):
        line = {"bash": ["/bin/bash", "-c", code], "python": ["/usr/bin/python3", "-c", code]}[language]
        done = subprocess.run(line, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.stdout.decode(errors="replace")[-4000:]

    @write
    def refused(self, code):
        """A call that starts a program, waits for it to be ready, and fails."""
        subprocess.Popen(["/usr/bin/python3", "-c", code])
        while not os.path.exists("/dev/shm/ready"):
            pass
        raise ToolError("no")

    @write
    def inside(self, code):
        """Code in the worker's own process."""
        found = {}
        exec(code, {"found": found, "os": os, "subprocess": subprocess})
        return found
'''


@dataclass
class Rooms:
    backend: ExecutableBackend
    outside: Path
    neighbour: ExecutableWorld

    async def attacker(self) -> ExecutableWorld:
        return await self.backend.open(TASK, seed=9)


@pytest_asyncio.fixture(params=["/scratch", "/"])
async def rooms(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Rooms]:
    monkeypatch.setenv("SIMIA_TEST_SECRET", SECRET)
    (tmp_path / "secret").write_text(SECRET)
    pack = make_pack(
        tmp_path / "room",
        CODE,
        dict.fromkeys(("note", "program", "inside", "refused"), ANY),
        object="Room",
        isolation="sandbox",
    )
    assert pack.executable is not None
    pack.executable.root = request.param
    limits = WorkerLimits(wall=4, folder=8 * MB, memory=128 * MB)
    backend = ExecutableBackend(pack, limits=limits)
    neighbour = await backend.open(TASK, seed=1)
    assert (await ask(neighbour, "note", text="before ")).content == "before "
    await ask(neighbour, "program", language="bash", code="sleep 100 > /dev/null 2>&1 &")
    yield Rooms(backend, tmp_path, neighbour)
    assert (await ask(neighbour, "note", text="after")).content == "before after"
    assert neighbour._slot.generation == 1, "the neighbour was lost"
    await neighbour.close()
    await backend.close()
    assert await gone(str(pack.root)) == []


async def ran(world: ExecutableWorld, code: str, language: str = "bash") -> str:
    result = await ask(world, "program", language=language, code=code)
    assert result.error is None, result
    return result.content


@pytest.mark.attack("read the host's files and environment", where="sandbox")
async def test_nothing_of_the_host_is_there(rooms: Rooms) -> None:
    world = await rooms.attacker()
    found = await ran(
        world,
        f"cat {rooms.outside}/secret /etc/shadow /root/.ssh/* /home/*/.ssh/*; ls {rooms.outside} /srv /var/lib; env;"
        " cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/[0-9]*/root/etc/shadow /proc/[0-9]*/cwd/*;"
        f" for p in /proc/[0-9]*; do cat $p/root{rooms.outside}/secret; done",
    )
    assert SECRET not in found
    assert "root:$" not in found
    await world.close()


@pytest.mark.attack("read solutions, tests and expected results in the pack", where="sandbox")
async def test_solutions_are_not_there_and_what_checks_alone_may_see_is_theirs(tmp_path: Path) -> None:
    code = (
        CODE
        + """
    def check_expected(self, text):
        return open("/pack/expected/a.txt").read() == text
"""
    )
    make_pack(tmp_path / "room", code, {"program": ANY}, object="Room", isolation="sandbox")
    for name, text in (
        ("tasks.jsonl", ""),
        ("tests.jsonl", ""),
        ("seeds.jsonl", ""),
        ("checks.py", f"# {SECRET}\n"),
        ("other.txt", "open"),
    ):
        (tmp_path / "room" / name).write_text(text)
    (tmp_path / "room" / "expected").mkdir()
    (tmp_path / "room" / "expected" / "a.txt").write_text(SECRET)
    head = yaml.safe_load((tmp_path / "room" / "pack.yaml").read_text())
    head |= {name: f"./{name}.jsonl" for name in ("tasks", "tests", "seeds")} | {"checks": "checks.py"}
    head["executable"]["hidden"] = ["./expected/"]
    (tmp_path / "room" / "pack.yaml").write_text(yaml.safe_dump(head))
    calls = [{"name": "expected", "arguments": {"text": SECRET}}]
    task = TASK.model_copy(
        update={"reward": RewardSpec.model_validate({"parts": [{"kind": "checklist", "calls": calls}]})}
    )
    async with opened(Pack.load(tmp_path / "room")) as backend:
        world = await backend.open(task)
        seen = await ran(
            world,
            f"cd /pack; find . -type f; cat other.txt; grep -rl {SECRET} /pack /simia /tmp /scratch",
        )
        assert sorted(seen.replace("open", "").split()) == ["./other.txt", "./pack.yaml", "./tools.json", "./tools.py"]
        assert (await world.evidence())["checks"] == {"0.expected": True}
        await world.close()


@pytest.mark.attack("connect to the host's sockets", where="sandbox")
async def test_nobody_outside_is_reached(rooms: Rooms, listeners: Listeners) -> None:
    world = await rooms.attacker()
    tcp, udp = listeners.tcp.getsockname()[1], listeners.udp.getsockname()[1]
    unix, abstract = listeners.unix.getsockname(), listeners.abstract.getsockname().decode(errors="replace")
    code = f"""
import socket
for family, kind, where in [(2, 1, ("127.0.0.1", {tcp})), (2, 2, ("127.0.0.1", {udp})), (2, 1, ("10.0.0.1", 80)),
                            (1, 1, {unix!r}), (1, 1, {abstract!r})]:
    s = socket.socket(family, kind)
    s.settimeout(0.3)
    try:
        s.connect(where) or s.send(b"here")
        print("sent", where)
    except OSError as error:
        print(error)
for family in (16, 17, 38, 40, 44):
    try:
        print("had", family) if socket.socket(family, 3) and family != 16 else None
    except OSError as error:
        print(error)
"""
    said = await ran(world, code, "python")
    assert "had" not in said
    assert listeners.reached() == []
    await world.close()


@pytest.mark.attack("change the system or the pack", where="sandbox")
async def test_what_was_laid_out_cannot_be_changed(rooms: Rooms) -> None:
    world = await rooms.attacker()
    said = await ran(
        world,
        "for f in /pack/tools.py /simia/simia/kit.py /usr/bin/env /usr/lib/x /proc/sys/kernel/hostname /dev/x; do"
        " (echo evil > $f) 2>&1 && echo CHANGED $f; done; rm -rf /pack /usr/bin /simia 2>&1 | tail -1; mount -t tmpfs x /pack;"
        " mount -o remount,rw /usr; unshare -Ur true; chroot / true; ls /pack /usr/bin/env",
    )
    assert "CHANGED" not in said
    assert "/usr/bin/env" in said
    assert "tools.py" in said
    kernel = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
numbers = {"ptrace": 101, "bpf": 321, "unshare": 272, "userfaultfd": 323, "keyctl": 250, "io_uring_setup": 425, "perf": 298, "pidfd_getfd": 438, "x32": 0x40000027}
print({name: libc.syscall(number, 0, 0, 0, 0, 0) for name, number in numbers.items()})
"""
    if os.uname().machine == "x86_64":
        assert set(json.loads((await ran(world, kernel, "python")).replace("'", '"')).values()) == {-1}
    await world.close()


@pytest.mark.attack("kill, stop or flood processes", where="sandbox")
@pytest.mark.parametrize(
    "code",
    [
        "kill -9 -1",
        "for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done",
        ":(){ :|:& };:; wait",
        "kill -STOP $PPID",
        "exec 3<>/dev/null; while true; do :; done",
        "python3 -c 'x = []\nwhile True: x.append(bytearray(10_000_000))'; python3 -c 'x = bytearray(900_000_000)'",
    ],
)
async def test_violence_ends_its_own_episode_at_most(rooms: Rooms, code: str) -> None:
    world = await rooms.attacker()
    assert (await ask(world, "note", text="a")).content == "a"
    await ask(world, "program", language="bash", code=code)
    result = await ask(world, "note", text="b")  # built again where it was lost, with what had been written
    assert result.content == "ab" or result.error in (Code.TOOL_CRASHED, Code.TOOL_TIMEOUT), result
    await world.close()


@pytest.mark.attack("fill the disk", where="sandbox")
async def test_what_is_filled_is_its_own(rooms: Rooms) -> None:
    world = await rooms.attacker()
    said = await ran(
        world,
        "for d in . /tmp /dev/shm; do for i in 1 2 3 4; do head -c 7000000 /dev/zero > $d/filling$i; done; done 2>&1;"
        " du -xsm . /tmp /dev/shm 2>/dev/null | cut -f1 | sort -n | tail -1; rm -f filling* /tmp/filling* /dev/shm/filling*",
    )
    assert "No space left" in said
    assert int(said.strip().splitlines()[-1]) <= 24
    await world.close()


@pytest.mark.attack("leave a process running", where="sandbox")
async def test_what_is_left_running_ends_with_the_episode(rooms: Rooms) -> None:
    world = await rooms.attacker()
    code = "setsid nohup sh -c 'trap \"\" TERM HUP INT; while true; do sleep 5; done' > /dev/null 2>&1 & disown; echo"
    await ran(world, code)
    count = len(await gone(str(rooms.outside / "room"), 0.0))
    await world.close()
    for _ in range(50):
        now = len(await gone(str(rooms.outside / "room"), 0.02))
        if now <= count - 4:
            break
    assert now < count


HIDING = """
import ctypes, time
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # no other process may look into this one
while True:
    open("/dev/shm/ticks", "a").write(".")
    open("/dev/shm/ready", "w").close()
    time.sleep(0.02)
"""


@pytest.mark.attack("hide a process from /proc to outlive a refused call", where="sandbox")
async def test_a_process_that_hides_is_ended_with_its_refused_call(rooms: Rooms) -> None:
    world = await rooms.attacker()
    assert (await ask(world, "refused", code=HIDING)).error is not None
    first, second = (await ran(world, "wc -c < /dev/shm/ticks; sleep 0.5; wc -c < /dev/shm/ticks")).split()
    assert first == second
    await world.close()


async def test_searches_of_proc_meet_nothing_that_is_denied(rooms: Rooms) -> None:
    world = await rooms.attacker()
    found = await ran(world, "find /proc -name nothing 2>&1 | grep -v 'No such file'; ps -eo pid,args")
    assert "denied" not in found
    assert "main.py" not in found
    assert "bwrap" not in found
    await world.close()


@pytest.mark.attack("look into the worker from a program", where="sandbox")
async def test_the_worker_is_not_the_programs_to_look_into(rooms: Rooms) -> None:
    """Who could take over its channel could answer for it: a state, a change, a reward that never was."""
    world = await rooms.attacker()
    code = """
import os
worker, parents = os.getppid(), []
for pid in (worker, *(int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) < worker)):
    for what in ("fd", "mem", "environ", "maps", "cwd", "root"):
        path = f"/proc/{pid}/{what}"
        try:
            print("had", path, os.readlink(path + "/3") if what == "fd" else open(path, "rb").read(1) if what in ("mem", "environ", "maps") else os.listdir(path))
        except OSError as error:
            print(error.errno)
"""
    said = await ran(world, code, "python")
    own = [line for line in said.splitlines() if line.startswith("had")]
    assert not [line for line in own if f"/proc/{(await worker_of(world))}/" in line], own
    await world.close()


async def worker_of(world: ExecutableWorld) -> str:
    return (await ran(world, "import os; print(os.getppid())", "python")).strip()


@pytest.mark.attack("forge an answer frame", where="sandbox")
async def test_forged_answers_are_its_own_episodes_alone(rooms: Rooms) -> None:
    world = await rooms.attacker()
    code = """
import socket, struct, json
for number in range(3, 64):
    try:
        body = json.dumps([[1, [0, {"forged": True}]]] * 3).encode()
        os.write(number, struct.pack("<I", len(body)) + body)
        os.write(number, b"\\xff" * 64)
    except OSError:
        pass
"""
    result: Any = await ask(world, "inside", code=code)
    assert result.error is not None or result.data in ({}, {"forged": True})
    await world.close()


OF_THE_HOST = """
import ctypes, fcntl, os, platform
libc = ctypes.CDLL(None, use_errno=True)
if platform.machine() == "x86_64":
    if libc.syscall(206, 1, ctypes.byref(ctypes.c_ulong())) == 0:
        print("asynchronous reads")
    if libc.syscall(300, 0x200, 0) >= 0:
        print("fanotify")
if libc.inotify_init1(0) >= 0:
    print("inotify")
with open("leased", "w"):
    pass
for name, command, detail in (("lease", 1024, fcntl.F_RDLCK), ("notes of a folder", 1026, 1)):
    try:
        fcntl.fcntl(os.open("." if command == 1026 else "leased", os.O_RDONLY), command, detail)
        print(name)
    except OSError:
        pass
print("tried")
"""


@pytest.mark.attack("take leases, watches or requests that the host counts", where="sandbox")
async def test_what_the_host_counts_cannot_be_had(rooms: Rooms) -> None:
    world = await rooms.attacker()
    assert (await ran(world, OF_THE_HOST, "python")).split("\n") == ["tried", ""]
    await world.close()
