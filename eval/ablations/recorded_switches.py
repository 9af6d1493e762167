"""Measure what execution checks and the check agent find in replies of a strong model: the hotel recording, replayed with each switch off.

    python -m eval.ablations.recorded_switches

`synthesis_switches` does the same with replies that are written by hand. Here no reply is wrong on purpose: the recorded drafts go through
the recipe with `building.execution=false`, with `scenarios.execution=false`, or with `assessment.check_agent=false`. Accepted tools are then
executed (all tests, then random calls), accepted tasks verified by the gate. A replay takes some minutes; name a switch to replay it alone.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from eval.ablations.synthesis_switches import Count, find_faults
from simia.config import load_config
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.recipes.envscaler import EnvScalerConfig
from simia.synthesis.session import Synthesized, start_synthesis
from simia.synthesis.stage import StageOutputs

RECORDING = Path(__file__).parents[2] / "tests" / "recordings" / "envscaler-hotel.jsonl"
SOURCE = "hotel front desk"
SETTINGS = (
    "building.operations=18", "building.kept=15", "states.number=4", "states.rows=8", "scenarios.number=3", "assessment.chains=4",
    "variants=[missing_function]", "building.formats=false",
)  # fmt: skip
"""The settings that the recording was made with."""
SWITCHES = {
    "on": (),
    "building": ("building.execution=false",),
    "scenarios": ("scenarios.execution=false",),
    "agent": ("assessment.check_agent=false",),
}
"""Name of a switch → what it sets."""
KINDS = ("tools", "rounds", "tasks", "variants")


def replay_recording(recording: Path, source: str, settings: tuple[str, ...], folder: Path) -> Synthesized:
    """Replay a recording by item and label. A question that was not recorded ends the replay at its stage."""
    replaying = ("llm.kind=replay", f"llm.path={recording}", "llm.match=draw")
    config = load_config(EnvScalerConfig, "synth/envscaler_small", [*replaying, *settings], source=source)
    return asyncio.run(start_synthesis(config, folder / "out", runs=folder / "runs", name="r", say=lambda _: None))


def count_accepted(outputs: StageOutputs) -> dict[str, Count]:
    """Count the tools of the pack and those that fail when executed; rounds of the assessment and failed ones; tasks and variants that
    reached the gate and those that it refused."""
    found = {kind: Count() for kind in KINDS}
    tools = found["tools"]
    tools.given = len(outputs.of("tools")) + len(outputs.refused.get("tools", {}))
    for key, value in outputs.of("environments").items():
        built = BuiltEnvironment.model_validate(outputs.of("assessment").get(key, value))
        tools.accepted += len(built.tools)
        tools.failed += find_faults(built)
    for note in outputs.notes.get("assessment", {}).values():
        found["rounds"].given += note["rounds"]
        found["rounds"].accepted += note["passed"]
        found["rounds"].failed += [str(each["call"]) for each in note["failures"]]
    for kind, stage in (("tasks", "gated"), ("variants", "variants")):
        count, refused = found[kind], outputs.refused.get(stage, {})
        count.given = count.accepted = len(outputs.of(stage)) + len(refused)
        count.failed += [f"{key}: {each.reason}" for key, each in refused.items()]
    return found


def main() -> None:
    console = Console()
    table = Table(
        "off",
        "kind",
        "given",
        "accepted",
        "fail afterwards",
        title="The recorded hotel: accepted, and what fails of it",
    )
    for name in sys.argv[1:] or SWITCHES:
        with tempfile.TemporaryDirectory() as folder:
            done = replay_recording(RECORDING, SOURCE, (*SETTINGS, *SWITCHES[name]), Path(folder))
        if done.stop.kind != "complete":
            console.print(f"{name}: the replay ended early: {done.stop}", style="yellow")
        for kind, count in count_accepted(done.outputs).items():
            table.add_row(name, kind, str(count.given), str(count.accepted), str(len(count.failed)))
            console.print(f"{name}, {kind}: {'; '.join(count.failed) or 'nothing fails'}", style="dim")
    console.print(table)


if __name__ == "__main__":
    main()
