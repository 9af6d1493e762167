"""EnvScaler on "hotel front desk", with the replies of a strong model that saw each prompt alone: a pack to train on."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from simia.authoring.validate import validate_pack
from simia.authoring.verification_gate import verify_tasks
from simia.config import load_config
from simia.envs.opening import open_environment
from simia.pack import Pack
from simia.search_path import data_root
from simia.synthesis.pack_output import is_same_tree
from simia.synthesis.recipes.envscaler import EnvScalerConfig
from simia.synthesis.session import start_synthesis

RECORDING = Path(__file__).parents[1] / "recordings" / "envscaler-hotel.jsonl"
SETTINGS = (
    "llm.kind=replay", f"llm.path={RECORDING}", "llm.match=draw", "building.operations=18", "building.kept=15", "states.number=4",
    "states.rows=8", "scenarios.number=3", "assessment.chains=4", "variants=[missing_function]",
)  # fmt: skip


async def check_pack(folder: Path) -> None:
    pack = Pack.load(folder)
    findings, _ = await validate_pack(pack)
    assert not [str(each) for each in findings if each.refuses]
    async with await open_environment(pack, user="none") as environment:
        report = await verify_tasks(environment, pack.tasks[:3])
    assert report.passed, [str(each) for each in report.list_findings()]
    assert all(verdict.floors["nothing"] == 0 for verdict in report.verdicts)


def test_a_hotel_with_scenarios_in_both_modes(tmp_path: Path) -> None:
    config = load_config(EnvScalerConfig, "synth/envscaler_small", SETTINGS, source="hotel front desk")
    done = asyncio.run(
        start_synthesis(config, tmp_path / "hotel", runs=tmp_path / "runs", name="r", say=lambda _: None)
    )
    assert done.stop.kind == "complete", done.stop
    shipped = data_root() / "seeds" / "hotel_front_desk"
    assert is_same_tree(tmp_path / "hotel", shipped), f"cp -r {tmp_path / 'hotel'}/. {shipped}/"
    pack = Pack.load(tmp_path / "hotel")
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.state_schema.tables)) == (33, 8)
    tags = Counter(tag for task in pack.tasks for tag in task.tags)
    assert (tags["conversation"], tags["non_conversation"], tags["missing_function"]) == (24, 12, 12)
    note = done.outputs.notes["assessment"]["hotel_front_desk"]
    assert note["score"] >= 0.85
    asyncio.run(check_pack(tmp_path / "hotel"))
