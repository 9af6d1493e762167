"""EnvScaler on a small environment, with the replies of a strong model that saw each prompt alone: tools, assessment, two tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

from simia.authoring.validate import validate_pack
from simia.authoring.verification_gate import verify_tasks
from simia.config import load_config
from simia.envs.opening import open_environment
from simia.pack import Pack
from simia.synthesis.recipes.envscaler import EnvScalerConfig
from simia.synthesis.session import start_synthesis

RECORDING = Path(__file__).parents[1] / "recordings" / "envscaler-clinic.jsonl"
SETTINGS = (
    "llm.kind=replay", f"llm.path={RECORDING}", "llm.match=draw", "building.operations=5", "building.kept=4", "assessment.rounds=4",
    "assessment.chains=1", "states.number=1", "scenarios.modes=[non_conversation]", "variants=[missing_function]",
)  # fmt: skip


async def check_pack(pack: Pack) -> None:
    findings, _ = await validate_pack(pack)
    assert not [str(each) for each in findings if each.refuses]
    async with await open_environment(pack, user="none") as environment:
        report = await verify_tasks(environment, pack.tasks)
    assert report.passed, [str(each) for each in report.list_findings()]
    assert all(verdict.floors["nothing"] == 0 for verdict in report.verdicts)


def test_a_small_clinic_becomes_a_pack_with_two_tasks(tmp_path: Path) -> None:
    source = "appointments of a veterinary clinic"
    config = load_config(EnvScalerConfig, "synth/envscaler_small", SETTINGS, source=source)
    done = asyncio.run(
        start_synthesis(config, tmp_path / "clinic", runs=tmp_path / "runs", name="r", say=lambda _: None)
    )
    assert done.stop.kind == "complete", done.stop
    pack = Pack.load(tmp_path / "clinic")
    assert pack.state_schema is not None
    assert (len(pack.tools), len(pack.tasks)) == (6, 2)
    assert done.outputs.notes["assessment"]["appointments_of_a_veterinary_clinic"]["score"] >= 0.85
    asyncio.run(check_pack(pack))
