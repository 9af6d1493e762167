"""EnvScaler with the replies of a strong model that saw each prompt alone: a pack to train on, and a small one."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from simia.authoring.validate import validate_pack
from simia.authoring.verification_gate import verify_tasks
from simia.config import load_config
from simia.envs.opening import open_environment
from simia.pack import Pack
from simia.search_path import data_root
from simia.synthesis.pack_output import is_same_tree
from simia.synthesis.recipes.envscaler import EnvScalerConfig
from simia.synthesis.session import Synthesized, start_synthesis

RECORDINGS = Path(__file__).parents[1] / "recordings"
SMALL = [
    "building.operations=5", "building.kept=4", "assessment.rounds=4", "assessment.chains=1", "states.number=1",
    "scenarios.modes=[non_conversation]", "variants=[missing_function]",
]  # fmt: skip


def replay(recording: str, source: str, settings: list[str], out: Path) -> tuple[Synthesized, Pack]:
    """Replay a recording, which must be complete."""
    settings = ["llm.kind=replay", f"llm.path={RECORDINGS / recording}", "llm.match=draw", *settings]
    config = load_config(EnvScalerConfig, "synth/envscaler_small", settings, source=source)
    done = asyncio.run(start_synthesis(config, out, runs=out.parent / "runs", name="r", say=lambda _: None))
    assert done.stop.kind == "complete", done.stop
    return done, Pack.load(out)


async def check_pack(pack: Pack) -> None:
    findings, _ = await validate_pack(pack)
    assert not [str(each) for each in findings if each.refuses]
    await check_tasks(pack)


async def check_tasks(pack: Pack) -> None:
    """The gate. Of a shipped pack it is all that is left to check: tests/packs/test_shipped_packs.py validates the same files."""
    async with await open_environment(pack, user="none") as environment:
        report = await verify_tasks(environment, pack.tasks[:3])
    assert report.passed, [str(each) for each in report.list_findings()]
    assert all(verdict.floors["nothing"] == 0 for verdict in report.verdicts)


@pytest.mark.all
def test_a_hotel_with_scenarios_in_both_modes(tmp_path: Path) -> None:
    settings = [
        "building.operations=18", "building.kept=15", "states.number=4", "states.rows=8", "scenarios.number=3", "assessment.chains=4",
        "variants=[missing_function]", "building.formats=false",
    ]  # fmt: skip
    done, pack = replay("envscaler-hotel.jsonl", "hotel front desk", settings, tmp_path / "hotel")
    shipped = data_root() / "seeds" / "hotel_front_desk"
    assert is_same_tree(tmp_path / "hotel", shipped), f"cp -r {tmp_path / 'hotel'}/. {shipped}/"
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.state_schema.tables)) == (33, 8)
    tags = Counter(tag for task in pack.tasks for tag in task.tags)
    assert (tags["conversation"], tags["non_conversation"], tags["missing_function"]) == (24, 12, 12)
    assert done.outputs.notes["assessment"]["hotel_front_desk"]["score"] >= 0.85
    asyncio.run(check_tasks(pack))


def test_a_small_clinic_becomes_a_pack_with_two_tasks(tmp_path: Path) -> None:
    source = "appointments of a veterinary clinic"
    done, pack = replay("envscaler-clinic.jsonl", source, SMALL, tmp_path / "clinic")
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.tasks)) == (6, 2)
    assert done.outputs.notes["assessment"]["appointments_of_a_veterinary_clinic"]["score"] >= 0.85
    asyncio.run(check_pack(pack))
