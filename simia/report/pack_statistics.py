"""Figures of a pack for its report: tools, tests, tasks, graphs, difficulty, prices, and the reference of one task.

They come from the pack's own files, from the record of its synthesis if there is one, and from its world in the sandbox: the tests
of the tools are run, and a solution is played if none is recorded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.authoring.tool_tests import run_test
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.play.solution_lengths import make_solution_limits
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import UserError
from simia.pack import Pack
from simia.report.graph_drawing import GraphEdge, GraphNode
from simia.report.synthesis_counts import RunPrice, count_refused_tasks, measure_price
from simia.report.synthesis_record import SynthesisRecord, read_record
from simia.statistics import Estimate, bootstrap_interval
from simia.task import Task
from simia.trajectory import Trajectory

OUTCOMES = ("success", "refusal", "failure")
AT_ONCE = 8
MOST_BINS = 12
GYM_TOOLS = frozenset(("observe", "done"))
CODEGYM_TOOLS, CODEGYM_CALLS = 6.52, 44.07
"""Mean number of tools of an environment and of calls to solve a task (CodeGym, Fig. 4)."""
SCALEENV_DOMAIN, SCALEENV_TASK = 546_000, 93_200
"""Tokens of a domain and of a task (ScaleEnv)."""


@dataclass(slots=True)
class MeasuredAgent:
    """How often an agent solved the pack's tasks."""

    agent: str
    tasks: int
    episodes: int
    solved: int
    rate: Estimate
    always: int
    never: int


@dataclass(slots=True)
class PackStatistics:
    """Everything that the report of a pack shows."""

    pack: Pack
    record: SynthesisRecord | None
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    """Tool → outcome of its tests, run now → count."""
    not_run: str = ""
    """Why the tests were not run."""
    task: Task | None = None
    """The task that is shown as a conversation."""
    played: Trajectory | None = None
    recorded: bool = False
    """Whether the conversation is the pack's own recording; else it was played now."""
    not_played: str = ""

    @property
    def is_gym(self) -> bool:
        """Whether the pack is a gym: the interactive form of a coding problem."""
        recipe = self.recipe
        return recipe == "codegym" or (not recipe and {tool.name for tool in self.pack.tools} >= GYM_TOOLS)

    @property
    def recipe(self) -> str:
        """The recipe or importer that made the pack; empty if it was written by hand."""
        source = self.pack.file.provenance if self.pack.file else None
        return (self.record.recipe if self.record else "") or (source.recipe if source else "")

    @property
    def calls(self) -> list[int]:
        """Calls of each task's solution."""
        return [len(task.actions) for task in self.pack.tasks if task.solved]

    def sum_outcomes(self) -> Counter[str]:
        return sum(self.outcomes.values(), Counter())

    def count_refused(self) -> Counter[str]:
        """Reason → tasks of this pack that were refused."""
        return count_refused_tasks(self.record) if self.record else Counter()

    def measure_price(self) -> RunPrice | None:
        """The price of the run that made the pack; None if it is not known."""
        if self.record is None or not self.record.stages:
            return None
        return measure_price(self.record, [(len(self.pack.tools), len(self.pack.tasks))])

    def measure_agents(self) -> list[MeasuredAgent]:
        """Stored measurements of difficulty, one row for each agent."""
        found = []
        for agent in sorted({name for task in self.pack.tasks for name in task.measured}):
            all_ = [task.measured[agent] for task in self.pack.tasks if agent in task.measured]
            rates = [each.rate for each in all_]
            scenarios = [task.scenario or task.id for task in self.pack.tasks if agent in task.measured]
            found.append(
                MeasuredAgent(
                    agent, len(all_), sum(each.n for each in all_), sum(each.solved for each in all_),
                    bootstrap_interval(rates, scenarios), sum(rate == 1 for rate in rates), sum(rate == 0 for rate in rates),
                )
            )  # fmt: skip
        return found


