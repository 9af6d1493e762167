"""Precision and recall of the matcher of the tool graph against graphs written by hand, and against the data flow of recorded solutions.

    python -m eval.ablations.graph_matching seeds/customer_service
    python -m eval.ablations.graph_matching HOTEL_PACK --graph eval/graph/hotel_front_desk.jsonl

An edge `provides` is right if the source's result has a value that is new to its caller and that can be the target's argument in some
sensible, successful sequence of calls. Methods: `words`, the default; fields and arguments of equal names, with and without
fields that repeat an argument; and texts `name (type): description` compared by lexical vectors, where EnvFactory uses embeddings
(at its threshold, 0.85, and at the threshold that fits this pack best).

Data flow: an identifier in the arguments of a call in a recorded solution that occurs in no user message. Its source is the first call
whose result contains it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from simia.llm.backends import open_backend
from simia.llm.embedded import EmbeddedSettings
from simia.llm.embeddings import compute_cosine, embed_texts, make_lexical_vectors
from simia.llm.engine import Engine
from simia.pack import Pack, read_pack_rows
from simia.pack_provenance import ToolEdge
from simia.quality.grounding import iterate_scalars_at, looks_like_code
from simia.synthesis.graph.graph_building import list_parameter_texts, make_graph
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.parameter_matching import describe_parameter
from simia.synthesis.graph.tool_graph import PROVIDES, ToolGraph

Flow = tuple[str, str, str]
"""Source, target, argument."""
THRESHOLD = 0.85


def list_flows(edges: Iterable[ToolEdge]) -> set[Flow]:
    return {(edge.source, edge.target, edge.argument or "") for edge in edges if edge.kind == PROVIDES}


def match_names(graph: ToolGraph, *, new_only: bool) -> set[Flow]:
    """Match every field with the arguments of its name. `new_only`: leave out fields that are required arguments of the source."""
    found = set()
    for source, node in graph.tools.items():
        given = {each.name for each in node.inputs if each.required} if new_only else set()
        fields = {each.name for each in node.outputs} - given
        for target, other in graph.tools.items():
            found |= {(source, target, each.name) for each in other.inputs if each.name in fields and source != target}
    return found


def match_texts(pack: Pack, graph: ToolGraph) -> dict[Flow, float]:
    """(source, target, argument) → the largest cosine of the argument's text with that of a field."""
    texts = list_parameter_texts(pack)
    vectors = dict(zip(texts, make_lexical_vectors(texts), strict=True))
    return {
        (source, target, each.name): max(
            (compute_cosine(vectors[describe_parameter(field)], vectors[describe_parameter(each)]) for field in node.outputs),
            default=0.0,
        )
        for source, node in graph.tools.items()
        for target, other in graph.tools.items()
        for each in other.inputs
        if source != target
    }  # fmt: skip


def read_solution_flows(pack: Pack) -> set[Flow]:
    """The data flow of the pack's recorded solutions."""
    found: set[Flow] = set()
    for episode in pack.references.values():
        said = " ".join(message.text for message in episode.messages if message.role == "user").casefold()
        names: dict[str, str] = {}
        seen: dict[str, str] = {}
        for message in episode.messages:
            for call in message.calls:
                names[call.id] = call.name
                for argument, value in (call.arguments or {}).items():
                    for text in list_codes(value):
                        source = seen.get(text, call.name)
                        if text.casefold() not in said and source != call.name:
                            found.add((source, call.name, argument))
            if message.role == "tool":
                for text in list_codes(load_result(message.text)):
                    seen.setdefault(text, names[message.call_id or ""])
    return found


def list_codes(value: Any) -> Iterator[str]:
    """The texts in a JSON value that look like identifiers."""
    return (each for _, each in iterate_scalars_at(value, None, "") if looks_like_code(each))


def load_result(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def measure_edges(pack: Pack, right: set[Flow], more: dict[str, set[Flow]], to: Console) -> None:
    """Print a row for each method."""
    graph = make_graph(pack)
    cosines = match_texts(pack, graph)
    best = max(
        (n / 100 for n in range(5, 100, 5)), key=lambda t: score({f for f, c in cosines.items() if c >= t}, right)[2]
    )
    rows = {
        "words": list_flows(graph.edges),
        "equal names, echoes left out": match_names(graph, new_only=True),
        "equal names": match_names(graph, new_only=False),
        f"texts, cosine {THRESHOLD}": {flow for flow, cosine in cosines.items() if cosine >= THRESHOLD},
        f"texts, cosine {best:.2f} (best)": {flow for flow, cosine in cosines.items() if cosine >= best},
    }
    flows = read_solution_flows(pack)
    table = Table("method", "edges", "precision", "recall", "F1", f"of {len(flows)} flows of solutions", box=None)
    for name, found in {**rows, **more, "by hand": right}.items():
        precision, recall, f1 = score(found, right)
        share = f"{len(flows & found) / len(flows):.3f}" if flows else "–"
        table.add_row(name, str(len(found)), f"{precision:.3f}", f"{recall:.3f}", f"{f1:.3f}", share)
    to.print(f"{pack.name}: {len(graph.tools)} tools, {len(right)} edges by hand")
    to.print(table)
    for title, wrong in (("missing", right - rows["words"]), ("too many", rows["words"] - right)):
        to.print(f"{title}: " + ("; ".join(f"{s} → {t}.{a}" for s, t, a in sorted(wrong)) or "none"))
    if lost := flows - rows["words"]:
        to.print("flows of solutions that are no edges: " + "; ".join(f"{s} → {t}.{a}" for s, t, a in sorted(lost)))


def score(found: set[Flow], right: set[Flow]) -> tuple[float, float, float]:
    """Precision, recall and their harmonic mean."""
    both = len(found & right)
    precision, recall = both / len(found) if found else 0.0, both / len(right) if right else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if both else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pack", help="folder of a pack")
    parser.add_argument("--embeddings", help="GGUF file that embeds the texts as well")
    parser.add_argument("--graph", help="file with the edges by hand; default: the pack's own graph")
    given = parser.parse_args()
    pack = Pack.load(given.pack)
    edges = read_pack_rows(Path(given.graph), ToolEdge) if given.graph else pack.graph
    found = {}
    if given.embeddings:
        vectors = asyncio.run(embed_parameters(list_parameter_texts(pack), given.embeddings))
        for threshold in (THRESHOLD, 0.95):
            graph = make_graph(pack, GraphSettings(matcher="embeddings", threshold=threshold), vectors=vectors)
            found[f"words or embeddings, {threshold}"] = list_flows(graph.edges)
    measure_edges(pack, list_flows(edges), found, Console(width=150, highlight=False))


async def embed_parameters(texts: list[str], model: str) -> dict[str, list[float]]:
    """Vectors of the parameters' texts by a local model."""
    async with Engine(open_backend(EmbeddedSettings(model=model, embeddings=True))) as engine:
        vectors = await embed_texts(lambda asked, draw: engine.ask(asked, item="x", draw=draw), texts, draw="x")
    return dict(zip(texts, vectors, strict=True))


if __name__ == "__main__":
    main()
