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
from simia.search_path import data_root
from simia.synthesis.pack_output import is_same_tree
from simia.synthesis.recipes.codegym import CodeGymConfig
from simia.synthesis.session import Synthesized, start_synthesis

RECORDING = Path(__file__).parents[1] / "recordings" / "codegym.jsonl"
TERRACES = Path(__file__).parent / "fixtures" / "gym" / "terrace_path.jsonl"
"""A problem that was one of the ten: its gym needs too few tools."""
SHIPPED = data_root() / "seeds" / "gyms"
SETTINGS = (
    "llm.kind=replay", f"llm.path={RECORDING}", "llm.match=draw", "solutions.k=4", "difficulty.agent=null",
)  # fmt: skip
MADE = {
    "bakery-shelf", "cold-cells", "ferry-trip", "guild-pairs", "kiln-queue", "parcel-vans", "score-formula", "shortest-ribbon",
    "tank-cascade", "unwatched-minutes",
}  # fmt: skip


def replay(tmp_path: Path, *more: str) -> Synthesized:
    config = load_config(CodeGymConfig, "synth/codegym", [*SETTINGS, *more])
    return asyncio.run(start_synthesis(config, tmp_path / "gym", runs=tmp_path / "runs", name="r", say=lambda _: None))


async def check_pack(pack: Pack) -> None:
    findings, _ = await validate_pack(pack)
    assert not [str(each) for each in findings if each.refuses]
    await check_tasks(pack)


async def check_tasks(pack: Pack) -> None:
    """The gate. Of a shipped pack it is all that is left to check: tests/packs/test_shipped_packs.py validates the same files."""
    async with await open_environment(pack, user="none") as environment:
        report = await verify_tasks(environment, pack.tasks[:4])
    assert report.passed, [str(each) for each in report.list_findings()]
    assert all(verdict.floors["nothing"] == 0 for verdict in report.verdicts)


@pytest.mark.all
def test_the_first_problems_become_gyms(tmp_path: Path) -> None:
    names = ["cold-cells", "ferry-trip"]
    done = replay(tmp_path, "problems=2")
    assert done.stop.kind == "complete", done.stop
    assert [pack.name for pack in done.packs] == names
    for pack in done.packs:
        asyncio.run(check_tasks(Pack.load(pack)))
        for file in sorted(pack.iterdir()):
            same = file.read_bytes() == (SHIPPED / pack.name / file.name).read_bytes()
            assert same is (file.name != "synthesis.json"), (
                f"{file} and the shipped one; {file.name} tells of all problems"
            )
    record = orjson.loads((done.packs[0] / "synthesis.json").read_bytes())
    assert (record["recipe"], record["model"]) == ("codegym", "strong")

    checked = {key: (note["kept"], note["answered_by_observe"]) for key, note in record["notes"]["hard"].items()}
    assert checked == dict.fromkeys(names, (10, 0)), "enlarged inputs that `observe` answers"


@pytest.mark.all
def test_a_lucky_observer_costs_one_enlarged_input(tmp_path: Path) -> None:
    """The shipped `score-formula` has it still: a function that sees its length alone answers 9 for a long formula."""
    rows = (SHIPPED.parent / "problems" / "problems.jsonl").read_bytes().splitlines()
    problem = next(row for row in rows if orjson.loads(row)["id"] == "score-formula")
    (tmp_path / "problem.jsonl").write_bytes(problem)
    done = replay(tmp_path, f"source={tmp_path / 'problem.jsonl'}")
    assert done.stop.kind == "complete", done.stop
    shipped = {task.id for task in Pack.load(SHIPPED / "score-formula").tasks}
    assert shipped - {task.id for task in Pack.load(done.packs[0]).tasks} == {"augmented-08"}


@pytest.mark.all
def test_ten_problems_become_the_shipped_gyms(tmp_path: Path) -> None:
    done = replay(tmp_path, "problems=10", "hard.observe_check=false")
    assert done.stop.kind == "complete", done.stop
    assert {pack.name for pack in done.packs} == MADE
    assert not any(done.outputs.refused.values()), done.outputs.refused
    assert is_same_tree(tmp_path / "gym", SHIPPED), f"cp -r {tmp_path / 'gym'}/. {SHIPPED}/"
    for pack in done.packs:
        asyncio.run(check_pack(Pack.load(pack)))


def test_a_problem_whose_oracle_needs_too_few_tools_is_refused(tmp_path: Path) -> None:
    done = replay(tmp_path, f"source={TERRACES}")
    assert (done.stop.kind, done.packs) == ("complete", [])
    assert {key: str(each.reason) for key, each in done.outputs.refused["solutions"].items()} == {
        "terrace-path": "few_tools_used"
    }
