"""Measure what the checks of ScaleEnv's tasks find: how many tasks are accepted without them, and what is wrong with those.

    python -m eval.ablations.scaleenv_switches

The replies are those of tests/synthesis/fixtures/chains and fixtures/expansion, written by hand for the library: right chains in a state in which
all tools can be used, right chains in a state in which one cannot, and wrong and hostile chains. Each goes through the stages `chains`,
`expansions`, `instructions`, `verdicts` and `gated` with everything on, without refinement of the state, and without execution. For tasks
that the stage `instructions` accepts, the gate's verdicts are counted, and every tool that the agent sees is called in the task's state.

For the switch `topology`, all sets of tools that each sampler finds in the library's graph become chains
(fixtures/chains/sampled.yaml), with everything else on. A set that lacks an input is written in two ways: with its own tools alone, so
that the user has to say the id, and with a call of another tool that returns the id, which the prompt allows.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain import ChainTask
from simia.synthesis.chains.chain_runs import play_chain
from simia.synthesis.context import ItemContext
from simia.synthesis.expansion.entry_runs import try_tool
from simia.synthesis.expansion.known_arguments import ArgumentFinder, KnownValues
from simia.synthesis.graph.sampling import ChainSampling, find_unsatisfied, sample_chain, walk_randomly
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.reply_reading import dump
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.chains import ChainMode, ChainSettings, ChainStage
from simia.synthesis.stages.expansions import Expansions, ExpansionSettings
from simia.synthesis.stages.gated import Gated, Verdicts
from simia.synthesis.stages.instructions import ChainTasks, Instructions
from tests.synthesis.build_fixtures import FIXTURES, FixtureEngine, load_library, run_stages
from tests.synthesis.chain_fixtures import BAD_CHAINS, GOOD_CHAINS, GRAPH, MODES, TOOLS, list_chain_replies, write_state
from tests.synthesis.test_expansions import REPLIES

KEY = "library/0"
NO_FINES: dict[str, Any] = {"members": {"MB-02": {"fines": 0}}}
WRONG = ("constant_in_a_call", "knows_an_id", "computes_an_id", "only_reads", "hides_a_refusal", "endless")
SAMPLED: dict[str, dict[str, Any]] = yaml.safe_load((FIXTURES / "chains" / "sampled.yaml").read_text(encoding="utf-8"))
"""Names of tools in alphabetical order → the chain that was written for them."""
LIBRARY_GRAPH = ToolGraph.model_validate(GRAPH)
SAMPLING = ChainSampling(shortest=2, longest=3)
DRAWS = 500  # give every set of tools that a sampler can give


@dataclass(frozen=True, slots=True)
class TaskSwitches:
    """The switches of a run: which parts of the recipe are on."""

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


def run_case(tools: Sequence[str], mode: ChainMode, replies: dict[str, str], switches: TaskSwitches) -> StageOutputs:
    """Run one chain through the stages of the tasks."""
    settings = ChainSettings(number=1, modes=[mode], execution=switches.execution)
    expansion = ExpansionSettings(
        least=6, chains=1, random_calls=40, execution=switches.execution, refinements=switches.refinements
    )
    tasks = ChainTasks()
    stages = [
        ChainStage(settings, lambda graph, rng: tools),
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
        outputs = run_case(TOOLS[chain], MODES[chain], replies, switches)
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


@dataclass(slots=True)
class SampledCount:
    """Outcomes of the sets of tools of one sampler."""

    sampler: str
    given: int = 0
    unsatisfied: int = 0
    """Sets with a tool that lacks a required input."""
    accepted: int = 0
    passed: int = 0
    """Accepted tasks that the gate passes."""
    refused: list[str] = field(default_factory=list)
    """Sets that are refused, with the reason."""


def sample_by_topology(rng: random.Random) -> list[str]:
    return sample_chain(LIBRARY_GRAPH, rng, SAMPLING)


def sample_by_walk(rng: random.Random) -> list[str]:
    return walk_randomly(LIBRARY_GRAPH, rng, rng.randint(SAMPLING.shortest, SAMPLING.longest))


def list_sampled(sample: Callable[[random.Random], list[str]]) -> dict[str, list[str]]:
    """Name of a set of tools in `SAMPLED` → the tools in the sampler's order. Sets without a tool that writes make no task."""
    built, found = load_library(), dict[str, list[str]]()
    for key in range(DRAWS):
        tools = sample(random.Random(f"sampled/{key}"))
        if any(built.tools[name].writes for name in tools):
            found.setdefault(" ".join(sorted(set(tools))), tools)
    return dict(sorted(found.items()))


def list_sampled_replies(case: Mapping[str, Any]) -> dict[str, str]:
    """Sample → reply. Nothing is repaired, since a writer without another tool gives the same reply again."""
    code = f"```python\n{case['code']}```"
    chain = {"code": code, "state": write_state(case.get("state", {})), "repair1": code, "repair2": code}
    return {
        **{f"chains/{KEY}.{label}": text for label, text in chain.items()},
        f"instructions/{KEY}.plain": f"```json\n{json.dumps({'task': case['words']})}\n```",
    }


@cache
def run_sampled(name: str, tools: tuple[str, ...], filled: bool) -> tuple[bool, bool, str]:
    """Whether the task of a set of tools is accepted, whether the gate passes it, and why it is refused."""
    case = SAMPLED[name]["filled"] if filled else SAMPLED[name]
    outputs = run_case(tools, "non_conversation", list_sampled_replies(case), EVERYTHING)
    reasons = [str(each.reason) for stage in outputs.refused.values() for each in stage.values()]
    return KEY in outputs.of("instructions"), KEY in outputs.of("gated"), "; ".join(reasons)


def count_sampled(
    sampler: str, sample: Callable[[random.Random], list[str]], chosen: Callable[[str], bool], *, fill: bool = False
) -> SampledCount:
    """Make tasks of the sets of tools of a sampler. `fill`: another tool is called where an input is lacking."""
    count = SampledCount(sampler)
    for name, tools in list_sampled(sample).items():
        if chosen(name):
            unsatisfied = bool(find_unsatisfied(LIBRARY_GRAPH, tools))
            accepted, passed, reason = run_sampled(name, tuple(tools), fill and unsatisfied)
            count.given += 1
            count.unsatisfied += unsatisfied
            count.accepted += accepted
            count.passed += passed
            count.refused += [f"{name}: {reason}"] * bool(reason)
    return count


def count_samplers(chosen: Callable[[str], bool] = lambda name: True) -> Iterator[SampledCount]:
    """Count the tasks of chains that are sampled by topology, and of random walks."""
    yield count_sampled("topology-aware", sample_by_topology, chosen)
    yield count_sampled("random walk, its tools alone", sample_by_walk, chosen)
    yield count_sampled("random walk, other tools may be called", sample_by_walk, chosen, fill=True)


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
    sampled = Table("sampler", "chains given", "lack an input", "accepted", "the gate passes", title="Sampled chains")
    for each in count_samplers():
        sampled.add_row(each.sampler, *map(str, (each.given, each.unsatisfied, each.accepted, each.passed)))
        console.print(f"{each.sampler}: {'; '.join(each.refused) or 'nothing is refused'}", style="dim")
    console.print(sampled)


if __name__ == "__main__":
    main()
