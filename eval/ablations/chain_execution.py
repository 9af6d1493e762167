"""Measure what executing chains finds: how many are accepted without it, and which of them the verification gate refuses or passes.

    python -m eval.ablations.chain_execution

The replies are those of tests/synthesis/fixtures/chains, written by hand: right chains of the library, and wrong and hostile ones whose code can be
read. Each becomes a task in an environment of its own, with everything on and with `chains.execution=false`, and is gated.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import Stage, StageOutputs
from simia.synthesis.stages.chains import ChainSettings, ChainStage
from simia.synthesis.stages.gated import Gated, Verdicts
from simia.synthesis.stages.instructions import ChainTasks, Instructions
from tests.synthesis.build_fixtures import FixtureEngine, load_library, run_stages
from tests.synthesis.chain_fixtures import BAD_CHAINS, GOOD_CHAINS, GRAPH, MODES, TOOLS, list_chain_replies

LAST_TRY = ("repair1", "repair2")


@dataclass(slots=True)
class ChainCount:
    """Outcomes of the chains."""

    given: int = 0
    accepted: int = 0
    gate_refuses: dict[str, str] = field(default_factory=dict)
    """Accepted chain → why the gate refuses its task."""
    gate_passes: list[str] = field(default_factory=list)
    """Accepted chains with wrong code whose tasks the gate passes."""


def list_cases() -> dict[str, str]:
    """Name → chain: the right ones, and the wrong ones that execution finds."""
    wrong = {name: case["chain"] for name, case in BAD_CHAINS.items() if LAST_TRY[0] in case["replies"]}
    return {**{name: name for name in GOOD_CHAINS}, **wrong}


def count_chains(execution: bool, cases: Collection[str]) -> ChainCount:
    """Make and verify the tasks of these cases. A writer that made an error repeats it, so a chain is never repaired."""
    count, built = ChainCount(), load_library()
    for name, chain in list_cases().items():
        if name not in cases:
            continue
        count.given += 1
        replies = dict(BAD_CHAINS[name]["replies"]) if name in BAD_CHAINS else {}
        if "code" in replies:
            replies |= dict.fromkeys(LAST_TRY, replies["code"])
        found = run_case(name, chain, list_chain_replies(f"{name}/0", chain, replies), built, execution)
        if not found.of(Instructions.name):
            continue
        count.accepted += 1
        if refused := found.refused.get(Gated.name, {}).get(f"{name}/0"):
            count.gate_refuses[name] = str(refused.reason)
        elif "code" in replies:
            count.gate_passes.append(name)
    return count


def run_case(name: str, chain: str, replies: dict[str, str], built: BuiltEnvironment, execution: bool) -> StageOutputs:
    settings = ChainSettings(number=1, modes=[MODES[chain]], repairs=len(LAST_TRY), distractors=0, execution=execution)
    tasks = ChainTasks()
    stages: list[Stage] = [
        ChainStage(settings, lambda graph, rng: TOOLS[chain]),
        Instructions(settings),
        Verdicts(tasks),
        Gated(tasks, TaskDifficultySettings()),
    ]
    outputs = StageOutputs(made={"environments": {name: dump(built)}, "graph": {name: GRAPH}})
    return run_stages(FixtureEngine(replies), stages, outputs)


def main() -> None:
    table = Table("switch", "given", "accepted", "the gate refuses", "wrong, and the gate passes", title="Chains")
    console = Console()
    for switch, execution in (("everything on", True), ("without execution", False)):
        count = count_chains(execution, list_cases())
        passed, refused = len(count.gate_passes), len(count.gate_refuses)
        table.add_row(switch, str(count.given), str(count.accepted), str(refused), str(passed))
        console.print(
            f"{switch}: refused {dict(sorted(count.gate_refuses.items()))}; passed {count.gate_passes}", style="dim"
        )
    console.print(table)


if __name__ == "__main__":
    main()
