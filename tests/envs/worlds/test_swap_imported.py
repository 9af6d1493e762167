"""The same agent script in each world of imported packs: tau2's retail and airline, and OfficeBench, small and whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simia.importers import tau2
from simia.pack import Pack
from tests.envs.worlds.test_swap import WORLDS, play_in
from tests.importers.officebench import small
from tests.importers.officebench.conftest import plain
from tests.importers.officebench.play import BENCHMARK, SOLUTIONS, benchmark, walls

pytestmark = pytest.mark.usefixtures("environments")  # to import packs or to play them
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


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packs")


@pytest.mark.parametrize("domain", ["retail", "airline"])
@pytest.mark.parametrize("world", WORLDS)
async def test_tau2(root: Path, domain: str, world: str) -> None:
    if not (root / domain).exists():
        tau2.import_domain(domain, root / domain)
    await play_in(Pack.load(root / domain), world)


@walls
@pytest.mark.parametrize("world", WORLDS)
async def test_officebench_in_small(root: Path, world: str) -> None:
    if not (root / "small").exists():
        solutions = root / "solutions.jsonl"
        solutions.write_text(json.dumps({"task": "1-1/0", "actions": LUNCH}) + "\n")
        plain(small.folder(root / "tasks"), root / "small", solutions)
    await play_in(Pack.load(root / "small"), world)


@walls
@benchmark
@pytest.mark.parametrize("world", WORLDS)
async def test_officebench(root: Path, world: str) -> None:
    if not (root / "whole").exists():
        plain(BENCHMARK, root / "whole", SOLUTIONS)
    await play_in(Pack.load(root / "whole"), world)
