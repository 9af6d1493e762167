"""The same agent script in each world, chosen by one word: our packs here, imported ones in test_swap_imported.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from tests.envs.worlds.test_simulated import Scripted, result

WORLDS = ["executable", "simulated", "shadow", "mixed"]


def stand_in(request: Request) -> str:
    """Every call gives `{"ok": true}`, every episode is solved."""
    if str(request.messages[0]["content"]).startswith("You judge"):
        return '{"why": "fine", "solved": true}'
    count = str(request.messages[-1]["content"]).rpartition("# Calls to answer now")[2].strip().count("\n") + 1
    return json.dumps({"answers": [result({"ok": True}, call=n + 1) for n in range(count)]})


@pytest.mark.parametrize(
    ("name", "world"),
    [
        *(("customer_service", world) for world in WORLDS),
        *(
            pytest.param("office", world, marks=pytest.mark.trainers if world != "simulated" else ())
            for world in WORLDS
        ),
    ],
)
async def test_one_word_chooses_the_world(name: str, world: str) -> None:
    await play_in(Pack.load(name), world)


async def play_in(pack: Pack, world: str) -> None:
    """The solution of one task as the agent's script; the world is a word."""
    task = next(task for task in pack.tasks if len(task.actions) >= 2)
    backend: Any = {"*": "executable", task.actions[0].name: "simulated"} if world == "mixed" else world
    async with Engine(Scripted(stand_in), MemoryJournal(), EngineLimits(retries=0)) as engine:
        more = {} if world == "executable" else {"engine": engine}
        async with await open_environment(pack, backend=backend, user=ScriptedUser, **more) as environment:
            trajectory = await play(await environment.reset(task), ReferenceAgent(task))
    called = [call.name for message in trajectory.messages for call in message.calls]
    assert called == [action.name for action in task.actions]
    assert trajectory.end.kind == "terminated"
    assert trajectory.reward is not None
    assert trajectory.reward.value == 1.0
    results = [message.text for message in trajectory.messages if message.role == "tool"]
    assert (results[0] == '{"ok":true}') is (world in ("simulated", "mixed"))
    assert (results[-1] == '{"ok":true}') is (world == "simulated")
    assert len((trajectory.evidence or {}).get("differences", [])) == (len(called) if world == "shadow" else 0)
