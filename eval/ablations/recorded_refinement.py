"""Measure the effect of refining the state (ScaleEnv §4.2.2): the recorded domain with `expansion.refinements` as recorded, and with 0.

The replies are those of tests/recordings/scaleenv-jobs.jsonl. Without refinement, its questions are not asked; all other questions get
the same replies. Each arm takes minutes of CPU. For each arm, the number of tools that every accepted task shows is stored.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from simia.config import load_config
from simia.errors import UserError
from simia.pack import Pack
from simia.synthesis.recipes.scaleenv import ScaleEnvConfig
from simia.synthesis.session import start_synthesis

RECORDING = Path(__file__).parents[2] / "tests" / "recordings" / "scaleenv-jobs.jsonl"
STORED = "scaleenv_refinement.json"
RECORDED = (
    "llm.kind=replay", f"llm.path={RECORDING}", "llm.match=draw", "building.operations=24", "building.kept=20", "building.tests=3",
    "building.debug_rounds=2", "chains.number=15", "expansion.least=20",
)  # fmt: skip
ARMS: dict[str, tuple[str, ...]] = {
    "recorded domain": (),
    "recorded domain, without refinement": ("expansion.refinements=0",),
}


class RefinementArm(BaseModel):
    """Result of one arm."""

    arm: str
    """Name of the arm."""
    chains: int
    """Chains that were executed."""
    tools: int
    """Tools of the environment."""
    refused: dict[str, str]
    """Chain → why it gave no task."""
    shown: dict[str, int]
    """Task that the gate passes → tools that its agent sees."""


def replay_arm(arm: str) -> RefinementArm:
    """Replay the domain. Raises `UserError` if the replay stops before its end."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "jobs"
        config = load_config(ScaleEnvConfig, "synth/scaleenv_small", (*RECORDED, *ARMS[arm]), source="job seeking")
        done = asyncio.run(start_synthesis(config, out, runs=Path(folder) / "runs", name="jobs", say=print))
        if done.stop.kind != "complete":
            raise UserError(
                f"{arm}: the replay stopped: {done.stop.detail}; run it again on a machine with a free core"
            )
        pack = Pack.load(out)
        shown = {task.id: len(task.tools or pack.tools) for task in pack.tasks}
        tools = len(pack.tools)
    refused = {key: str(each.reason) for stage in done.outputs.refused.values() for key, each in stage.items()}
    return RefinementArm(arm=arm, chains=len(done.outputs.of("chains")), tools=tools, refused=refused, shown=shown)


def read_arms(folder: Path) -> list[RefinementArm]:
    """The stored arms."""
    return [RefinementArm.model_validate(row) for row in json.loads((folder / STORED).read_text(encoding="utf-8"))]


def count_arm(arm: RefinementArm) -> Iterator[dict[str, Any]]:
    """Tasks of the chains, and tools that the tasks show."""
    shown = sum(arm.shown.values())
    rows = (
        ("recorded chains whose task the gate passes", len(arm.shown), arm.chains),
        ("tools shown, of those of each recorded task's domain", shown, arm.tools * len(arm.shown)),
    )
    for measure, count, of in rows:
        yield {"arm": arm.arm, "measure": measure, "count": count, "of": of}


def count_refinement(folder: Path) -> Iterator[dict[str, Any]]:
    """Replay both arms, store them in `folder`, and count."""
    arms = [replay_arm(arm) for arm in ARMS]
    (folder / STORED).write_text(json.dumps([arm.model_dump() for arm in arms], indent=1) + "\n", encoding="utf-8")
    for arm in arms:
        yield from count_arm(arm)
        print(
            f"{arm.arm}: {len(arm.shown)} tasks, {sum(arm.shown.values()) / len(arm.shown):.1f} tools shown on average"
        )
