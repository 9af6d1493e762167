"""Search further chains for a subgraph: an agent tries k times to find an executable one, then a model decides (ScaleEnv §4.2.2)."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from simia.reward_spec import StrictModel
from simia.statistics import compute_wilson_interval
from simia.synthesis.building.tool_runs import open_sandbox
from simia.synthesis.chains.chain_runs import CHAIN_FUNCTION, PlayedChain, play_chain
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.question_groups import ask_together
from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.reply_reading import read_json, read_python
from simia.synthesis.scenarios.scenario_prompts import list_prompt_values
from simia.synthesis.stage import StageContext

SEARCH_PROMPT, GATE_PROMPT = "synthesis/expansion_chain.j2", "synthesis/expansion_gate.j2"
SEARCHER = "searcher"
LEAST_TOOLS = 2


class GateReply(StrictModel):
    """The decision of the model."""

    why: str = ""
    """The reason, in a sentence."""
    score: float = Field(ge=0, le=1)
    """How well a further chain fits."""


@dataclass(slots=True)
class ChainSearch:
    """The result of k attempts."""

    attempts: int = 0
    """k."""
    executed: int = 0
    """Attempts whose chain was executed."""
    best: PlayedChain | None = None
    """The executed chain with the most tools; of equal ones the shortest, then the first."""
    faults: list[str] = field(default_factory=list)
    """Why the chains of other attempts were not executed."""

    @property
    def feasibility(self) -> float:
        """g(D): the share of attempts whose chain was executed."""
        return self.executed / self.attempts if self.attempts else 0.0

    def describe(self) -> dict[str, Any]:
        """Figures for the report, with a 95 % interval."""
        low, high = compute_wilson_interval(self.executed, self.attempts)
        return {"k": self.attempts, "executed": self.executed, "g": round(self.feasibility, 4), "interval": [low, high]}


async def search_chains(
    context: StageContext,
    built: BuiltEnvironment,
    state: Mapping[str, Any],
    tools: Sequence[str],
    k: int,
    *,
    label: str,
) -> ChainSearch:
    """Ask the role `searcher` k times for a chain that uses only these tools, and execute each."""
    values = {
        **list_prompt_values(built, state),
        "tools": [built.tools[name].spec.write_json() for name in tools],
        "least": min(LEAST_TOOLS, len(tools)),
    }

    async def ask_code(number: int) -> str | Refused:
        try:
            return await context.ask(SEARCH_PROMPT, values, read_chain_code, label=f"{label}_{number}", role=SEARCHER)
        except Refused as refused:
            if refused.reason is not Reason.UNREADABLE_REPLY:
                raise
            return refused

    found = ChainSearch(attempts=k)
    codes = await ask_together(*(ask_code(number) for number in range(1, k + 1)))
    async with open_sandbox(context, built) as backend:
        for code in codes:
            if isinstance(code, Refused):
                found.faults.append(code.detail)
                continue
            played = await play_chain(backend, state, code)
            fault = played.fault or find_scope_fault(played, tools)
            if fault:
                found.faults.append(fault)
                continue
            found.executed += 1
            if found.best is None or rank_chain(played) > rank_chain(found.best):
                found.best = played
    return found


def read_chain_code(text: str) -> str:
    """Return the code of a reply. Raises `Unreadable` unless it defines `chain(call)`."""
    code = read_python(text)
    functions = [node for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    if [node.name for node in functions].count(CHAIN_FUNCTION) != 1:
        raise Unreadable(f"the code must define one function {CHAIN_FUNCTION}(call)")
    return code


def find_scope_fault(played: PlayedChain, tools: Sequence[str]) -> str:
    """Why an executed chain does not count: it uses other tools, or too few; empty: it counts."""
    used = {call.name for call in played.calls}
    if strange := sorted(used - set(tools)):
        return f"it calls {strange[0]}, which is not among the tools that were given"
    least = min(LEAST_TOOLS, len(tools))
    return "" if len(used) >= least else f"it calls {len(used)} different tools, {least} are needed"


def rank_chain(played: PlayedChain) -> tuple[int, int]:
    """Chains with more tools come first, of equal ones those with fewer calls."""
    return len({call.name for call in played.calls}), -len(played.calls)


async def ask_gate(
    context: StageContext,
    inside: Sequence[str],
    left: Sequence[str],
    complexity: float,
    search: ChainSearch,
    *,
    label: str,
) -> float:
    """Ask whether a further chain is to be added: the score p, from 0 to 1."""
    values = {
        "count": len(left),
        "inside": ", ".join(inside),
        "left": ", ".join(left),
        "complexity": complexity,
        "feasibility": round(search.feasibility, 2),
        "k": search.attempts,
    }

    def parse(text: str) -> float:
        reply: GateReply = read_json(text, GateReply)
        return reply.score

    return await context.ask(GATE_PROMPT, values, parse, label=label, role="gate")
