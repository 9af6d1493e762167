"""Worlds in the sandbox: transactions, the journal, isolation, limits, bad input."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from simia.envs.worlds.executable import TRIES, ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.envs.worlds.journal import COMPACT
from simia.envs.worlds.simulated.backend import load_tables
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.sandbox.limits import MB, WorkerLimits
from simia.sandbox.worker import Worker
from simia.task import Action, Task
from simia.trajectory import ToolCall
from tests.envs.worlds.counter import counter
from tests.packs.small import small

T = Task(id="t")
BOTH = pytest.mark.parametrize("isolation", ["shared", "process"])


async def do(world: ExecutableWorld, name: str, **arguments: Any) -> ToolResult:
    return (await world.call([ToolCall(id="c", name=name, arguments=arguments)]))[0]


class opened:  # noqa: N801 - used as `async with opened(…) as backend`
    def __init__(self, folder: Path, pack: Pack | None = None, **settings: Any) -> None:
        self.backend = ExecutableBackend(pack or counter(folder), **settings)

    async def __aenter__(self) -> ExecutableBackend:
        return self.backend

    async def __aexit__(self, *_: object) -> None:
        await self.backend.close()


async def test_a_changed_task_with_the_same_id_has_a_solution_of_its_own(tmp_path: Path) -> None:
    one, two = (Task(id="t", reference=[Action(name="add", arguments={"n": n})]) for n in (1, 2))
    async with opened(tmp_path) as backend:
        first = await backend.expected(one, 0)
        again = one.model_copy(deep=True)
        assert await backend.expected(again, 0) is first, "an equal task is not played again"
        second = await backend.expected(two, 0)
        assert [changes[-1]["new"] for changes in (first, second)] == [1, 2]
        assert await backend.expected(one, 0) == first


@BOTH
@pytest.mark.parametrize("before", [0, 5, 40])
async def test_a_call_that_fails_leaves_the_state_as_it_was(tmp_path: Path, isolation: str, before: int) -> None:
    async with opened(tmp_path, isolation=isolation) as backend:
        world = await backend.open(T)
        for i in range(before):
            await do(world, "add", n=i % 7)
        state = await world.state()
        refused, failed = await do(world, "add", n=-5), await do(world, "add", n=13)
        assert (refused.error, refused.data) == (Code.TOOL_ERROR, {"error": "no negative numbers"})
        assert failed.error is Code.TOOL_FAILED
        assert "ZeroDivisionError" in failed.content
        assert "division by zero" in failed.detail
        assert await world.state() == state
        assert (await do(world, "add", n=1)).data == {"total": state["total"] + 1}
        await world.close()


async def test_a_state_with_a_key_that_occurs_twice_is_not_loaded(tmp_path: Path) -> None:
    """The last of two equal keys would win, and the first row would be lost."""
    pack = small(tmp_path / "p", state_json='{"todos": {\n"T-1": {"text": "a"},\n"T-1": {"text": "b"}}}')
    twice = r"state\.json, line 3: the key 'T-1' occurs twice in the same object"
    async with opened(tmp_path, pack) as backend:
        with pytest.raises(UserError, match=twice):
            await backend.open(T)
    with pytest.raises(UserError, match=twice):
        load_tables(pack)


@BOTH
async def test_a_killed_worker_is_followed_by_another_and_nobody_notices(tmp_path: Path, isolation: str) -> None:
    async with opened(tmp_path, isolation=isolation) as backend:
        worlds = [await backend.open(T, seed=i) for i in range(3)]
        for i, world in enumerate(worlds):
            for n in range(i + 2):
                await do(world, "add", n=n)
            await do(world, "draw")
        before = [await world.state() for world in worlds]
        for _ in range(2):
            kill_workers()
            assert [await world.state() for world in worlds] == before
        for world in worlds:
            await world.close()


def kill_workers() -> None:
    """Every process of a sandbox that has a zygote above it, as a machine in need of memory would."""
    parents: dict[int, int] = {}
    zygotes = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                if "inside/main.py" in Path(f"/proc/{entry}/cmdline").read_text():
                    zygotes.add(int(entry))
            except OSError:
                continue
    workers = [pid for pid in zygotes if parents.get(pid) in zygotes and is_ours(pid, parents)]
    assert workers
    # Of two levels (the command's own words stand in the walls' too) the lowest are the workers.
    lowest = [pid for pid in workers if not any(parents.get(other) == pid for other in zygotes)]
    for pid in lowest:
        os.kill(pid, signal.SIGKILL)


def is_ours(pid: int, parents: dict[int, int]) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parents.get(pid, 0)
    return False


async def test_a_world_that_reads_the_clock_of_the_machine_is_found_out_when_it_is_replayed(tmp_path: Path) -> None:
    async with opened(tmp_path) as backend:
        world = await backend.open(T)
        await do(world, "clock")
        kill_workers()
        with pytest.raises(Aborted) as caught:
            await do(world, "total")
        assert caught.value.code is Code.REPLAY_DIVERGED
        await world.close()


async def test_a_crash_is_its_own_calls_fault_only_when_it_was_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as backend:
        worlds = [await backend.open(T) for _ in range(30)]
        results = await asyncio.gather(
            *(do(w, "crash" if i == 11 else "add", **({} if i == 11 else {"n": 100 + i})) for i, w in enumerate(worlds))
        )
        assert results[11].error is Code.TOOL_CRASHED
        assert "exit code 1" in results[11].detail
        assert [r.data for i, r in enumerate(results) if i != 11] == [{"total": 100 + i} for i in range(30) if i != 11]
        for world in worlds:
            await world.close()


async def test_one_slow_call_among_a_hundred_shared_ones_is_the_only_one_that_fails(tmp_path: Path) -> None:
    async with opened(tmp_path, limits=WorkerLimits(wall=0.8)) as backend:
        worlds = [await backend.open(T) for _ in range(100)]
        for i, world in enumerate(worlds):
            await do(world, "add", n=i % 5)
        tasks = [do(w, "wait", seconds=60) if i == 42 else do(w, "add", n=1) for i, w in enumerate(worlds)]
        results = await asyncio.gather(*tasks)
        assert results[42].error is Code.TOOL_TIMEOUT
        assert all(r.error is None for i, r in enumerate(results) if i != 42)
        totals = [(await do(world, "total")).data["total"] for world in worlds]
        assert totals == [i % 5 + (i != 42) for i in range(100)]
        for world in worlds:
            await world.close()


@BOTH
async def test_what_is_drawn_follows_from_seed_and_call_alone(tmp_path: Path, isolation: str) -> None:
    async def play(backend: ExecutableBackend, seed: int, reads: int) -> list[Any]:
        world = await backend.open(T, seed=seed)
        found = [(await do(world, "draw")).data]
        for _ in range(reads):
            await do(world, "total")
        found.append((await do(world, "draw")).data)
        await world.close()
        return found

    async with opened(tmp_path, isolation=isolation) as one, opened(tmp_path, isolation=isolation) as two:
        first = await play(one, 7, 1)
        assert first == await play(two, 7, 1), "another process"
        assert first == await play(one, 7, 1), "another time"
        assert first[0] == (await play(one, 7, 2))[0]
        assert first[1] != (await play(one, 7, 2))[1], "the number of the call counts"
        assert first[0] != (await play(one, 8, 1))[0]


@BOTH
async def test_a_snapshot_goes_on_where_it_was_taken(tmp_path: Path, isolation: str) -> None:
    async with opened(tmp_path, isolation=isolation) as backend:
        world = await backend.open(T, seed=3)
        for n in range(5):
            await do(world, "add", n=n)
        snapshot = await world.snapshot()
        after = [(await do(world, "draw")).data, (await do(world, "total")).data]
        again = await backend.open(T, snapshot=snapshot)
        assert [(await do(again, "draw")).data, (await do(again, "total")).data] == after
        assert (await do(again, "add", n=100)).data["total"] == 110
        assert (await do(world, "total")).data["total"] == 10
        for each in (world, again):
            await each.close()


async def test_a_long_journal_is_folded_into_a_state(tmp_path: Path) -> None:
    async with opened(tmp_path) as backend:
        world = await backend.open(T)
        for _ in range(COMPACT + 5):
            await do(world, "add", n=1)
        assert len(world._journal.writes) < COMPACT
        kill_workers()
        assert (await do(world, "total")).data == {"total": COMPACT + 5, "steps": COMPACT + 5}
        assert {c["path"][0] for c in await world.request("changes")} == {"total", "log"}
        await world.close()


async def test_shared_episodes_have_globals_of_their_own(tmp_path: Path) -> None:
    async with opened(tmp_path, isolation="shared") as backend:
        one, two = await backend.open(T), await backend.open(T)
        await do(one, "remember", word="mine")
        assert (await do(two, "remember", word="yours")).data == {"seen": ["yours"]}
        assert (await do(one, "remember", word="too")).data == {"seen": ["mine", "too"]}
        for each in (one, two):
            await each.close()


async def test_idle_episodes_are_frozen_and_come_back_as_they_were(tmp_path: Path) -> None:
    pack = counter(tmp_path, state={"padding": "x" * 200_000})
    async with opened(tmp_path, pack, limits=WorkerLimits(live=1 * MB)) as backend:
        worlds = [await backend.open(T) for _ in range(40)]
        for turn in range(3):
            for i, world in enumerate(worlds):
                assert (await do(world, "add", n=20 + i)).data == {"total": (20 + i) * (turn + 1)}
        assert (await do(worlds[0], "add", n=-1)).error is Code.TOOL_ERROR
        assert [(await do(world, "total")).data["steps"] for world in worlds] == [3] * 40
        for world in worlds:
            await world.close()


@BOTH
async def test_initial_states(tmp_path: Path, isolation: str) -> None:
    async with opened(tmp_path, isolation=isolation) as backend:
        for initial, total in (({}, 0), ({"patch": {"total": 5}}, 5), ({"state": {"total": 9, "log": ["a"]}}, 9)):
            world = await backend.open(Task(id="t", initial=initial))
            assert (await do(world, "total")).data["total"] == total
            await do(world, "add", n=1)
            changes = await world.request("changes")
            assert {"path": ["total"], "old": total, "new": total + 1} in changes
            await world.close()
        for bad in ({"patch": {"total": "many"}}, {"pach": {}}):
            with pytest.raises(UserError, match="cannot be set up"):
                await backend.open(Task(id="t", initial=bad))


BAD: list[tuple[str, dict[str, Any] | None, Code, str]] = [
    ("ad", {"n": 1}, Code.UNKNOWN_TOOL, "did you mean add"),
    ("__init__", {"state": {}}, Code.UNKNOWN_TOOL, "there is no tool"),
    ("begin", {"call": 0, "by": "x"}, Code.UNKNOWN_TOOL, "there is no tool"),
    ("add", {}, Code.BAD_ARGUMENTS, "n"),
    ("add", {"n": "1"}, Code.BAD_ARGUMENTS, "n"),
    ("add", {"n": 1, "m": 2}, Code.BAD_ARGUMENTS, "m"),
    ("add", {"n": True}, Code.BAD_ARGUMENTS, "n"),
    ("wait", {"seconds": float("nan")}, Code.BAD_ARGUMENTS, "NaN"),
    ("wait", {"seconds": float("inf")}, Code.BAD_ARGUMENTS, "NaN or Infinity"),
    ("echo", {"value": "\ud800"}, Code.BAD_ARGUMENTS, "half a Unicode"),
    ("echo", {"value": "x" * (1 << 20)}, Code.BAD_ARGUMENTS, "more than"),
    ("add", None, Code.UNPARSABLE_ARGUMENTS, "not a JSON object"),
]


async def test_bad_input_is_one_line_and_never_reaches_the_code(tmp_path: Path) -> None:
    async with opened(tmp_path) as backend:
        world = await backend.open(T)
        for name, arguments, code, words in BAD:
            call = ToolCall(id="c", name=name, arguments=arguments, raw="{" if arguments is None else None)
            result = (await world.call([call]))[0]
            assert (result.error, words in result.content) == (code, True), result
            assert "\n" not in result.content
            assert len(result.content) < 1000
        deep: Any = "x"
        for _ in range(5000):
            deep = {"a": deep}
        assert (await do(world, "echo", value=deep)).error is Code.BAD_ARGUMENTS
        for value in ("🙂 שלום עולם \u202e", "x" * 900_000, "\x00\x1f", "</tool_response>"):
            assert (await do(world, "echo", value=value)).data == {"value": value}
        assert (await do(world, "add", n=2**80)).data == {"total": 2**80}
        await world.close()


@pytest.mark.parametrize("kills", [1, TRIES])
async def test_a_killed_check_says_nothing_about_the_state(
    tmp_path: Path, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs again. With its error the episode could not be judged, or what held at reset counted as the agent's work."""
    small(tmp_path, checks_py="def is_slow(final, initial):\n    import time\n    time.sleep(2)\n    return True\n")
    with (tmp_path / "pack.yaml").open("a") as head:
        head.write("\nchecks: checks.py\n")
    pack = Pack.load(tmp_path)
    task = Task.model_validate({"id": "t", "reward": {"parts": [{"kind": "checklist", "functions": ["is_slow"]}]}})
    ask, left = Worker.ask, [kills]

    def kill_checks(worker: Worker, what: str, *rest: Any, **settings: Any) -> Any:
        if what == "checks" and left[0]:
            left[0] -= 1
            asyncio.get_running_loop().call_later(0.5, kill_workers)
        return ask(worker, what, *rest, **settings)

    monkeypatch.setattr(Worker, "ask", kill_checks)
    async with opened(tmp_path, pack) as backend:
        found = await backend.checks(task, 0, [])
        assert found == {"is_slow": True if kills < TRIES else "error: the tool's process ended by signal 9"}
        assert left == [0]


