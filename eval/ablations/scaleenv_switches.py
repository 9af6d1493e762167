"""What the checks of ScaleEnv's tasks find: how many tasks are accepted without them, and what is wrong with those.

    python -m eval.ablations.scaleenv_switches

The replies are those of tests/synthesis/fixtures/chains and fixtures/expansion, written by hand for the library: right chains in a state in which
all tools can be used, right chains in a state in which one cannot, and wrong and hostile chains. Each goes through the stages `chains`,
`expansions`, `instructions`, `verdicts` and `gated` with everything on, without refinement of the state, and without execution. Of what the
stage `instructions` accepts, the gate's verdicts are counted, and every tool that the agent sees is called in the state of the task. The figures
of the switch `topology` are those of `eval.ablations.chain_sampling`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain import ChainTask
from simia.synthesis.chains.chain_runs import play_chain
from simia.synthesis.context import ItemContext
from simia.synthesis.expansion.entry_runs import try_tool
from simia.synthesis.expansion.known_arguments import ArgumentFinder, KnownValues
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.reply_reading import dump
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.chains import ChainSettings, ChainStage
from simia.synthesis.stages.expansions import Expansions, ExpansionSettings
from simia.synthesis.stages.gated import Gated, Verdicts
from simia.synthesis.stages.instructions import ChainTasks, Instructions
from tests.synthesis.build_fixtures import FixtureEngine, load_library, run_stages
from tests.synthesis.chain_fixtures import BAD_CHAINS, GOOD_CHAINS, GRAPH, MODES, TOOLS, list_chain_replies
from tests.synthesis.test_expansions import REPLIES

KEY = "library/0"
NO_FINES: dict[str, Any] = {"members": {"MB-02": {"fines": 0}}}
WRONG = ("constant_in_a_call", "knows_an_id", "computes_an_id", "only_reads", "hides_a_refusal", "endless")


@dataclass(frozen=True, slots=True)
class TaskSwitches:
    """What is on."""

    name: str
    execution: bool = True
    refinements: int = 2


EVERYTHING = TaskSwitches("everything on")
UNREFINED = TaskSwitches("without refinement", refinements=0)
UNVERIFIED = TaskSwitches("without execution", execution=False)
TASK_SWITCHES = (EVERYTHING, UNREFINED, UNVERIFIED)


@dataclass(slots=True)
class TaskCount:
    """How many tasks were given and accepted, and what is wrong with the accepted ones."""

    given: int = 0
    accepted: int = 0
    refused: list[str] = field(default_factory=list)
    """Accepted tasks that the gate refuses, with its reason."""
    unusable: list[str] = field(default_factory=list)
    """Accepted tasks that show a tool which no call could execute in their state."""
    shown: int = 0
    """Tools that the accepted tasks show, in all."""


def list_cases() -> dict[str, tuple[str, dict[str, str]]]:
    """Name of a case → its chain, and its replies by sample."""
    found = {f"right {name}": (name, list_chain_replies(KEY, name)) for name in GOOD_CHAINS}
    for name in ("lend", "renew"):
        found[f"right {name}, one tool unusable"] = (name, list_chain_replies(KEY, name, {"state": NO_FINES}))
    for name in WRONG:
        case = BAD_CHAINS[name]
        found[f"wrong {name}"] = (case["chain"], list_chain_replies(KEY, case["chain"], case["replies"]))
    return found


def run_case(chain: str, replies: dict[str, str], switches: TaskSwitches) -> StageOutputs:
    """One chain through the stages of the tasks."""
    settings = ChainSettings(number=1, modes=[MODES[chain]], execution=switches.execution)
    expansion = ExpansionSettings(
        least=6, chains=1, random_calls=40, execution=switches.execution, refinements=switches.refinements
    )
    tasks = ChainTasks()
    stages = [
        ChainStage(settings, lambda graph, rng: TOOLS[chain]),
        Expansions(expansion),
        Instructions(settings),
        Verdicts(tasks),
        Gated(tasks, TaskDifficultySettings()),
    ]
    made = {"environments": {"library": dump(load_library())}, "graph": {"library": GRAPH}}
    engine = FixtureEngine(replies | {f"expansions/{KEY}.refinement1": REPLIES["good_patch"]})
    return run_stages(engine, stages, StageOutputs(made=made))


async def find_unusable_tools(made: ChainTask) -> list[str]:
    """Tools that the agent of a task sees and that no derived call executes, at the start or after the chain."""
    built, graph = load_library(), ToolGraph.model_validate(GRAPH)
    context = ItemContext("afterwards", {}, SamplingSettings(), asyncio.Semaphore(1))
    found, state = [], made.chain.state
    async with open_sandbox(context, built) as backend:
        played, known = await play_chain(backend, state, made.chain.code), KnownValues()
        for call, value in zip(played.calls, played.values, strict=True):
            known.add_call(call, value)
        for name in made.visible or []:
            proposals = ArgumentFinder(built, graph, known, state, "afterwards").propose(name)
            if (await try_tool(backend, built, state, played.calls, name, proposals)).entry is None:
                found.append(name)
    return found


def count_chain_tasks(switches: TaskSwitches, chosen: Callable[[str], bool]) -> TaskCount:
    """Run the chosen cases, and look at what is accepted."""
    count = TaskCount()
    for name, (chain, replies) in list_cases().items():
        if not chosen(name):
            continue
        count.given += 1
        outputs = run_case(chain, replies, switches)
        if KEY not in outputs.of("instructions"):
            continue
        count.accepted += 1
        made = ChainTask.model_validate(outputs.of("instructions")[KEY])
        count.shown += len(made.visible or [])
        if refusal := outputs.refused.get("gated", {}).get(KEY):
            count.refused.append(f"{name}: {refusal.reason}")
        if unusable := asyncio.run(find_unusable_tools(made)):
            count.unusable.append(f"{name}: {', '.join(unusable)}")
    return count


def count_task_switches(
    chosen: Callable[[str], bool] = lambda name: True, switches: Sequence[TaskSwitches] = TASK_SWITCHES
) -> Iterator[tuple[TaskSwitches, TaskCount]]:
    """Count with each switch."""
    for each in switches:
        yield each, count_chain_tasks(each, chosen)


def main() -> None:
    table = Table(
        "switches",
        "given",
        "accepted",
        "the gate refuses",
        "show an unusable tool",
        "tools shown",
        title="Tasks of chains",
    )
    console = Console()
    for switches, count in count_task_switches():
        numbers = (count.given, count.accepted, len(count.refused), len(count.unusable), count.shown)
        table.add_row(switches.name, *map(str, numbers))
        faults = [*count.refused, *count.unusable]
        console.print(f"{switches.name}: {'; '.join(faults) or 'nothing is wrong'}", style="dim")
    console.print(table)


if __name__ == "__main__":
    main()
