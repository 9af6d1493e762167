"""Worlds of files: a private folder in a sandbox of its own, states as JSON, rollback, checks, ends, programs, grants."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from simia.envs.opening import open_environment
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.sandbox.limits import MB, WorkerLimits
from simia.task import Task
from simia.trajectory import Message, ToolCall
from tests.sandbox.making import ANY, gone, make_pack, opened

CODE = '''
import json, os, socket, subprocess
from simia.kit import FileTools, ToolError, read, write

class Desk(FileTools):
    def describe(self, path):
        data = path.read_bytes()
        return {"length": len(data)} if path.suffix == ".bin" else None

    def ready(self):
        self.memory.setdefault("opened", [])

    @write
    def save(self, name, text):
        """Writes a file, and remembers its name."""
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        self.memory["opened"].append(name)
        if text == "bad":
            raise ToolError("no bad words")
        if text == "broken":
            raise ZeroDivisionError
        return {"saved": name, "at": self.now.isoformat()}

    @write
    def run(self, command):
        """A shell's command in the folder."""
        done = subprocess.run(["/bin/bash", "-c", command], cwd=self.root, capture_output=True, text=True)
        return {"code": done.returncode, "out": done.stdout + done.stderr}

    @write
    def finish_task(self, answer=""):
        """The end."""
        self.path("answer.txt").write_text(answer)
        self.finish()
        return "bye"

    @read
    def family(self, number):
        """Whether a socket of that family can be had."""
        try:
            socket.socket(number, socket.SOCK_STREAM).close()
        except OSError as error:
            return error.errno
        return 0

    def check_says(self, name, text):
        return text in (self.root / name).read_text()

    def check_grew(self, name):
        return (self.root / name).stat().st_size > (self.before / name).stat().st_size
