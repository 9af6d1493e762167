"""Hand-written replies for chains of the library, and its tool graph."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import yaml

from simia.state import merge_patch
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.measured_difficulty import TaskDifficultySettings
from simia.synthesis.stage import Stage, StageContext, StageInput, StageOutputs
from simia.synthesis.stages.chains import ChainSettings, ChainStage
from simia.synthesis.stages.gated import Gated, Verdicts
from simia.synthesis.stages.instructions import ChainTasks, Instructions
from tests.synthesis.scenario_fixtures import FIXTURES, LIBRARY

GOOD_CHAINS: dict[str, dict[str, str]] = yaml.safe_load((FIXTURES / "chains" / "good.yaml").read_text())
BAD_CHAINS: dict[str, dict[str, Any]] = yaml.safe_load((FIXTURES / "chains" / "bad.yaml").read_text())
GRAPH: dict[str, Any] = orjson.loads((FIXTURES / "chains" / "graph.json").read_bytes())
TOOLS = {
    "lend": ["search_books", "lend_book"],
    "return": ["list_loans", "return_book", "pay_fine"],
    "renew": ["get_member", "list_loans", "renew_loan"],
    "last": ["search_books", "get_member", "lend_book", "list_loans"],
}
MODES = {"lend": "conversation", "return": "goals", "renew": "non_conversation", "last": "non_conversation"}
WORDS = {"lend": "talk", "return": "goals", "renew": "plain", "last": "plain"}


class GivenGraph:
    """A stage that hands on the library's graph, without a question."""

    name = "graph"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput("library", None)]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return GRAPH


class OrderedSampler:
    """Gives chains in a fixed order, again and again: the state of the generator tells how often it was asked."""

    def __init__(self, chains: Sequence[str]) -> None:
        self._chains = list(chains)

    def __call__(self, graph: ToolGraph, rng: random.Random) -> list[str]:
        probe, place = random.Random("0/library/chains"), 0
        while probe.getstate() != rng.getstate():
            probe.random()
            place += 1
        rng.random()
        return TOOLS[self._chains[place % len(self._chains)]]


class CaseEnvironments:
    """A stage that hands on the library under the name of each case, without a question; its name is the one that later stages read first."""

    name = "assessment"

    def __init__(self, cases: Sequence[str]) -> None:
        self._cases = list(cases)

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(case, None) for case in self._cases]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return LIBRARY


class CaseGraphs(CaseEnvironments):
    """The library's graph under the name of each case."""

    name = "graph"

    async def make(self, given: StageInput, context: StageContext) -> Any:
        return GRAPH


def write_state(patch: dict[str, Any]) -> str:
    """A reply with the library's state and a patch over it."""
    return f"```json\n{orjson.dumps(merge_patch(LIBRARY['example'], patch)).decode()}\n```"


def list_chain_replies(key: str, chain: str, replies: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Sample → reply of a chain. `replies`: those that differ from the good ones; a `state` is a patch over the library's."""
    own: dict[str, Any] = {"state": {}, **GOOD_CHAINS[chain], **(replies or {})}
    if isinstance(own["state"], dict):
        own["state"] = write_state(own["state"])
    found = {}
    for label, text in own.items():
        stage = "instructions" if label.split(".")[0] in WORDS.values() else "chains"
        found[f"{stage}/{key}.{label}"] = text
        if replies and label in replies and label in GOOD_CHAINS[chain]:
            found.setdefault(f"{stage}/{key}.{label}.again1", GOOD_CHAINS[chain][label])
    return found


def list_chain_stages(chains: Sequence[str], **settings: Any) -> list[Stage]:
    """Graph, chains, words and gate, for these chains of the library."""
    chosen = ChainSettings(number=len(chains), modes=[MODES[name] for name in chains], **settings)
    tasks = ChainTasks()
    return [
        GivenGraph(),
        ChainStage(chosen, OrderedSampler(chains)),
        Instructions(chosen),
        Verdicts(tasks),
        Gated(tasks, TaskDifficultySettings()),
    ]


def list_case_stages(chain: str, cases: Sequence[str]) -> list[Stage]:
    """The chain in an environment for each case, without distractors and without the gate."""
    chosen = ChainSettings(number=1, modes=[MODES[chain]], distractors=0)
    stage = ChainStage(chosen, lambda graph, rng: TOOLS[chain])
    return [CaseEnvironments(cases), CaseGraphs(cases), stage, Instructions(chosen)]
