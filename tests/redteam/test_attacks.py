"""Attacks by a pack's tools while honest episodes play beside them: contained, told in one line, and nobody else hurt."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from simia.envs.worlds.executable_world import ExecutableWorld
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code
from tests.redteam.conftest import SECRET, WALL, Arena
from tests.sandbox.making import TASK, ask

pytestmark = pytest.mark.asyncio(loop_scope="module")
CRASHED, TIMEOUT, FAILED, REFUSED = Code.TOOL_CRASHED, Code.TOOL_TIMEOUT, Code.TOOL_FAILED, Code.TOOL_ERROR
START: dict[str, Any] = {"notes": {}, "number": 0.0, "anything": None}
ROOT = Path(__file__).parents[2]
HOME = str(Path.home())


both = pytest.mark.parametrize("isolation", ["shared", "process"], indirect=True)


def in_one_line(result: ToolResult) -> None:
    assert "\n" not in result.content
    assert "Traceback" not in result.content
    assert len(result.content) < 3000


async def attack(arena: Arena, name: str, **arguments: Any) -> tuple[ExecutableWorld, ToolResult]:
    """The attack's own session, which is then the caller's to close, and what the call gave, in time."""
    world = await arena.attacker()
    start = time.monotonic()
    result = await asyncio.wait_for(ask(world, name, **arguments), 30 * WALL)
    assert time.monotonic() - start < 20 * WALL
    in_one_line(result)
    return world, result


async def told(ask_it: Callable[[], Awaitable[Any]]) -> tuple[Any, Aborted | None]:
    """What was asked for, or why not, in one line and in time."""
    try:
        return await asyncio.wait_for(ask_it(), 30 * WALL), None
    except Aborted as error:
        said = error
    assert "\n" not in str(said)
    return None, said


async def goes_on(world: ExecutableWorld) -> None:
    """The session itself is as before the attack, and usable."""
    assert await world.state() == START
    assert (await ask(world, "note", text="still here")).error is None
    await world.close()


PROBES: dict[str, dict[str, Any]] = {
    name: {}
    for name in (
        "host_processes", "fork_bomb", "memory_elsewhere", "raise_limits", "signals", "signals_by_descriptor",
        "look_into_siblings", "calls_by_hand", "dumpable", "others", "leaked",
    )
}  # fmt: skip


# Episodes that share a process can find each other's objects (`others`): that isolation is for code that you wrote.
PROBED = [("process", name) for name in PROBES] + [("shared", name) for name in PROBES if name != "others"]


@pytest.mark.attack("probe processes, limits, signals and memory of others")
@pytest.mark.parametrize(("isolation", "name"), PROBED, indirect=["isolation"])
async def test_what_is_tried_is_not_won(arena: Arena, name: str, isolation: str) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, name)
        assert result.error is None, result
        assert result.data == {"won": {}}
        await goes_on(world)


@both
@pytest.mark.attack("read the host's files and environment")
async def test_files_of_the_host_are_not_there(arena: Arena) -> None:
    paths = [
        f"{HOME}/.ssh", f"{HOME}/.bashrc", f"{HOME}/.cache", "/home", "/etc/passwd", "/etc/shadow", "/etc/hosts", "/sys",
        str(ROOT / "pyproject.toml"), str(ROOT / "simia"), str(ROOT / ".git"), str(arena.outside / "secret"), "/var", "/run",
    ]  # fmt: skip
    assert (arena.outside / "secret").read_text() == SECRET
    async with arena.neighbours():
        world, result = await attack(arena, "read_files", paths=paths)
        assert result.data == {"won": {}}
        await goes_on(world)
        world, result = await attack(arena, "read_environment", secret=SECRET)
        assert result.data == {"won": {}}
        await goes_on(world)


@both
@pytest.mark.attack("write files")
async def test_nothing_can_be_written(arena: Arena) -> None:
    before = sorted(path.name for path in arena.outside.rglob("*"))
    async with arena.neighbours():
        world, result = await attack(arena, "write_files", paths=[str(arena.outside), HOME])
        assert result.data == {"won": {}}
        await goes_on(world)
    assert sorted(path.name for path in arena.outside.rglob("*")) == before


@both
@pytest.mark.attack("connect to the host's sockets")
async def test_no_socket_reaches_anybody(arena: Arena) -> None:
    ports = arena.listeners
    async with arena.neighbours():
        world, result = await attack(
            arena, "sockets", tcp=ports.tcp.getsockname()[1], udp=ports.udp.getsockname()[1],
            path=ports.unix.getsockname(), abstract=ports.abstract.getsockname()[1:].decode(),
        )  # fmt: skip
        assert result.data == {"won": {}}
        await goes_on(world)
    assert ports.reached() == []


@pytest.mark.attack("exhaust a limit")
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("loop_python", {TIMEOUT}), ("loop_c", {TIMEOUT}), ("loop_regex", {TIMEOUT}), ("sleep", {TIMEOUT}),
        ("words_loop", {TIMEOUT}), ("memory_list", {CRASHED}), ("memory_bytes", {CRASHED}),
        ("memory_mapped", {CRASHED, FAILED}), ("disk_filler", {FAILED}), ("thread_bomb", {FAILED}), ("old_gate", {CRASHED}),
    ],
)  # fmt: skip
async def test_bombs_and_loops_end(arena: Arena, name: str, codes: set[Code]) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, name)
        assert result.error in codes, result
        if name in ("memory_list", "memory_bytes"):
            assert result.detail == "out of memory: a call may take 96 MB"
        await goes_on(world)


@pytest.mark.attack("end the worker")
@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("exit", CRASHED), ("segfault", CRASHED), ("abort", CRASHED), ("deep recursion", CRASHED), ("sys.exit", FAILED),
        ("interrupt", FAILED), ("recursion", FAILED), ("loud", FAILED), ("surrogate", FAILED), ("group", FAILED),
        ("generator", FAILED), ("refusal", REFUSED),
    ],
)  # fmt: skip
async def test_endings_are_results(arena: Arena, how: str, code: Code) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, "end", how=how)
        assert result.error == code, result
        await goes_on(world)


@both
@pytest.mark.attack("return a malformed result")
@pytest.mark.parametrize(
    "what",
    ["huge", "deep", "middle", "nan", "infinity", "half", "half key", "bytes", "cycle", "object", "set", "lambda"],
)  # fmt: skip
async def test_results_that_are_no_json(arena: Arena, what: str) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, "give", what=what)
        assert result.error == (REFUSED if what == "huge" else FAILED), result
        await goes_on(world)


async def test_integers_beyond_64_bits_are_not_rounded(arena: Arena) -> None:
    world, result = await attack(arena, "give", what="big number")
    assert result.content == str(10**30)
    assert type(result.data) is int
    await ask(world, "spoil_state", what="big")
    assert type((await world.state())["anything"]) is int
    again = await arena.backend.open(TASK, snapshot=await world.snapshot())
    assert await again.state() == await world.state()
    await again.close()
    await world.close()


@pytest.mark.attack("waste resources")
@pytest.mark.parametrize("name", ["swallow_memory", "many_files", "print_much", "last_words"])
async def test_waste_hurts_nobody(arena: Arena, name: str) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, name)
        assert result.error is None, result
        assert name != "many_files" or result.data <= 64
        await goes_on(world)


@pytest.mark.attack("forge an answer frame")
@pytest.mark.parametrize(
    "how",
    [
        "garbage", "huge", "large and silent", "not json", "no list", "empty", "twice", "result", "number", "null", "short",
        "words", "fault", "status", "unknown", "deep", "half",
    ],
)  # fmt: skip
async def test_forged_answers_fool_only_their_own_session(arena: Arena, how: str) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, "forge", how=how)
        if how in ("result", "deep"):  # its own answer is the tool's to give
            assert result.data == {"forged": True} if how == "result" else result.error in (None, CRASHED)
        else:
            assert result.error in (CRASHED, TIMEOUT), result
        for what in (world.state, world.evidence):
            _, error = await told(what)
            assert error is None or how in ("result", "deep")
        await world.close()


@pytest.mark.attack("patch the worker")
@pytest.mark.parametrize("what", ["json", "builtins", "modules", "changes", "changes shape"])
async def test_a_patched_worker_fools_only_its_own_session(arena: Arena, what: str) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, "patch", what=what)
        assert result.error is None or result.error in (CRASHED, FAILED)
        for ask_it in (world.evidence, world.state):
            found, error = await told(ask_it)
            assert error is not None or isinstance(found, dict)
            for change in (found or {}).get("changes", []):
                assert isinstance(change["path"], list)
        assert (await attack_again(world)).error in (None, CRASHED, FAILED, TIMEOUT)
        await world.close()


async def attack_again(world: ExecutableWorld) -> ToolResult:
    try:
        result = await asyncio.wait_for(ask(world, "note", text="again"), 30 * WALL)
    except Aborted as error:
        return ToolResult("c", "", error=CRASHED, detail=error.detail)
    in_one_line(result)
    return result


@pytest.mark.attack("leave a hook behind")
@pytest.mark.parametrize("what", ["alarm", "deaf", "trace", "exit", "recursion", "gc", "place", "closed", "hooks"])
async def test_what_is_left_behind_stays_in_its_session(arena: Arena, what: str) -> None:
    async with arena.neighbours():
        world, result = await attack(arena, "leave", what=what)
        assert result.error in (None, CRASHED, FAILED)
        await asyncio.sleep(0.05)
        after = await attack_again(world)
        assert after.error in (None, CRASHED, FAILED, TIMEOUT)
        if what in ("deaf", "exit", "gc", "place"):
            assert after.error is None
        await asyncio.wait_for(world.close(), 40)


@pytest.mark.attack("corrupt the state")
@pytest.mark.parametrize("what", ["number", "gone", "half", "nan", "object", "cycle", "big", "large"])
async def test_a_spoilt_state_is_told_or_undone(arena: Arena, what: str) -> None:
    async with arena.neighbours():
        world, _ = await attack(arena, "spoil_state", what=what)
        for ask_it in (world.state, world.evidence):
            _, error = await told(ask_it)
            assert error is None or error.code in (Code.TOOL_FAILED, Code.WORKER_LOST)
        for _ in range(20):  # past a checkpoint
            result = await attack_again(world)
            assert result.error in (None, CRASHED, FAILED, REFUSED)
            if result.error is CRASHED:
                break
        await world.close()


@both
@pytest.mark.attack("share globals between episodes")
async def test_globals_of_one_episode_are_not_the_next_ones(arena: Arena) -> None:
    first, second = await arena.attacker(1), await arena.attacker(2)
    assert (await ask(first, "remember", text="x")).data == {}
    assert (await ask(second, "remember", text="y")).data == {}
    assert (await ask(first, "remember", text="z")).data == {"text": "x"}
    await first.close()
    await second.close()
