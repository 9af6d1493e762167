"""Sample the tools of each turn from the graph of a composition (EnvFactory §3.3.2 and §3.4, planning)."""

from __future__ import annotations

import random
from collections.abc import Sequence

from simia.synthesis.conversations.conversation_settings import PlanSettings
from simia.synthesis.graph.sampling import ChainSampling, sample_chain, walk_randomly
from simia.synthesis.graph.tool_graph import ToolGraph


def group_environments(keys: Sequence[str], together: int) -> list[list[str]]:
    """Put environments into groups of at most `together`, in their order; each is in one group."""
    return [list(keys[first : first + together]) for first in range(0, len(keys), together)]


def sample_turns(graph: ToolGraph, number: int, rng: random.Random, settings: PlanSettings) -> list[list[str]]:
    """Sample a chain and split it into turns.

    Conversation number n shall use at least 1 + (n mod number of environments) environments, `settings.turns` at most. If the sampled chain
    uses fewer, one chain is sampled in each of that many environments. A chain may be cut: the tools before the cut have all they need.

    Args:
        graph: tools named `environment/tool`.
        number: number of the conversation within its composition.
        rng: source of all random choices.
        settings: numbers of turns and tools, and how chains are sampled.

    Returns:
        The tools of each turn; no tool twice, unless chains are random walks. Empty if no tool can be executed.
    """
    environments = list(dict.fromkeys(name.partition("/")[0] for name in graph.tools))
    wanted = min(1 + number % max(1, len(environments)), settings.turns)
    sampling = settings.sampling
    if not settings.topology:
        walk = walk_randomly(graph, rng, rng.randint(sampling.shortest, sampling.longest))
        return split_chain(walk, rng, settings.tools)[: settings.turns]
    turns = split_chain(sample_chain(graph, rng, sampling), rng, settings.tools)[: settings.turns]
    if len({name.partition("/")[0] for turn in turns for name in turn}) >= wanted:
        return turns
    sampling = shorten_chains(sampling, wanted)
    chosen = rng.sample(environments, len(environments))
    chains = [chain for each in chosen if (chain := sample_chain(select_environment(graph, each), rng, sampling))]
    return share_turns(chains[:wanted], rng, settings)


def share_turns(chains: Sequence[Sequence[str]], rng: random.Random, settings: PlanSettings) -> list[list[str]]:
    """Return the turns of several chains, one chain after the other; the longest ones are cut, but each keeps at least one turn."""
    turns = [split_chain(chain, rng, settings.tools) for chain in chains]
    while sum(map(len, turns)) > settings.turns:
        longest = max(turns, key=len)
        longest.pop()
    return [turn for each in turns for turn in each]


def split_chain(chain: Sequence[str], rng: random.Random, most: int) -> list[list[str]]:
    """Split a chain into turns of 1 to `most` tools."""
    turns, left = [], list(chain)
    while left:
        size = rng.randint(1, most)
        turns.append(left[:size])
        left = left[size:]
    return turns


def shorten_chains(sampling: ChainSampling, parts: int) -> ChainSampling:
    """Return the settings for one chain if `parts` chains form one conversation."""
    longest = max(1, sampling.longest // parts)
    return sampling.model_copy(update={"shortest": min(sampling.shortest, longest), "longest": longest})


def select_environment(graph: ToolGraph, environment: str) -> ToolGraph:
    """The part of a graph that belongs to one environment."""
    return graph.select([name for name in graph.tools if name.partition("/")[0] == environment])
