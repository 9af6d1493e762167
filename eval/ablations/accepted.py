"""One ablation of each synthesis paper at the level of accepted tasks: counts, stored as JSON, and a figure with Wilson's intervals.

    python -m eval.ablations.accepted scaleenv      # execution, refinement and topology off: tasks accepted, and what is wrong with them
    python -m eval.ablations.accepted envscaler     # execution and the check agent off: what is accepted and fails afterwards
    python -m eval.ablations.accepted envfactory    # topology off, graph refinement off: chains with an unsatisfied input
    python -m eval.ablations.accepted codegym       # filters off: tasks of too few or too many calls, or too few tools

ScaleEnv and EnvScaler use the replies of tests/synthesis/fixtures, written by hand (`scaleenv_switches`, `synthesis_switches`); ScaleEnv without
refinement also replays the recorded domain (`recorded_refinement`). EnvFactory samples the graphs of the recorded pack `job_seeking` and of
`customer_service`. CodeGym replays tests/recordings/codegym.jsonl (`gym_filters`).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eval.ablations.gym_filters import count_gym_filters
from eval.ablations.outcomes import save_counts
from eval.ablations.recorded_refinement import count_refinement
from eval.ablations.scaleenv_switches import count_samplers, count_task_switches
from eval.ablations.synthesis_switches import count_all
from simia.errors import UserError
from simia.pack import Pack
from simia.synthesis.graph.graph_building import make_graph, read_pack_graph
from simia.synthesis.graph.sampling import ChainSampling, find_unsatisfied, sample_chain, walk_randomly

RESULTS = Path(__file__).parent / "results"
GRAPHS = ("job_seeking", "customer_service")
CHAINS = 2_000
Count = dict[str, Any]


def count_scaleenv() -> Iterator[Count]:
    for switches, count in count_task_switches():
        yield make_count(switches.name, "tasks accepted, of those given", count.accepted, count.given)
        yield make_count(switches.name, "the gate refuses, of those accepted", len(count.refused), count.accepted)
        yield make_count(switches.name, "show an unusable tool, of those accepted", len(count.unusable), count.accepted)
        yield make_count(
            switches.name, "tools shown, of those of each accepted task's library", count.shown, 7 * count.accepted
        )
    for each in count_samplers():
        yield make_count(each.sampler, "sampled chains that lack an input", each.unsatisfied, each.given)
        yield make_count(each.sampler, "sampled chains accepted as tasks", each.accepted, each.given)
        yield make_count(each.sampler, "sampled chains whose task the gate passes", each.passed, each.given)
    yield from count_refinement(RESULTS)


def count_envscaler() -> Iterator[Count]:
    for switches, kind, count in count_all():
        yield make_count(switches.name, f"{kind} accepted, of those given", count.accepted, count.given)
        yield make_count(
            switches.name, f"{kind} that fail afterwards, of those accepted", len(count.failed), count.accepted
        )


def count_envfactory(chains: int = CHAINS) -> Iterator[Count]:
    """Judge chains by the pack's own graph, since it has the corrections of a model or an author, and the graph by words does not."""
    settings = ChainSampling()
    for name in GRAPHS:
        pack = Pack.load(name)
        refined, plain = read_pack_graph(pack), make_graph(pack)

        def walk(rng: random.Random, graph: Any = refined) -> list[str]:
            return walk_randomly(graph, rng, rng.randint(settings.shortest, settings.longest))

        samplers: dict[str, Callable[[random.Random], list[str]]] = {
            "topology": lambda rng, graph=refined: sample_chain(graph, rng, settings),
            "topology, graph not refined": lambda rng, graph=plain: sample_chain(graph, rng, settings),
            "random walk": walk,
        }
        for sampler, sample in samplers.items():
            found = [sample(random.Random(f"{name}/{key}")) for key in range(chains)]
            unsatisfied = sum(bool(find_unsatisfied(refined, chain)) for chain in found)
            repeated = sum(len(set(chain)) < len(chain) for chain in found)
            yield make_count(sampler, f"{name}: chains with an unsatisfied input", unsatisfied, chains)
            yield make_count(sampler, f"{name}: chains with a tool twice", repeated, chains)


def make_count(arm: str, measure: str, count: int, of: int) -> Count:
    return {"arm": arm, "measure": measure, "count": count, "of": of}


PAPERS: dict[str, tuple[str, Callable[[], Iterator[Count]]]] = {
    "scaleenv": ("ScaleEnv without execution, refinement or topology", count_scaleenv),
    "envscaler": ("EnvScaler without execution or the check agent", count_envscaler),
    "envfactory": ("EnvFactory without topology or graph refinement", count_envfactory),
    "codegym": ("CodeGym without its filters", lambda: count_gym_filters(RESULTS)),
}


def main(paper: str) -> None:
    title, count = PAPERS[paper]
    save_counts(f"{paper}_accepted", title, list(count()), RESULTS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paper", choices=PAPERS)
    try:
        main(parser.parse_args().paper)
    except UserError as error:
        sys.exit(f"ablation: {error}")
