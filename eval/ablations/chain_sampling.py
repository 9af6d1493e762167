"""Compare chains of tools by topology-aware sampling with random walks over the same graphs: unsatisfied inputs, repeated tools, lengths.

    python -m eval.ablations.chain_sampling

The graphs are those of tests/synthesis/random_graphs.py that resemble a domain: 20 to 40 tools over 5 to 9 tables.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from simia.synthesis.graph.sampling import ChainSampling, find_unsatisfied, sample_chain, walk_randomly
from tests.synthesis.random_graphs import draw_domain

GRAPHS = 10_000
LONG = 6
"""Tools of a long chain."""


@dataclass(slots=True)
class SamplerFigures:
    """What is wrong with the chains of one sampler."""

    name: str
    chains: int = 0
    unsatisfied: int = 0
    """Chains with a tool that lacks a required input."""
    repeated: int = 0
    """Chains that contain a tool twice."""
    long: int = 0
    """Chains of at least `LONG` tools."""
    long_repeated: int = 0
    lengths: Counter[int] = field(default_factory=Counter)


def count_samplers(
    graphs: int = GRAPHS, settings: ChainSampling | None = None
) -> tuple[SamplerFigures, SamplerFigures]:
    """Sample one chain of each graph by topology, and one by a random walk of a length drawn from the same range."""
    settings = settings or ChainSampling()
    topology, walk = SamplerFigures("topology-aware"), SamplerFigures("random walk")
    for key in range(graphs):
        graph, rng = draw_domain(key), random.Random(f"walk/{key}")
        length = rng.randint(settings.shortest, settings.longest)
        chains = sample_chain(graph, random.Random(f"chain/{key}"), settings), walk_randomly(graph, rng, length)
        for figures, chain in zip((topology, walk), chains, strict=True):
            repeated = len(set(chain)) < len(chain)
            figures.chains += 1
            figures.unsatisfied += bool(find_unsatisfied(graph, chain))
            figures.repeated += repeated
            figures.long += len(chain) >= LONG
            figures.long_repeated += repeated and len(chain) >= LONG
            figures.lengths[len(chain)] += 1
    return topology, walk


def main() -> None:
    lengths = ChainSampling()
    table = Table(
        "sampler",
        "unsatisfied input",
        "tool twice",
        f"of {LONG} or more tools: twice",
        "lengths",
        title=f"{GRAPHS} graphs",
    )
    for each in count_samplers():
        shares = " ".join(
            f"{n}:{each.lengths[n] / each.chains:.0%}" for n in range(1, lengths.longest + 1) if each.lengths[n]
        )
        table.add_row(
            each.name,
            f"{each.unsatisfied / each.chains:.1%}",
            f"{each.repeated / each.chains:.1%}",
            f"{each.long_repeated / max(each.long, 1):.1%} of {each.long}",
            shares,
        )
    Console().print(table)


if __name__ == "__main__":
    main()
