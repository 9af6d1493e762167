"""Stage `chains`: write executable code for sampled tools, and an initial state in which it executes (ScaleEnv §4.2.1).

The order is code, state, execution, repair of state or code, distractors. This stage does not change the state after that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from pydantic import Field

from simia.config import Config
from simia.envs.worlds.executable import ExecutableBackend
from simia.synthesis.building.example_states import ask_state
from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain import Chain
from simia.synthesis.chains.chain_code import ChainCode, find_ungrounded_values, read_chain
from simia.synthesis.chains.chain_prompts import (
    STATE_PURPOSE,
    describe_calls,
    describe_chain_tools,
    describe_edges,
    describe_other_tools,
    read_repair,
)
from simia.synthesis.chains.chain_runs import PlayedChain, find_effect_difference, open_runner, play_chain
from simia.synthesis.chains.distractors import DistractorMaker, Rows, add_rows
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.gyms.function_runs import FunctionRunner
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.scenario_prompts import describe_domain, format_state
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.states import list_environments

CODE_PROMPT, REPAIR_PROMPT = "synthesis/chain_code.j2", "synthesis/chain_repair.j2"
SAMPLES = 40  # most chains that are sampled to find one that differs from the earlier chains
SHOWN = 4
ChainMode = Literal["conversation", "non_conversation", "goals"]
Sampler = Callable[[ToolGraph, random.Random], Sequence[str]]
"""Samples the tools of a chain, such as `simia.synthesis.graph.sampling.sample_chain`."""


class ChainSettings(Config):
    """Chains of each environment, and the tasks that are made from them."""

    number: int = Field(default=12, ge=1)
    """Number of chains of each environment. Each chain gives a task."""
    modes: list[ChainMode] = Field(default=["conversation", "goals", "non_conversation"], min_length=1)
    """Modes of tasks, assigned to the chains in turn. conversation: the user tells the task step by step. goals: the user asks for one thing
    after the other. non_conversation: the first message contains the whole task."""
    turns: int = Field(default=3, ge=2)
    """Maximum number of turns of a task in mode goals. Each turn needs a writing call. A chain with a single writing call becomes a
    conversation."""
    rows: int = Field(default=5, ge=1)
    """Approximate number of rows of a table in the initial state, before distractors are added."""
    repairs: int = Field(default=2, ge=0)
    """Maximum number of requests to repair the state or the code."""
    distractors: float = Field(default=1.0, ge=0)
    """Number of distractors (unrelated rows) for each row, for a chain of ten calls. A chain of five calls gets half as many. 0: none."""
    execution: bool = True
    """Whether chains must execute without faults. false: accept the first replies, with the calls that succeeded (for experiments)."""


class ChainStage:
    """Ask for the chains of every environment, and execute them."""

    name = "chains"

    def __init__(self, settings: ChainSettings, sample: Sampler, seed: int = 0) -> None:
        self._settings, self._sample, self._seed = settings, sample, seed
        self._chosen: dict[str, tuple[random.Random, list[list[str]]]] = {}

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        graphs = outputs.of("graph")
        return [
            StageInput(f"{key}/{number}", {"environment": key, "number": number, "built": built, "graph": graphs[key]})
            for key, built in list_environments(outputs).items()
            if key in graphs
            for number in range(self._settings.number)
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        value = given.value
        built = BuiltEnvironment.model_validate(value["built"])
        graph = ToolGraph.model_validate(value["graph"])
        tools = self._choose_tools(built, graph, value["environment"], value["number"])
        rng = random.Random(f"{self._seed}/{given.key}/distractors")
        writer = ChainWriter(value["environment"], built, graph, tools, context, self._settings)
        return dump(await writer.write(rng))

    def _choose_tools(self, built: BuiltEnvironment, graph: ToolGraph, environment: str, number: int) -> list[str]:
        """Sample the tools of the chain with this number. All earlier chains are sampled too, since it must differ from them."""
        rng, found = self._chosen.setdefault(environment, (random.Random(f"{self._seed}/{environment}/chains"), []))
        while len(found) <= number:
            several = self._settings.modes[len(found) % len(self._settings.modes)] == "goals"
            found.append(self._choose_next(built, graph, rng, {frozenset(each) for each in found}, 2 if several else 1))
        if not found[number]:
            raise Refused(Reason.NO_CHAIN, f"{SAMPLES} samples give no other chain: ask for fewer than {number + 1}")
        return found[number]

    def _choose_next(
        self, built: BuiltEnvironment, graph: ToolGraph, rng: random.Random, taken: set[frozenset[str]], writing: int
    ) -> list[str]:
        """Sample tools that differ from those of earlier chains: the first sample with `writing` writing tools, else the first with any."""
        chosen: list[str] = []
        for _ in range(SAMPLES):
            tools = [name for name in self._sample(graph, rng) if name in built.tools]
            writes = sum(built.tools[name].writes for name in tools)
            if not writes or frozenset(tools) in taken:
                continue
            if writes >= writing:
                return tools
            chosen = chosen or tools
        return chosen


class ChainWriter:
    """The work on one chain."""

    def __init__(
        self,
        environment: str,
        built: BuiltEnvironment,
        graph: ToolGraph,
        tools: Sequence[str],
        context: StageContext,
        settings: ChainSettings,
    ) -> None:
        self._environment, self._built, self._graph, self._tools = environment, built, graph, list(tools)
        self._context, self._settings = context, settings
        self._policies = built.design.state.list_policies()
        self._runner: FunctionRunner | None = None

    async def write(self, rng: random.Random) -> Chain:
        """Ask for code and state, execute and repair. Raises `Refused` with the reason."""
        code = await self._ask_code()
        purpose = STATE_PURPOSE.format(rows=self._settings.rows, code=code.source)
        state = await ask_state(self._context, self._built.design, purpose=purpose)
        repairs, spare = 0, self._settings.repairs if self._settings.execution else 0
        while True:
            async with open_sandbox(self._context, self._built) as backend, open_runner() as self._runner:
                played, reason, faults = await self._judge(backend, code, state)
                if not faults or not self._settings.execution:
                    state, played, added = await self._add_distractors(backend, code, state, played, rng)
                    break
            if repairs == spare:
                self._context.note(tools=self._tools, repairs=repairs)
                raise Refused(reason, "; ".join(faults[:SHOWN]))
            repairs += 1
            code, state = await self._ask_repair(code, state, played, faults, label=f"repair{repairs}")
        self._context.note(
            tools=self._tools, calls=len(played.calls), repairs=repairs, distractors=added, faults=faults
        )
        return Chain(
            environment=self._environment,
            tools=list(dict.fromkeys([*self._tools, *(call.name for call in played.calls)])),
            code=code.source,
            known=code.known,
            state=state,
            calls=played.calls,
            results=played.results,
        )

    async def _ask_code(self) -> ChainCode:
        built, graph, tools = self._built, self._graph, self._tools
        values = {
            **describe_domain(built.design),
            "tools": describe_chain_tools(built, graph, tools),
            "others": describe_other_tools(built, graph, tools),
            "edges": describe_edges(graph, tools),
        }
        parse = partial(read_chain, tools=tools, others=built.tools)
        code: ChainCode = await self._context.ask(CODE_PROMPT, values, parse, label="code")
        if code.impossible:
            raise Refused(Reason.CHAIN_IMPOSSIBLE, code.impossible)
        return code

    async def _ask_repair(
        self, code: ChainCode, state: dict[str, Any], played: PlayedChain, faults: Sequence[str], *, label: str
    ) -> tuple[ChainCode, dict[str, Any]]:
        built = self._built
        called = [name for name in built.tools if name in self._tools or f'"{name}"' in code.source]
        values = {
            **describe_domain(built.design),
            "tools": describe_chain_tools(built, self._graph, called),
            "state": format_state(state),
            "code": code.source,
            "calls": describe_calls(played.calls, played.values),
            "faults": list(faults[:SHOWN]),
        }
        parse = partial(read_repair, built=built, state=state, tools=self._tools)
        changed, other = await self._context.ask(REPAIR_PROMPT, values, parse, label=label)
        if other is not None and other.impossible:
            raise Refused(Reason.CHAIN_IMPOSSIBLE, other.impossible)
        return other or code, changed or state

    async def _play(
        self, backend: ExecutableBackend, state: Mapping[str, Any], code: ChainCode, *, reverse: bool = False
    ) -> PlayedChain:
        return await play_chain(backend, state, code.source, reverse=reverse, runner=self._runner)

    async def _judge(
        self, backend: ExecutableBackend, code: ChainCode, state: Mapping[str, Any]
    ) -> tuple[PlayedChain, Reason, list[str]]:
        """Execute the chain; return the result, and what is wrong with it."""
        played = await self._play(backend, state, code)
        if played.fault is not None:
            return played, Reason.CHAIN_FAILS, [played.fault]
        called = {call.name for call in played.calls}
        if missing := [name for name in self._tools if name not in called]:
            words = "no call of it was executed in this state"
            return played, Reason.CHAIN_SKIPS_TOOL, [f"{name}: {words}" for name in missing]
        if not played.changes:
            return played, Reason.CHAIN_CHANGES_NOTHING, ["all calls succeed, and the state is as it was before them"]
        if broken := self._built.design.state.find_violations(played.final):
            return played, Reason.CHAIN_FAILS, [f"after the chain: {fault}" for fault in broken]
        if ungrounded := find_ungrounded_values(code, played, state, self._graph):
            return played, Reason.CHAIN_UNGROUNDED, ungrounded
        turned = await self._play(backend, state, code, reverse=True)
        if difference := find_effect_difference(turned, played, self._policies):
            words = "with the rows of results in the opposite order the chain does something else"
            return played, Reason.CHAIN_BY_PLACE, [f"{words}: {difference}"]
        return played, Reason.CHAIN_FAILS, []

    async def _add_distractors(
        self,
        backend: ExecutableBackend,
        code: ChainCode,
        state: dict[str, Any],
        played: PlayedChain,
        rng: random.Random,
    ) -> tuple[dict[str, Any], PlayedChain, int]:
        """Add distractors that do not change the chain's effect: all at once; if that fails, table by table."""
        if not self._settings.distractors or played.fault is not None:
            return state, played, 0
        schema = self._built.design.state
        maker = DistractorMaker(schema, state, played, code.known, self._settings.distractors, rng)

        async def accept(rows: Mapping[str, Rows], start: dict[str, Any]) -> tuple[dict[str, Any], PlayedChain] | None:
            found = add_rows(start, rows)
            if schema.find_violations(found):
                return None
            for reverse in (True, False):
                again = await self._play(backend, found, code, reverse=reverse)
                if find_effect_difference(again, played, self._policies):
                    return None
            return found, again

        made = maker.make_all()
        if made and (accepted := await accept(made, state)):
            return *accepted, sum(map(len, made.values()))
        best, added = (state, played), 0
        for name in maker.tables:
            rows = maker.make_table(name)
            if rows and (accepted := await accept({name: rows}, best[0])):
                maker.keep(name, rows)
                best, added = accepted, added + len(rows)
        return *best, added
