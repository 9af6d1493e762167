"""CodeGym on the shipped problems, with the replies of a strong model that saw each prompt alone: the same packs, and gyms that hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from simia.authoring.validate import validate_pack
from simia.authoring.verification_gate import verify_tasks
from simia.config import load_config
from simia.envs.opening import open_environment
from simia.pack import Pack
from simia.synthesis.recipes.codegym import CodeGymConfig
from simia.synthesis.session import Synthesized, start_synthesis

RECORDING = Path(__file__).parents[1] / "recordings" / "codegym.jsonl"
SETTINGS = (
    "llm.kind=replay", f"llm.path={RECORDING}", "llm.match=draw", "solutions.k=4", "difficulty.agent=null",
)  # fmt: skip
MADE = {
    "bakery-shelf", "cold-cells", "ferry-trip", "guild-pairs", "kiln-queue", "score-formula", "shortest-ribbon", "tank-cascade",
    "unwatched-minutes",
}  # fmt: skip


def replay(tmp_path: Path, *more: str) -> Synthesized:
    config = load_config(CodeGymConfig, "synth/codegym", [*SETTINGS, *more])
    return asyncio.run(start_synthesis(config, tmp_path / "gym", runs=tmp_path / "runs", name="r", say=lambda _: None))


async def check_pack(folder: Path) -> None:
    pack = Pack.load(folder)
    findings, _ = await validate_pack(pack)
    assert not [str(each) for each in findings if each.refuses]
    async with await open_environment(pack, user="none") as environment:
        report = await verify_tasks(environment, pack.tasks[:4])
    assert report.passed, [str(each) for each in report.list_findings()]
    assert all(verdict.floors["nothing"] == 0 for verdict in report.verdicts)


def test_two_problems_become_gyms(tmp_path: Path) -> None:
    done = replay(tmp_path, "problems=2")
    assert done.stop.kind == "complete", done.stop
    assert [pack.name for pack in done.packs] == ["cold-cells", "ferry-trip"]
    for pack in done.packs:
        asyncio.run(check_pack(pack))
    record = orjson.loads((done.packs[0] / "synthesis.json").read_bytes())
    assert (record["recipe"], record["model"]) == ("codegym", "strong")


@pytest.mark.all
def test_nine_of_ten_problems_become_gyms(tmp_path: Path) -> None:
    done = replay(tmp_path)
    assert done.stop.kind == "complete", done.stop
    assert {pack.name for pack in done.packs} == MADE
    assert {key: str(each.reason) for key, each in done.outputs.refused["solutions"].items()} == {
        "terrace-path": "few_tools_used"
    }
    for pack in done.packs:
        asyncio.run(check_pack(pack))