async def collect_pack(
    pack: Pack, *, task: str | None = None, execute: bool = True, grants: Mapping[str, Any] | None = None
) -> PackStatistics:
    """Collect the figures of a pack; run its tests and play a task in the sandbox if `execute`.

    Raises `UserError` for files that cannot be read, and for a task that does not exist.
    """
    record = read_record(pack.root) if pack.root else None
    found = PackStatistics(pack, record.narrow(pack.name) if record else None)
    found.task = pack.task(task) if task else choose_task(pack)
    if found.task is not None and (kept := pack.references.get(found.task.id)) is not None:
        found.played, found.recorded = kept, True
    found.not_played = "no task has a solution to play" if found.task is None else ""
    if pack.executable is None:
        found.not_run = found.not_run or "the pack has no code"
        found.not_played = found.not_played or "the pack has no code and no recorded reference"
        return found
    if not execute:
        found.not_run = "--no-run was given"
        found.not_played = found.not_played or "--no-run was given"
        return found
    try:
        async with await open_environment(
            pack, backend="executable", user="scripted", episode=make_solution_limits(pack.tasks), **(grants or {})
        ) as environment:
            await run_pack_tests(found, environment)
            if found.played is None and found.task is not None:
                found.played = await play(await environment.reset(found.task), ReferenceAgent(found.task))
    except UserError as error:
        found.not_run = found.not_run or str(error)
        found.not_played = found.not_played or str(error)
    return found


async def run_pack_tests(found: PackStatistics, environment: Environment) -> None:
    """Run the tests of the tools. A test that passes is counted under its expected outcome, any other under `failure`."""
    backend, pack = environment.backend, found.pack
    assert isinstance(backend, ExecutableBackend)
    declared = await backend.declared()
    places = asyncio.Semaphore(AT_ONCE)

    async def run(number: int) -> tuple[str, str]:
        test = pack.tests[number]
        async with places:
            findings = await run_test(test, backend, declared, pack.match)
        return test.call.name, "failure" if findings else test.expect.outcome

    for name, outcome in await asyncio.gather(*map(run, range(len(pack.tests)))):
        found.outcomes.setdefault(name, Counter())[outcome] += 1


def choose_task(pack: Pack) -> Task | None:
    """Choose the task to show: among those with a solution, the one with the median number of calls."""
    solved = sorted((task for task in pack.tasks if task.solved), key=lambda task: len(task.actions))
    return solved[len(solved) // 2] if solved else None


def find_packs(folder: Path) -> list[Path]:
    """Folders below `folder` with a pack.yaml, by name."""
    return sorted(path.parent for path in folder.glob("*/pack.yaml"))


def make_table_graph(pack: Pack) -> tuple[list[GraphNode], list[GraphEdge]]:
    """The tables with their columns, and an edge for each foreign key."""
    schema = pack.state_schema
    if schema is None:
        return [], []
    nodes = [
        GraphNode(name, tuple(f"{column}{' →' if spec.references else ''}" for column, spec in table.columns.items()), "table")
        for name, table in schema.tables.items()
    ]  # fmt: skip
    edges = [
        GraphEdge(name, spec.references, column, "reference")
        for name, table in schema.tables.items()
        for column, spec in table.columns.items()
        if spec.references is not None
    ]
    return nodes, edges


def make_access_graph(pack: Pack) -> tuple[list[GraphNode], list[GraphEdge]]:
    """Tools and tables, with an edge for each table that a tool declares to read or to write."""
    edges: list[GraphEdge] = []
    for tool in (*pack.tools, *pack.user_tools):
        writes = list(tool.writes or ())
        edges += [GraphEdge(tool.name, table_node(table), "writes", "writes") for table in writes]
        edges += [
            GraphEdge(tool.name, table_node(table), "reads", "reads")
            for table in tool.reads or ()
            if table not in writes
        ]
    tools = dict.fromkeys(edge.source for edge in edges)
    writing = {edge.source for edge in edges if edge.kind == "writes"}
    tables = dict.fromkeys(edge.target for edge in edges)
    nodes = [GraphNode(name, kind="writer" if name in writing else "reader") for name in tools]
    return [*nodes, *(GraphNode(name, kind="table") for name in tables)], edges


def table_node(table: str) -> str:
    """A table's name in the graph of tools and tables, in which a tool may have the same name."""
    return f"{table} ▤"


def count_histogram(values: Sequence[int]) -> list[tuple[str, int]]:
    """Count numbers in at most `MOST_BINS` bins of equal width, which is 1 if that is enough bins."""
    if not values:
        return []
    low, high = min(values), max(values)
    width = -(-(high - low + 1) // MOST_BINS)
    bins = Counter((value - low) // width for value in values)
    rows = []
    for n in range((high - low) // width + 1):
        first = low + n * width
        rows.append((str(first) if width == 1 else f"{first}–{first + width - 1}", bins[n]))
    return rows