FOREIGN = """
class Refused(Exception):
    __simia_refusal__ = True


class World:
    def __init__(self, pack):
        self.rows, self.gone = {"a": 1}, False

    def reset(self, initial, seed):
        self.rows = {"a": 1, **initial.get("rows", {})}

    def tools(self):
        return {"agent": {"set": True, "get": False}, "user": {}}

    def call(self, by, name, arguments, index):
        if name == "get":
            return f"a is {self.rows['a']}"
        self.rows["a"] = arguments["n"]
        if arguments["n"] == 0:
            raise Refused("Error: not zero, please")
        return "ok"

    def dump(self):
        return self.rows

    def restore(self, state):
        self.rows = dict(state)

    def check(self, name, by, arguments):
        return self.rows["a"] == arguments["n"]
"""


async def test_a_world_that_brings_its_own_methods(tmp_path: Path) -> None:
    number = {"type": "object", "properties": {"n": {"type": "integer"}}}
    import orjson

    (tmp_path / "tools.py").write_text(FOREIGN)
    (tmp_path / "tools.json").write_bytes(orjson.dumps([{"name": "set", "parameters": number}, {"name": "get"}]))
    (tmp_path / "pack.yaml").write_text(
        "format: 1\nname: f\ntools: tools.json\nexecutable: {code: tools.py, object: World}\n"
    )
    task = Task.model_validate(
        {
            "id": "t", "initial": {"rows": {"b": 2}}, "reference": [{"name": "set", "arguments": {"n": 5}}],
            "reward": {"parts": [{"kind": "state"}, {"kind": "checklist", "calls": [{"name": "is", "arguments": {"n": 5}, "expect": True}]}]},
        }
    )  # fmt: skip
    async with opened(tmp_path, Pack.load(tmp_path)) as backend:
        world = await backend.open(task)
        refused = await do(world, "set", n=0)
        assert (refused.content, refused.error) == ("Error: not zero, please", Code.TOOL_ERROR), (
            "its words to the letter"
        )
        assert (await do(world, "get")).content == "a is 1", "and rolled back"
        assert (await do(world, "set", n=5)).content == "ok"
        evidence = await world.evidence()
        change = [{"path": ["a"], "old": 1, "new": 5}]
        assert evidence == {
            "changes": change,
            "expected": change,
            "checks": {"0.is": True},
            "at_reset": {"0.is": False},
        }
        await world.close()
    with pytest.raises(UserError, match="isolation: process"):
        async with opened(tmp_path, Pack.load(tmp_path), isolation="shared") as backend:
            await backend.open(task)
