"""Measure what execution checks and the check agent of a synthesis find: how much is accepted without them, and fails afterwards.

    python -m eval.ablations.synthesis_switches

The replies are those of tests/synthesis/fixtures, written by hand: a library with seven right tools and two right scenarios, and wrong and
hostile replies, each of which replaces a right one in an environment of its own. Each environment, tool and task goes through the
recipe's stages (a) with everything on, (b) with `building.execution=false` and `scenarios.execution=false`, (c) with
`assessment.check_agent=false`. Accepted tools are then executed (all tests, then random calls), accepted tasks verified by the gate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from simia.llm.types import Reply, Request
from simia.synthesis.context import ItemContext
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.scenario import Mode
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.assessment import Assessment, AssessmentSettings
from simia.synthesis.stages.environments import EnvironmentStage, check_environment
from simia.synthesis.stages.gated import Gated, ScenarioTasks, Verdicts
from simia.synthesis.stages.scenarios import Scenarios, ScenarioSettings
from simia.synthesis.stages.tools import ToolStage
from tests.synthesis.assessment_agents import check_carefully, write_test_call
from tests.synthesis.build_fixtures import (
    SETTINGS,
    FixtureEngine,
    list_library_replies,
    load_library,
    read_reply,
    run_stages,
)
from tests.synthesis.scenario_fixtures import BAD, BAD_CHECKS, GOOD
from tests.synthesis.test_assessment import BROKEN, break_tool

METHODS = (
    "uses_network", "uses_clock", "uses_processes", "uses_randomness", "uses_files", "uses_dynamic_code", "uses_private_names",
    "uses_globals", "read_tool_writes", "wrong_method", "signature_differs", "hidden_write", "endless_loop", "much_memory", "no_refusal",
    "counts_all_loans",
)  # fmt: skip
"""Wrong and hostile methods in the place of `get_member`; `lends_unknown_books` is one in the place of `lend_book`."""
MODES: list[Mode] = ["conversation", "non_conversation"]
RANDOM_CALLS = 100
ROUNDS = 56


@dataclass(frozen=True, slots=True)
class Switches:
    """The switches of a run: which checks are on."""

    name: str
    execution: bool = True
    check_agent: bool = True


ALL_ON = Switches("everything on")
UNEXECUTED = Switches("without execution", execution=False)
UNCHECKED = Switches("without the check agent", check_agent=False)
SWITCHES = (ALL_ON, UNEXECUTED, UNCHECKED)


@dataclass(slots=True)
class Count:
    """How many of one kind were given and accepted, and which of the accepted ones failed afterwards."""

    given: int = 0
    accepted: int = 0
    failed: list[str] = field(default_factory=list)


class AgentEngine(FixtureEngine):
    """Answers as the test agent and the check agent of the assessment."""

    def __init__(self) -> None:
        super().__init__({})

    async def ask(self, request: Request, *, item: str, draw: str) -> Reply:
        answer = write_test_call if ".call" in draw else check_carefully
        return Reply(text=answer(str(request.messages[0]["content"]), draw))


def find_faults(built: BuiltEnvironment) -> dict[str, str]:
    """Execute an environment: tool → what its tests, or random calls, show to be wrong."""
    context = ItemContext("afterwards", {}, SamplingSettings(), asyncio.Semaphore(1))
    faults, _ = asyncio.run(check_environment(built, context, RANDOM_CALLS))
    return {tool: str(reason) for tool, (reason, _) in faults.items()}


def list_methods() -> dict[str, tuple[str, str]]:
    """Name of a case → its tool and the reply with its method."""
    right = {f"right {name}": (name, read_reply(f"library/tool-{name}")) for name in load_library().tools}
    wrong = {name: ("get_member", read_reply(f"wrong/{name}")) for name in METHODS}
    return right | wrong | {"lends_unknown_books": ("lend_book", read_reply("wrong/lends_unknown_books"))}


def count_tools(switches: Switches, chosen: Callable[[str], bool]) -> Count:
    """Write each method with the stage `tools`, and put it into the library with the stage `environments`."""
    count, settings = Count(), SETTINGS.model_copy(update={"execution": switches.execution, "debug_rounds": 0})
    for name, (tool, reply) in list_methods().items():
        if not chosen(name):
            continue
        count.given += 1
        built = load_library()
        one = built.design.model_copy(update={"tools": [each for each in built.design.tools if each.name == tool]})
        outputs = StageOutputs(made={"design": {"library": dump(one)}, "examples": {"library": built.example}})
        engine = FixtureEngine(list_library_replies() | {f"tools/library/{tool}.method": reply})
        made = run_stages(engine, [ToolStage(settings)], outputs).of("tools").get(f"library/{tool}")
        if made is None:
            continue
        parts = {
            f"library/{each}": {
                "tool": dump(built.tools[each]),
                "tests": [dump(test) for test in built.tests if test.call.name == each],
            }
            for each in built.tools
        }
        parts[f"library/{tool}"] = made
        outputs = StageOutputs(
            made={"design": {"library": dump(built.design)}, "examples": {"library": built.example}, "tools": parts}
        )
        stage = EnvironmentStage(settings.model_copy(update={"random_calls": RANDOM_CALLS}))
        repair = FixtureEngine({f"environments/library.repair-{tool}": reply})  # the same method again
        found = run_stages(repair, [stage], outputs).of("environments").get("library")
        if found is None or tool not in found["tools"]:
            continue
        count.accepted += 1
        if tool in find_faults(BuiltEnvironment.model_validate(found)):
            count.failed.append(name)
    return count


def count_environments(switches: Switches, chosen: Callable[[str], bool]) -> Count:
    """Assess the library, and one library for each broken tool that its tests have not seen."""
    count = Count()
    settings = AssessmentSettings(rounds=ROUNDS, chains=4, check_agent=switches.check_agent)
    for name in filter(chosen, ("right library", *BROKEN)):
        count.given += 1
        built = load_library() if name == "right library" else break_tool(name)
        outputs = StageOutputs(made={"environments": {"library": dump(built)}})
        made = run_stages(AgentEngine(), [Assessment(settings, 0)], outputs).of("assessment").get("library")
        if made is not None:
            count.accepted += 1
            if find_faults(BuiltEnvironment.model_validate(made)):
                count.failed.append(name)
    return count


def list_scenarios() -> dict[str, Mapping[str, str]]:
    """Name of a case → its replies by label. Each bad check replaces the checks of a right scenario, after its first."""
    right = {f"right {name}": replies for name, replies in GOOD.items()}
    first = GOOD["scenarios/library/0/0"]
    wrong = {name: {**first, **case["replies"]} for name, case in BAD.items()}
    checks = {
        f"check {name}": {**first, **dict.fromkeys(("check2", "check3"), f"```python\n{case['code']}```")}
        for name, case in BAD_CHECKS.items()
    }
    return {name: repeat_solution(replies) for name, replies in (right | wrong | checks).items()}


def repeat_solution(replies: Mapping[str, str]) -> dict[str, str]:
    """Repeat the last solution if the writer is asked for it again."""
    last = replies.get("solution2", replies["solution"])
    return {"solution2": last, "solution3": last, **replies}


def count_tasks(switches: Switches, chosen: Callable[[str], bool]) -> Count:
    """Write each scenario in both modes, and gate its tasks."""
    count, built = Count(), load_library()
    settings = ScenarioSettings(number=1, execution=switches.execution)
    for name, replies in list_scenarios().items():
        if not chosen(name):
            continue
        count.given += len(MODES)
        state = {"environment": "library", "state": built.example}
        outputs = StageOutputs(made={"environments": {"library": dump(built)}, "states": {"library/0": state}})
        engine = FixtureEngine({f"scenarios/library/0/0.{label}": text for label, text in replies.items()})
        stages = [
            Scenarios(settings, 0),
            Verdicts(ScenarioTasks(MODES)),
            Gated(ScenarioTasks(MODES), TaskDifficultySettings()),
        ]
        found = run_stages(engine, stages, outputs)
        if found.of("scenarios"):
            count.accepted += len(MODES)
            refused = found.refused.get("gated", {})
            count.failed += [f"{name}, {key.rpartition('/')[2]}: {each.reason}" for key, each in refused.items()]
    return count


def count_all(
    chosen: Callable[[str], bool] = lambda name: True, switches: Sequence[Switches] = SWITCHES
) -> Iterator[tuple[Switches, str, Count]]:
    """Count every kind that a switch can change; the others are as with everything on."""
    for each in switches:
        if each.check_agent:
            yield each, "tools", count_tools(each, chosen)
        if each.execution:
            yield each, "environments", count_environments(each, chosen)
        if each.check_agent:
            yield each, "tasks", count_tasks(each, chosen)


def main() -> None:
    table = Table("switches", "kind", "given", "accepted", "fail afterwards", title="Accepted, and what fails of it")
    console = Console()
    for switches, kind, count in count_all():
        table.add_row(switches.name, kind, str(count.given), str(count.accepted), str(len(count.failed)))
        console.print(f"{switches.name}, {kind}: {'; '.join(count.failed) or 'nothing fails'}", style="dim")
    console.print(table)


if __name__ == "__main__":
    main()
