"""Let tools enter the subgraph H of a chain: each must execute, and the initial state is refined until it does (ScaleEnv §4.2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.envs.worlds.executable import ExecutableBackend
from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain import Chain
from simia.synthesis.chains.chain_runs import PlayedChain, find_effect_difference, play_chain
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.expansion.entry_runs import EntryTrial, ToolEntry, replay_entries, try_tool
from simia.synthesis.expansion.known_arguments import ArgumentFinder, KnownValues
from simia.synthesis.expansion.state_refinement import Refinement, apply_refinement, list_touched_rows, read_refinement
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.scenarios.scenario_prompts import list_prompt_values
from simia.synthesis.stage import StageContext

PROMPT = "synthesis/expansion_refinement.j2"


class Expander:
    """The tools that have entered H, and the state in which all of them execute."""

    def __init__(
        self, context: StageContext, built: BuiltEnvironment, graph: ToolGraph, chain: Chain, *, seed: str
    ) -> None:
        self._context, self._built, self._graph, self._chain, self._seed = context, built, graph, chain, seed
        self._known = KnownValues()
        self._questions = 0
        self.state: dict[str, Any] = chain.state
        self.played = PlayedChain()
        """The chain as it was executed in the state."""
        self.tools = list(dict.fromkeys(chain.tools))
        """Tools of H in the order in which they entered."""
        self.entries: dict[str, ToolEntry] = {}
        """Tool → the call by which it entered; the chain's tools have none."""
        self.failing: dict[str, list[str]] = {}
        """Tools that no call could execute, with the first faults."""
        self.counts = {"by_code": 0, "by_question": 0, "questions": 0, "patches": 0, "rejected": 0}
        """How tools entered; patches of the state that were accepted and rejected."""

    async def start(self) -> None:
        """Execute the chain. Raises `Refused` if it does not execute in its own state."""
        async with open_sandbox(self._context, self._built) as backend:
            self.played = await play_chain(backend, self.state, self._chain.code)
        if self.played.fault:
            raise Refused(Reason.REPLAY_DIFFERS, self.played.fault)
        for call, value in zip(self.played.calls, self.played.values, strict=True):
            self._known.add_call(call, value)
        self.tools = list(dict.fromkeys([*self._chain.tools, *(call.name for call in self.played.calls)]))

    def list_candidates(self) -> list[str]:
        """The tools outside of H that could still be executed."""
        return [name for name in self._built.tools if name not in self.tools and name not in self.failing]

    async def enter(self, tools: Sequence[str]) -> None:
        """Execute tools with arguments that code derives. Those that succeed enter H; the others fail for now."""
        new = [name for name in tools if name not in self.tools and name in self._built.tools]
        if not new:
            return
        async with open_sandbox(self._context, self._built) as backend:
            for name in new:
                finder = ArgumentFinder(self._built, self._graph, self._known, self.state, self._seed)
                calls = self.played.calls
                self._keep(
                    name,
                    await try_tool(backend, self._built, self.state, calls, name, finder.propose(name)),
                    "by_code",
                )

    def enter_called(self, played: PlayedChain) -> None:
        """Let the tools of an executed chain enter, each with its first call."""
        for number, (call, value) in enumerate(zip(played.calls, played.values, strict=True)):
            if call.name not in self.tools:
                self._keep(call.name, EntryTrial(ToolEntry(call, value, tuple(played.calls[:number]))), "by_question")

    def enter_unexecuted(self, tools: Sequence[str]) -> None:
        """Let tools enter without executing them, to measure what execution would find."""
        self.tools += [name for name in tools if name not in self.tools and name in self._built.tools]

    def _keep(self, name: str, trial: EntryTrial, how: str) -> None:
        if trial.entry is None:
            self.failing[name] = trial.faults or ["nothing: no arguments could be derived"]
            return
        self.failing.pop(name, None)
        self.tools.append(name)
        self.entries[name] = trial.entry
        self._known.add_call(trial.entry.call, trial.entry.value)
        self.counts[how] += 1

    # -- refinement -----------------------------------------------------------------------------------------------

    async def refine(self, rounds: int) -> None:
        """Ask for calls and a patch of the state with which the failing tools execute: one question per round for all of them."""
        fault = ""
        for _ in range(rounds):
            if not self.failing:
                return
            try:
                proposal = await self._ask(fault)
            except Refused as refused:
                if refused.reason is not Reason.UNREADABLE_REPLY:
                    raise
                return
            fault = await self._try_refinement(proposal)

    async def _ask(self, fault: str) -> Refinement:
        self._questions += 1
        self.counts["questions"] += 1
        tools = list(self.failing)
        values = {
            **list_prompt_values(self._built, self.state),
            "code": self._chain.code,
            "frozen": [f"{table}: {', '.join(keys)}" for table, keys in self._list_frozen().items()],
            "tools": [self._describe_failing(name) for name in tools],
            "fault": fault,
        }
        return await self._context.ask(
            PROMPT, values, lambda text: read_refinement(text, self._built, tools), label=f"refinement{self._questions}"
        )

    def _describe_failing(self, name: str) -> dict[str, Any]:
        """Describe a tool for the question: its schema, its refusals, and how its calls failed."""
        design = next(tool for tool in self._built.design.tools if tool.name == name)
        schema = self._built.tools[name].spec.write_json()
        return {"schema": schema, "refusals": design.refusals, "faults": self.failing[name]}

    def _list_frozen(self) -> dict[str, list[str]]:
        return list_touched_rows(self._built.design.state, self.state, self.played.calls, self.played.changes)

    async def _try_refinement(self, proposal: Refinement) -> str:
        """Apply the patch if the chain and all entered tools execute as before, and try the calls. Returns why the patch was rejected."""
        schema, fault = self._built.design.state, ""
        async with open_sandbox(self._context, self._built) as backend:
            if proposal.patch:
                patched, fault = apply_refinement(schema, self.state, proposal.patch, self._list_frozen())
                if not fault:
                    played, fault = await self._replay(backend, patched)
                if fault:
                    self.counts["rejected"] += 1
                else:
                    self.state, self.played = patched, played
                    self.counts["patches"] += 1
            for name in list(self.failing):
                finder = ArgumentFinder(self._built, self._graph, self._known, self.state, self._seed)
                asked = [call.arguments for call in proposal.calls if call.name == name]
                proposals = asked if fault or not proposal.patch else [*asked, *finder.propose(name)]
                if proposals:
                    trial = await try_tool(backend, self._built, self.state, self.played.calls, name, proposals)
                    if trial.entry is not None or not fault:  # if the patch was rejected, a failure says nothing
                        self._keep(name, trial, "by_question")
        return fault

    async def _replay(self, backend: ExecutableBackend, patched: dict[str, Any]) -> tuple[PlayedChain, str]:
        """Execute the chain in the patched state; return it, and what is wrong with the patch. The chain must have the same effect as without
        the patch, also if tools return rows in reverse order, and every tool that has entered must still execute."""
        policies = self._built.design.state.list_policies()
        played = await play_chain(backend, patched, self._chain.code)
        turned = await play_chain(backend, patched, self._chain.code, reverse=True)
        for each in (played, turned):
            if difference := find_effect_difference(each, self.played, policies):
                return played, f"with the patch the task's code has another effect: {difference}"
        return played, await replay_entries(backend, patched, self.entries.values()) or ""