'''
TOOLS = dict.fromkeys(("save", "run", "finish_task", "family"), ANY)


def desk(folder: Path, root: str = "/scratch", **more: Any) -> Pack:
    make_pack(folder, CODE, TOOLS, object="Desk", isolation="sandbox")
    for name in ("start", "other"):
        (folder / name / "sub").mkdir(parents=True, exist_ok=True)
        (folder / name / "sub" / f"{name}.txt").write_text(f"{name}\n")
    head = yaml.safe_load((folder / "pack.yaml").read_text())
    head["state"] = "start"
    head["executable"] |= {"root": root, **more}
    (folder / "pack.yaml").write_text(yaml.safe_dump(head))
    return Pack.load(folder)


async def do(world: ExecutableWorld, name: str, /, **arguments: Any) -> ToolResult:
    return (await world.call([ToolCall(id="c", name=name, arguments=arguments)]))[0]


async def out(world: ExecutableWorld, command: str) -> str:
    result = await do(world, "run", command=command)
    assert result.error is None, result
    return str(result.data["out"])


async def test_what_lies_in_the_folder_is_the_state(tmp_path: Path) -> None:
    files = {"sub/new.txt": {"text": "new"}, "a.bin": {"base64": "AAEC"}, "sub/start.txt": None}
    task = Task(id="t", initial={"folder": "other", "files": files})
    async with opened(desk(tmp_path / "desk")) as backend:
        world = await backend.open(task)
        state = await world.state()
        assert state == {
            "files": {
                "a.bin": {"base64": "AAEC", "content": {"length": 3}},
                "sub/new.txt": {"text": "new"},
                "sub/other.txt": {"text": "other\n"},
            },
            "memory": {"opened": []},
        }
        await do(world, "save", name="b/c.txt", text="c")
        await out(world, "mkdir empty; ln -s b link; chmod 700 b/c.txt; rm a.bin; printf 'x\\0' > y.bin")
        changes = {"/".join(each["path"]): each.get("new") for each in await world.changes()}
        assert changes == {
            "files/b/c.txt": {"text": "c", "mode": 0o700},
            "files/empty/": {"folder": True},
            "files/link": {"link": "b"},
            "files/a.bin": None,
            "files/y.bin": {"base64": "eAA=", "content": {"length": 2}},
            "memory/opened": ["b/c.txt"],
        }
        await world.close()


@pytest.mark.parametrize("root", ["/scratch", "/"])
async def test_a_call_that_fails_leaves_files_and_memory_as_they_were(tmp_path: Path, root: str) -> None:
    async with opened(desk(tmp_path / "desk", root)) as backend:
        world = await backend.open(Task(id="t"))
        await do(world, "save", name="b/c.txt", text="c")
        await out(world, "ln -s c.txt b/d; mkdir -p e/f; chmod 711 e")
        before = await world.state()
        for words, code in (("bad", Code.TOOL_ERROR), ("broken", Code.TOOL_FAILED)):
            assert (await do(world, "save", name="b/c.txt", text=words)).error is code
            assert (await do(world, "save", name="q/r.txt", text=words)).error is code
            assert await world.state() == before
        assert (await do(world, "save", name="b/c.txt", text="more")).error is None
        assert (await world.state())["memory"] == {"opened": ["b/c.txt", "b/c.txt"]}
        await world.close()


NASTY = {
    "a hard link": "ln -f b.txt a.txt",
    "a named pipe in a file's place": "rm a.txt; mkfifo a.txt",
    "a folder in a file's place": "rm a.txt; mkdir a.txt; touch a.txt/x",
    "a link in a folder's place": "mv d e; ln -s /tmp d",
    "a new file in a closed folder": "touch d/new; chmod 555 d",
    "a closed folder": "chmod 000 d",
    "modes": "chmod 700 d; chmod 4 a.txt",
    "another's name": "touch $'\\xff'; mv a.txt $'\\xfe'",
    "a program that goes on": "(sleep 0.3; echo late > a.txt) > /dev/null 2>&1 &",
}


@pytest.mark.parametrize("root", ["/scratch", "/"])
@pytest.mark.parametrize("what", NASTY)
async def test_nothing_of_a_refused_call_stays_whatever_it_did(tmp_path: Path, root: str, what: str) -> None:
    async with opened(desk(tmp_path / "desk", root), limits=WorkerLimits(output=20_000)) as backend:
        world = await backend.open(Task(id="t"))
        await out(world, "echo a > a.txt; echo b > b.txt; mkdir -p d/f; echo c > d/c; mkfifo p")
        before = await world.state()
        refused = await do(world, "run", command=f"{NASTY[what]}\nhead -c 30000 /dev/zero | tr '\\0' x")
        assert refused.error is Code.TOOL_ERROR, refused  # more output than may come back
        await asyncio.sleep(0.4 if "program" in what else 0)
        assert await world.state() == before
        assert await out(world, "cat a.txt b.txt d/c; test -p p && echo pipe") == "a\nb\nc\npipe\n"
        await world.close()


async def test_odd_states_are_laid_out_again_as_they_were(tmp_path: Path) -> None:
    calls = [{"name": "says", "arguments": {"name": "d/c", "text": "c"}}]
    task = Task.model_validate({"id": "t", "reward": {"parts": [{"kind": "checklist", "calls": calls}]}})
    async with opened(desk(tmp_path / "desk")) as backend:
        world = await backend.open(task)
        await out(
            world,
            "mkdir -p d/e; echo c > d/c; touch $'\\xff'; ln -s $'\\xfe' l; chmod 555 d d/e; mkfifo p; umask 077; mkdir -p q/r",
        )
        state = await world.state()
        assert "bytes:ff" in state["files"]
        assert state["files"]["l"] == {"link": "bytes:fe"}
        assert (await world.evidence())["checks"] == {"0.says": True}
        copy = await backend.open(Task(id="u", initial={"state": state}))
        assert await copy.state() == state
        await world.close()
        await copy.close()


async def test_a_world_that_is_lost_is_built_again_and_a_fork_goes_its_own_way(tmp_path: Path) -> None:
    async with opened(desk(tmp_path / "desk")) as backend:
        world = await backend.open(Task(id="t"))
        await do(world, "save", name="a.txt", text="a")
        await out(world, "echo b > b.txt")
        before = await world.state()
        other = await backend.open(Task(id="t"), snapshot=await world.snapshot())
        slot = world._slot
        assert slot.live is not None
        await slot.live._zygote.close()
        assert await world.state() == before == await other.state()
        await out(other, "rm a.txt")
        assert await world.state() == before
        await world.close()
        await other.close()


async def test_episodes_have_a_folder_and_processes_of_their_own(tmp_path: Path) -> None:
    async with opened(desk(tmp_path / "desk")) as backend:
        one, two = await backend.open(Task(id="t")), await backend.open(Task(id="t"))
        await out(one, "echo mine > /tmp/t; echo mine > m.txt; sleep 300 > /dev/null 2>&1 &")
        assert "m.txt" not in await out(two, "ls; ls /tmp")
        assert "sleep" in await out(one, "cat /proc/*/cmdline | tr '\\0' ' '")
        assert "sleep" not in await out(two, "cat /proc/*/cmdline | tr '\\0' ' '")
        assert "Read-only file system" in await out(two, "touch /usr/x; touch /x")
        assert "uid=65534" in await out(two, "id") or os.getuid() != 0
        await one.close()
        await two.close()
    assert await gone(str(tmp_path)) == []


def our_links() -> str:
    rows = Path("/proc/net/dev").read_text().splitlines()[2:]
    return "".join(row.split(":")[0].strip() for row in rows)


async def test_no_network_but_by_grant(tmp_path: Path) -> None:
    pack = desk(tmp_path / "desk")
    links, here = "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' \\n'", our_links()
    async with opened(pack) as backend:
        world = await backend.open(Task(id="t"))
        assert await out(world, links) == "lo"
        allowed = {family: (await do(world, "family", number=family)).data for family in (1, 2, 40, 38, 17)}
        assert (allowed[1], allowed[2]) == (0, 0)
        assert all(allowed[family] for family in (40, 38, 17))
        await world.close()
    async with opened(pack, network=True) as backend:
        world = await backend.open(Task(id="t"))
        assert await out(world, links) == here
        await world.close()


def command_lines() -> list[bytes]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(entry.read_bytes())
        except OSError:
            continue
    return found


async def test_variables_are_granted_by_name_and_never_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DESK_KEY", "sesame")
    pack = desk(tmp_path / "desk")
    for variables, words in (([], ""), (["DESK_KEY"], "sesame")):
        async with opened(pack, variables=variables) as backend:
            world = await backend.open(Task(id="t"))
            assert (await out(world, "printenv DESK_KEY")).strip() == words
            assert not any(b"sesame" in line for line in command_lines())  # which every user of the machine may read
            await world.close()
    with pytest.raises(UserError, match="no variable NO_SUCH_KEY"):
        await open_environment(pack, variables=["NO_SUCH_KEY"])
    with pytest.raises(UserError, match="isolation: sandbox"):
        await open_environment("customer_service", network=True)


async def test_the_whole_root_can_be_written_to_and_is_the_episodes_alone(tmp_path: Path) -> None:
    async with opened(desk(tmp_path / "desk", "/")) as backend:
        world = await backend.open(Task(id="t"))
        assert "uid=0" in await out(world, "id")
        said = await out(
            world,
            "echo x > /etc/motd; mkdir -p /var/log /home/eve; echo y > /var/log/a.log; touch /usr/bin/x; chmod 0 /etc/motd; cat /etc/motd",
        )
        assert "Read-only" in said
        assert said.startswith("x\n")  # as root may
        files = (await world.state())["files"]
        assert files["etc/motd"] == {"text": "x\n", "mode": 0}
        assert files["var/log/a.log"] == {"text": "y\n"}
        assert not any(name.startswith(("usr/bin", "usr/lib", "proc", "dev", "pack", "simia/")) for name in files)
        await world.close()
    assert "eve" not in os.listdir("/home")


async def test_limits_hold_for_the_programs_too(tmp_path: Path) -> None:
    limits = WorkerLimits(wall=5, folder=4 * MB, memory=64 * MB, processes=24)
    async with opened(desk(tmp_path / "desk"), limits=limits) as backend:
        world = await backend.open(Task(id="t"))
        said = await out(world, "head -c 6000000 /dev/zero > big; ls -s big | cut -d' ' -f1; rm big")
        assert "No space left" in said or "File size limit" in said
        spawn = "import os\nfor n in range(60):\n  if os.fork() == 0: import time; time.sleep(1); os._exit(0)"
        assert "BlockingIOError" in await out(world, f"python3 -c '{spawn}' 2>&1 | tail -1")
        said = await out(world, "python3 -c 'bytearray(900_000_000)' 2>&1 | tail -1")
        assert "MemoryError" in said
        assert (await do(world, "run", command="sleep 60")).error is Code.TOOL_TIMEOUT
        assert "start" in await out(world, "cat sub/start.txt")  # built again, and as before the call
        await world.close()
    assert await gone(str(tmp_path)) == []


async def test_a_call_can_end_the_episode_and_checks_see_the_files(tmp_path: Path) -> None:
    calls = [
        {"name": "says", "arguments": {"name": "answer.txt", "text": "42"}},
        {"name": "grew", "arguments": {"name": "sub/start.txt"}},
        {"name": "says", "arguments": {"name": "sub/start.txt", "text": "never"}, "expect": False},
    ]
    task = Task.model_validate(
        {"id": "t", "instruction": "do", "reward": {"parts": [{"kind": "checklist", "calls": calls, "partial": True}]}}
    )
    async with await open_environment(desk(tmp_path / "desk"), user="none") as environment:
        episode = await environment.reset(task)
        turn = [
            ToolCall(id="1", name="save", arguments={"name": "sub/start.txt", "text": "long enough\n"}),
            ToolCall(id="2", name="finish_task", arguments={"answer": "it is 42"}),
            ToolCall(id="3", name="save", arguments={"name": "late.txt", "text": "late"}),
        ]
        step = await episode.step(Message(role="assistant", calls=turn))
        assert step.end is not None
        assert (step.end.kind, step.end.code) == ("terminated", Code.FINISHED)
        assert [message.error for message in step.messages] == [None, None, Code.FINISHED]
        assert step.reward is not None
        assert step.reward.value == 1.0
        assert not any("late" in each["path"][-1] for each in episode.evidence["changes"])  # type: ignore[index]


async def test_what_cannot_be_repeated_is_not(tmp_path: Path) -> None:
    async with opened(desk(tmp_path / "desk", repeatable=False)) as backend:
        world = await backend.open(Task(id="t"))
        await do(world, "save", name="a.txt", text="a")
        with pytest.raises(Aborted, match="cannot be repeated"):
            await world.snapshot()
        assert world._slot.live is not None
        await world._slot.live._zygote.close()
        while world._slot.live is not None:  # noqa: ASYNC110 - a killed sandbox takes some milliseconds to go
            await asyncio.sleep(0.01)
        with pytest.raises(Aborted, match="cannot be repeated"):
            await world.state()
        await world.close()


@pytest.mark.parametrize(
    ("initial", "words"),
    [
        ({"folder": "../.."}, "no folder"),
        ({"folder": "nowhere"}, "no folder"),
        ({"patch": {}}, "it is {folder"),
        ({"files": {"../x": {"text": ""}}}, "outside"),
    ],
)
async def test_a_start_that_cannot_be_laid_out_is_said_in_a_line(
    tmp_path: Path, initial: dict[str, Any], words: str
) -> None:
    async with opened(desk(tmp_path / "desk")) as backend:
        with pytest.raises(UserError, match=words):
            await backend.open(Task(id="t", initial=initial))


async def test_a_world_of_files_says_what_it_needs(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "desk", CODE, TOOLS, object="Desk", isolation="process")
    async with opened(pack) as backend:
        with pytest.raises(UserError, match="isolation: sandbox"):
            await backend.open(Task(id="t"))


async def test_unsafe_needs_no_walls(tmp_path: Path) -> None:
    async with opened(desk(tmp_path / "desk"), unsafe=True) as backend:
        one, two = await backend.open(Task(id="t")), await backend.open(Task(id="t"))
        await do(one, "save", name="a.txt", text="a")
        assert "a.txt" not in (await two.state())["files"]
        assert (await do(one, "save", name="../x", text="a")).error is Code.TOOL_ERROR
        await one.close()
        await two.close()
