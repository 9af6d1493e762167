"""Stage `expansions`: add tools around a chain, and refine the state until each of them executes (ScaleEnv §4.2.2)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from simia.config import Config
from simia.synthesis.building.random_calls import make_random_calls
from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain import Chain, Expansion
from simia.synthesis.chains.chain_runs import find_effect_difference, play_chain
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.expansion.chain_search import ask_gate, search_chains
from simia.synthesis.expansion.expander import Expander
from simia.synthesis.expansion.subgraph_measures import compute_complexity, drop_dead_ends
from simia.synthesis.graph.sampling import expand_subgraph, sample_chain
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.states import list_environments

AUXILIARY = 200  # most chains that are sampled to reach the least number of tools


class ExpansionSettings(Config):
    """How the subgraph H of a chain is expanded, and how its tools are verified (ScaleEnv §4.2.2)."""

    least: int = Field(default=20, ge=1)
    """Minimum number of tools of H. If the chains give fewer, tools of auxiliary chains are added. A task that still has fewer is refused."""
    most: int = Field(default=30, ge=1)
    """Maximum number of tools of the subgraph K(C) of one chain."""
    chains: int = Field(default=3, ge=1)
    """Maximum number of chains whose subgraphs form H. 1: no further chains are searched."""
    searched: int | None = Field(default=None, ge=0)
    """Number of tasks of each environment, from the first one on, for which further chains are searched. null: all."""
    rollouts: int = Field(default=16, ge=1)
    """Number of attempts of the role `searcher` to find an executable chain among the tools outside of H (k in the feasibility g)."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """Minimum score (0 to 1) that the role `gate` must give to a further chain (τ)."""
    refinements: int = Field(default=2, ge=0)
    """Number of requests for calls and a patch of the state, for the tools that could not be executed. 0: the state is not refined."""
    random_calls: int = Field(default=100, ge=0)
    """Number of random calls of the tools of H in the refined state. A tool that fails unexpectedly, or breaks the state's schema (for example
    by a reference to a missing row), is removed from H."""
    visible: Literal["subgraph", "all"] = "subgraph"
    """Tools that the agent sees. subgraph: those of H. all: all tools of the environment."""
    execution: bool = True
    """Whether tools are executed before they are added, and the chain is replayed. false: neither, to measure the effect of execution."""


class Expansions:
    """Expand the chain of every task."""

    name = "expansions"

    def __init__(self, settings: ExpansionSettings, seed: int = 0) -> None:
        self._settings, self._seed = settings, seed

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        environments, graphs, found = list_environments(outputs), outputs.of("graph"), []
        places: dict[str, int] = {}
        for key, made in outputs.of("chains").items():
            name = made["environment"]
            places[name] = place = places.get(name, 0) + 1
            value = {"chain": made, "graph": graphs[name], "built": environments[name], "place": place}
            found.append(StageInput(key, value))
        return found

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return dump(await ChainExpansion(given, context, self._settings, self._seed).make())


class ChainExpansion:
    """The expansion of one chain."""

    def __init__(self, given: StageInput, context: StageContext, settings: ExpansionSettings, seed: int) -> None:
        value = given.value
        self._context, self._settings, self._seed = context, settings, f"{seed}/{given.key}"
        self._built = BuiltEnvironment.model_validate(value["built"])
        self._graph = ToolGraph.model_validate(value["graph"])
        self._chain = Chain.model_validate(value["chain"])
        self._searched = settings.searched is None or value["place"] <= settings.searched
        self._expander = Expander(context, self._built, self._graph, self._chain, seed=self._seed)
        self._chains = 1
        self._searches: list[dict[str, Any]] = []
        self._auxiliary = 0

    async def make(self) -> Expansion:
        """Expand, verify and measure. Raises `Refused` with the reason."""
        if self._settings.execution:
            await self._expand()
            tools = await self._verify()
        else:
            self._expander.enter_unexecuted(expand_subgraph(self._graph, self._expander.tools, self._settings.most))
            self._expander.enter_unexecuted(self._sample_auxiliary())
            tools = self._expander.tools
        expander, complexity = self._expander, compute_complexity(self._graph, tools)
        self._context.note(
            tools=len(tools), complexity=complexity, chains=self._chains, auxiliary=self._auxiliary, searches=self._searches,
            **expander.counts, failing={name: faults[0][:200] for name, faults in expander.failing.items()},
        )  # fmt: skip
        if len(tools) < self._settings.least:
            raise Refused(
                Reason.TOO_FEW_VISIBLE,
                f"{len(tools)} of {len(self._built.tools)} tools, {self._settings.least} are needed",
            )
        shown = tools if self._settings.visible == "subgraph" else list(self._built.tools)
        chain = self._chain
        if self._settings.execution:
            played = expander.played
            changed = {"state": expander.state, "calls": played.calls, "results": played.results}
            chain = chain.model_copy(update=changed)
        return Expansion(
            chain=chain,
            visible=[name for name in self._built.tools if name in shown],
            complexity=complexity,
            chains=self._chains,
        )

    async def _expand(self) -> None:
        expander, settings = self._expander, self._settings
        await expander.start()
        await expander.enter(expand_subgraph(self._graph, expander.tools, settings.most))
        if self._searched:
            await self._search()
        await expander.enter(self._sample_auxiliary())
        await expander.refine(settings.refinements)
        while new := self._sample_auxiliary():
            await expander.enter(new)

    async def _search(self) -> None:
        """Add the subgraphs of further chains as long as the model decides that they fit (LLM-gated chain expansion)."""
        expander, settings = self._expander, self._settings
        for number in range(2, settings.chains + 1):
            left = expander.list_candidates()
            if not left:
                return
            search = await search_chains(
                self._context, self._built, expander.state, left, settings.rollouts, label=f"search{number}"
            )
            complexity = compute_complexity(self._graph, expander.tools)
            score = await ask_gate(
                self._context, expander.tools, left, complexity, search, label=f"gate{number}"
            )  # fmt: skip
            self._searches.append({**search.describe(), "p": score, "c": complexity, "left": len(left)})
            if score < settings.threshold or search.best is None:
                return
            expander.enter_called(search.best)
            names = list(dict.fromkeys(call.name for call in search.best.calls))
            await expander.enter(expand_subgraph(self._graph, names, settings.most))
            self._chains += 1

    def _sample_auxiliary(self) -> list[str]:
        """Return tools of randomly sampled chains, enough to reach the least number of tools of H."""
        expander, found = self._expander, list[str]()
        for _ in range(AUXILIARY):
            candidates = [name for name in expander.list_candidates() if name not in found]
            if len(expander.tools) + len(found) >= self._settings.least or not candidates:
                break
            self._auxiliary += 1
            sampled = sample_chain(self._graph, random.Random(f"{self._seed}/auxiliary{self._auxiliary}"))
            found += [name for name in sampled if name in candidates]
        return found

    async def _verify(self) -> list[str]:
        """Call the tools of H at random in the refined state, and execute the chain once more. Returns the tools that are left."""
        expander, built, chain = self._expander, self._built, self._chain
        tools = drop_dead_ends(self._graph, expander.tools, chain.tools)
        own = {*chain.tools, *(call.name for call in expander.played.calls)}
        async with open_sandbox(self._context, built) as backend:
            inside = built.model_copy(update={"tools": {name: built.tools[name] for name in tools}})
            faults, succeeded = await make_random_calls(
                backend, inside, self._settings.random_calls, state=expander.state
            )
            again = await play_chain(backend, expander.state, chain.code)
        if difference := find_effect_difference(again, expander.played, built.design.state.list_policies()):
            raise Refused(Reason.REPLAY_DIFFERS, difference)
        for name, (reason, detail) in faults.items():
            if name in own:
                raise Refused(reason, detail)
            expander.failing[name] = [detail]
        self._context.note(random_calls=self._settings.random_calls, random_successes=succeeded)
        return drop_dead_ends(self._graph, [name for name in tools if name not in faults], chain.tools)
