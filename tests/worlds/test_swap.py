"""The same agent script in each world of each pack: ours, tau2's retail and OfficeBench, chosen by one word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.environment import open_environment
from simia.importers import tau2
from simia.importers.officebench import import_tasks
from simia.llm.engine import Engine, Limits, MemoryJournal
from simia.llm.types import Request
from simia.pack import Pack
from simia.rollout.play import play
from simia.rollout.scripted import ReferenceAgent
from simia.users import ScriptedUser
from tests.importers.officebench import small
from tests.worlds.test_simulated import Scripted, result

WORLDS = ["executable", "simulated", "shadow", "mixed"]
LUNCH = [
    {"name": "system.switch_app", "arguments": {"target_app": "calendar"}},
    {
        "name": "calendar.create_event",
        "arguments": {
            "user": "Ann",
            "summary": "lunch with Dora",
            "time_start": "2024-05-06 12:00:00",
            "time_end": "2024-05-06 13:00:00",
        },
    },
    {"name": "system.finish_task", "arguments": {"answer": "done"}},
]


def stand_in(request: Request) -> str:
    """Every call gives `{"ok": true}`, every episode is solved."""
    if str(request.messages[0]["content"]).startswith("You judge"):
        return '{"why": "fine", "solved": true}'
    count = str(request.messages[-1]["content"]).rpartition("# Calls to answer now")[2].strip().count("\n") + 1
    return json.dumps({"answers": [result({"ok": True}, call=n + 1) for n in range(count)]})


def of_name(name: str, folder: Path) -> Pack:
    if name == "tau2-retail":
        return Pack.load(tau2.import_domain("retail", folder / name))
    if name == "officebench":
        (folder / "solutions.jsonl").write_text(json.dumps({"task": "1-1/0", "actions": LUNCH}) + "\n")
        tasks = small.folder(folder / "tasks")
        return Pack.load(import_tasks(tasks, folder / name, solutions=folder / "solutions.jsonl"))
    return Pack.load(name)


@pytest.fixture(scope="module", params=["customer_service", "office", "tau2-retail", "officebench"])
def pack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pack:
    return of_name(request.param, tmp_path_factory.mktemp("packs"))


@pytest.mark.parametrize("world", WORLDS)
async def test_one_word_chooses_the_world(pack: Pack, world: str) -> None:
    task = next(task for task in pack.tasks if len(task.actions) >= 2)
    backend: Any = {"*": "executable", task.actions[0].name: "simulated"} if world == "mixed" else world
    async with Engine(Scripted(stand_in), MemoryJournal(), Limits(retries=0)) as engine:
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
