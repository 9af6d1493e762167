"""Sampled tools of the turns: no tool twice, nothing lacks an input, and conversations cross environments."""

from __future__ import annotations

import random

import pytest

from simia.synthesis.conversations.chain_turns import group_environments, sample_turns
from simia.synthesis.conversations.conversation_settings import PlanSettings
from simia.synthesis.conversations.environment_composition import compose_environments
from simia.synthesis.graph.graph_building import make_graph
from simia.synthesis.graph.sampling import find_unsatisfied
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.stages.compositions import connect_environments
from tests.synthesis.conversation_fixtures import load_both


@pytest.fixture(scope="module")
def graph() -> ToolGraph:
    parts = load_both()
    return connect_environments(compose_environments(parts), {key: make_graph(built) for key, built in parts.items()})


def list_environments_of_turns(turns: list[list[str]]) -> set[str]:
    return {name.partition("/")[0] for turn in turns for name in turn}


def test_turns_have_what_they_need(graph: ToolGraph) -> None:
    settings = PlanSettings(turns=3, tools=5)
    lengths = set()
    for number in range(1000):
        turns = sample_turns(graph, number, random.Random(f"0/{number}"), settings)
        names = [name for turn in turns for name in turn]
        assert 1 <= len(turns) <= 3
        assert all(1 <= len(turn) <= 5 for turn in turns)
        assert len(set(names)) == len(names)
        assert not find_unsatisfied(graph, names)
        assert len(list_environments_of_turns(turns)) >= 1 + number % 2
        lengths.add(len(turns))
    assert lengths == {1, 2, 3}


def test_a_random_walk_lacks_inputs(graph: ToolGraph) -> None:
    settings = PlanSettings(topology=False)
    walks = [sample_turns(graph, n, random.Random(n), settings) for n in range(200)]
    chains = [[name for turn in turns for name in turn] for turns in walks]
    assert sum(bool(find_unsatisfied(graph, chain)) for chain in chains) > 20
    assert sum(len(set(chain)) < len(chain) for chain in chains) > 20


def test_the_seed_decides(graph: ToolGraph) -> None:
    settings = PlanSettings()
    found = [[sample_turns(graph, n, random.Random(f"{seed}/{n}"), settings) for n in range(20)] for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]


def test_one_turn_has_room_for_one_environment(graph: ToolGraph) -> None:
    settings = PlanSettings(turns=1, tools=2)
    for number in range(50):
        turns = sample_turns(graph, number, random.Random(number), settings)
        assert len(turns) == 1
        assert len(turns[0]) <= 2


def test_a_graph_without_a_tool_that_can_be_called_gives_nothing() -> None:
    assert sample_turns(ToolGraph(tools={}), 1, random.Random(0), PlanSettings()) == []


def test_each_environment_is_in_one_group() -> None:
    assert group_environments(["a", "b", "c", "d"], 3) == [["a", "b", "c"], ["d"]]
    assert group_environments(["a", "b"], 1) == [["a"], ["b"]]
    assert group_environments([], 3) == []
