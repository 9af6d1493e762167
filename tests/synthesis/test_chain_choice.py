"""Which tools the chains of an environment get: each chain differs from the others, whatever the order in which they are made."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from simia.synthesis.context import ItemContext
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.reasons import Refused
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.chains import ChainSettings, ChainStage
from tests.synthesis.chain_fixtures import GRAPH
from tests.synthesis.scenario_fixtures import LIBRARY

READING = ["search_books", "get_member", "list_loans"]


def sample_pairs(graph: ToolGraph, rng: random.Random) -> list[str]:
    return rng.sample(list(graph.tools), 2)


def list_choices(order: list[int], sample: Any = sample_pairs) -> dict[int, list[str] | str]:
    """Number of a chain → its tools as the stage chooses them in this order, or why it has none."""
    stage = ChainStage(ChainSettings(number=len(order), modes=["goals", "conversation"]), sample)
    inputs = stage.list_inputs(StageOutputs(made={"environments": {"library": LIBRARY}, "graph": {"library": GRAPH}}))
    found: dict[int, list[str] | str] = {}
    for number in order:
        context = ItemContext("chains", {"writer": Silent()}, SamplingSettings(tries=1), asyncio.Semaphore(1))
        try:
            asyncio.run(stage.make(inputs[number], context))
        except Refused as refused:
            found[number] = str(refused.reason)
        except Asked as asked:
            found[number] = asked.tools
    return found


class Asked(Exception):  # noqa: N818 - it ends the work
    """The first question, by which the choice is known."""

    def __init__(self, tools: list[str]) -> None:
        self.tools = tools


class Silent:
    """Answers nothing."""

    async def ask(self, request: Any, *, item: str, draw: str) -> Any:
        text = str(request.messages[0]["content"]).partition("# The wanted tools")[2].partition("# Other tools")[0]
        raise Asked([name for name in GRAPH["tools"] if f'"name":"{name}"' in text])

    def find_asked(self, request: Any, draw: str) -> Any:
        return request


def test_chains_differ_and_do_not_depend_on_the_order() -> None:
    one, two = list_choices(list(range(8))), list_choices([5, 0, 7, 3, 1, 2, 6, 4])
    assert one == two
    assert len({tuple(each) for each in one.values()}) == 8
    writing = [sum(name not in READING for name in one[number]) for number in range(8)]
    assert all(writing)
    assert all(writing[number] == 2 for number in (0, 2, 4))


@pytest.mark.parametrize("tools", [READING, ["no_such_tool"], []])
def test_a_graph_without_a_chain_that_writes_gives_none(tools: list[str]) -> None:
    assert list_choices([0], lambda graph, rng: tools) == {0: "no_chain"}


def test_a_graph_with_one_chain_gives_it_once() -> None:
    found = list_choices([0, 1], lambda graph, rng: ["search_books", "lend_book"])
    assert found == {0: ["search_books", "lend_book"], 1: "no_chain"}
