"""Hostile checks of a task, and worlds that attack when an episode begins: judged as errors, in time, alone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from simia.errors import Aborted, Code
from simia.reward_spec import ChecklistSpec, RewardSpec
from simia.sandbox.limits import WorkerLimits
from simia.task import Task
from tests.sandbox.making import ANY, HEAD, TASK, ask, gone, make_pack, notes_pack, opened

LIMITS = WorkerLimits(wall=1.0, start=2.0)


def checked(code: dict[str, str]) -> Task:
    return Task(id="t", reward=RewardSpec(parts=[ChecklistSpec(code=code)]))


ENDING = {
    "exit": "import os\ndef check(final, initial):\n    os._exit(0)",
    "loop at its top": "while True: pass",
    "words": "class E(Exception):\n    def __str__(self):\n        while True: pass\ndef check(final, initial): raise E",
    "forge": (
        "import os, struct\ndef check(final, initial):\n    body = b'[[1,[0,5]]]'\n    for n in range(3, 64):\n"
        "        try: os.write(n, struct.pack('!I', len(body)) + body)\n        except OSError: pass"
    ),
}


@pytest.mark.attack("break a check's process", where="process")
@pytest.mark.parametrize("name", ENDING)
async def test_checks_that_do_not_answer_are_errors(tmp_path: Path, name: str) -> None:
    code = {"bad": ENDING[name]}
    pack = notes_pack(tmp_path / "n", isolation="process")
    start = time.monotonic()
    async with opened(pack, limits=LIMITS) as backend:
        neighbour = await backend.open(TASK)
        await ask(neighbour, "add", text="x")
        world = await backend.open(checked(code))
        evidence = await asyncio.wait_for(world.evidence(), 240)
        assert evidence["changes"] == []
        for part in ("checks", "at_reset"):
            assert list(evidence[part]) == ["bad"]
            assert evidence[part]["bad"].startswith("error: ")
            assert "\n" not in evidence[part]["bad"]
        assert time.monotonic() - start < 80
        assert (await ask(neighbour, "look")).data["count"] == 1
        await world.close()
    assert await gone(str(pack.root)) == []


@pytest.mark.attack("pass a check by its side effects", where="process")
async def test_checks_see_copies_and_their_own_errors(tmp_path: Path) -> None:
    """What one check does to the states, the next one does not see; what it raises is its own."""
    task = checked(
        {
            "mutates": "def check(final, initial):\n    final['notes'].clear(); initial.clear(); return True",
            "after": "def check(final, initial):\n    return len(final['notes']) == 2 and len(initial['notes']) == 1",
            "raises": "def check(final, initial):\n    raise SystemExit(0)",
            "loud": "class E(Exception):\n    def __str__(self): raise E\ndef check(final, initial): raise E",
            "half": "def check(final, initial):\n    raise ValueError('\\ud800')",
            "syntax": "def check(:",
            "none": "x = 1",
            "arguments": "def check(): return True",
            "claims": "def check(final, initial): return {'checks': {'raises': True}}",
            "helped": "from math import floor\ndef other(x): return 0\ndef check(final, initial): return floor(1.5) == 1",
            "no": "def check(final, initial): return []",
        }
    )
    async with opened(notes_pack(tmp_path / "n"), limits=LIMITS) as backend:
        world = await backend.open(task)
        await ask(world, "add", text="x")
        found = (await world.evidence())["checks"]
    errors = {item for item, value in found.items() if isinstance(value, str)}
    assert errors == {"raises", "loud", "half", "syntax", "none", "arguments"}
    assert {item: value for item, value in found.items() if item not in errors} == {
        "mutates": True, "after": True, "claims": True, "helped": True, "no": False,
    }  # fmt: skip
    assert all(found[item].startswith("error: ") and len(found[item]) < 2100 for item in errors)


BEGINNING = {
    "loop": "while True: pass",
    "exit": "import os; os._exit(3)",
    "segfault": "import ctypes; ctypes.string_at(0)",
}


@pytest.mark.parametrize("name", BEGINNING)
async def test_a_world_that_attacks_when_an_episode_begins_is_aborted(tmp_path: Path, name: str) -> None:
    code = HEAD + (
        "class State(BaseModel):\n    x: int = 0\nclass World(Tools[State]):\n    State = State\n"
        f"    def __init__(self, state: State) -> None:\n        super().__init__(state)\n        {BEGINNING[name]}\n"
        "    @read\n    def look(self) -> int:\n        return 1\n"
    )
    pack = make_pack(tmp_path / "n", code, {"look": ANY})
    async with opened(pack, limits=LIMITS) as backend:
        with pytest.raises(Aborted) as caught:
            await asyncio.wait_for(backend.open(TASK), 160)
    assert caught.value.code is Code.WORKER_LOST
    assert "\n" not in str(caught.value)
    assert await gone(str(pack.root)) == []


@pytest.mark.attack("end the worker later", where="process")
async def test_a_write_that_ends_its_process_later_does_not_loop_for_ever(tmp_path: Path) -> None:
    """It answers, then dies, and does so again at every repeat: the next call must end with an error, not be tried for ever."""
    code = HEAD + (
        "import os, signal\n"
        "class State(BaseModel):\n    x: int = 0\nclass World(Tools[State]):\n    State = State\n"
        "    @write\n    def mine(self) -> str:\n"
        "        signal.signal(signal.SIGALRM, signal.SIG_DFL)\n        signal.setitimer(signal.ITIMER_REAL, 0.002)\n        return 'laid'\n"
        "    @read\n    def look(self) -> int:\n        return 1\n"
    )
    pack = make_pack(tmp_path / "n", code, {"mine": ANY, "look": ANY})
    async with opened(pack, limits=LIMITS) as backend:
        world = await backend.open(TASK)
        assert (await ask(world, "mine")).content == "laid"
        await asyncio.sleep(0.05)
        for _ in range(3):
            result = await asyncio.wait_for(ask(world, "look"), 80)
            assert result.error in (None, Code.TOOL_CRASHED)
            await asyncio.sleep(0.01)
        await world.close()


@pytest.mark.parametrize("isolation", ["shared", "process"])
async def test_who_stops_waiting_leaves_the_state_as_the_journal_says(tmp_path: Path, isolation: str) -> None:
    code = HEAD + (
        "import time\n"
        "class State(BaseModel):\n    x: int = 0\nclass World(Tools[State]):\n    State = State\n"
        "    @write\n    def slow(self, seconds: float) -> int:\n        self.state.x += 1\n        time.sleep(seconds)\n        return self.state.x\n"
    )
    pack = make_pack(tmp_path / "n", code, {"slow": ANY}, isolation=isolation)
    async with opened(pack, limits=WorkerLimits(wall=40.0)) as backend:
        world = await backend.open(TASK)
        assert (await ask(world, "slow", seconds=0)).data == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(world, "slow", seconds=0.3), 0.05)
        assert await world.state() == {"x": 1}
        assert (await ask(world, "slow", seconds=0)).data == 2
        await world.close()
