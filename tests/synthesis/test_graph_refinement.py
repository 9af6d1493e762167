"""A model's corrections of the tool graph: good ones, wrong ones, and such that would leave tools that cannot be called."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from simia.authoring.validate import validate_pack
from simia.pack import Pack
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.graph.graph_building import list_known_arguments, make_graph, read_pack_graph
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.refinement import CorrectedGraph, GraphCorrections, correct_graph
from simia.synthesis.graph.tool_graph import ToolGraph
from simia.synthesis.stage import StageOutputs
from simia.synthesis.stages.graph import GraphStage
from tests.synthesis.build_fixtures import FIXTURES, FixtureEngine, load_library, run_stages
from tests.synthesis.test_tool_graph import PROVIDED, list_internal, list_provided

BOOKS = {edge for edge in PROVIDED if edge[1] == "lend_book"}


def read_corrections(name: str) -> str:
    return (FIXTURES / "graph" / f"{name}_corrections.md").read_text(encoding="utf-8")


def refine(*replies: str) -> tuple[ToolGraph, StageOutputs, FixtureEngine]:
    """Run the stage with these replies to its question and to the repetitions of it."""
    draws = ["graph/library.refine", *(f"graph/library.refine.again{n}" for n in range(1, len(replies)))]
    engine = FixtureEngine(dict(zip(draws, replies, strict=True)))
    outputs = StageOutputs(made={"environments": {"library": load_library().model_dump(mode="json")}})
    run_stages(engine, [GraphStage(GraphSettings())], outputs)
    return ToolGraph.model_validate(outputs.of("graph")["library"]), outputs, engine


def correct(row: str) -> CorrectedGraph:
    built = load_library()
    corrections = GraphCorrections.model_validate_json(row)
    return correct_graph(make_graph(built), list_known_arguments(built), corrections)


def list_uncallable(graph: ToolGraph) -> set[str]:
    """Tools that no sequence of calls reaches."""
    done: set[str] = set()
    while True:
        more = {
            name
            for name in graph.tools.keys() - done
            if all(done & set(graph.list_producers(name, each.name)) for each in graph.list_needs(name))
        }
        if not more:
            return graph.tools.keys() - done
        done |= more


def test_a_good_reply_adds_conditions_and_a_value_of_another_name() -> None:
    graph, outputs, engine = refine(read_corrections("good"))
    added = ("get_member", "pay_fine", "amount")
    assert list_provided(graph) == PROVIDED - {("lend_book", "renew_loan", "loan_id")} | {added}
    conditions = [(edge.source, edge.target, edge.origin) for edge in graph.edges if edge.kind == "requires"]
    assert conditions == [("pay_fine", "lend_book", "model"), ("lend_book", "return_book", "model")]
    assert list_internal(graph, "pay_fine") == ["amount"]
    assert next(edge.result for edge in graph.edges if edge.argument == "amount") == "fines"
    notes = outputs.notes["graph"]["library"]
    assert (notes["refined"], notes["added"], notes["removed"], notes["ignored"]) == (True, 3, 1, [])
    prompt = str(engine.asked["graph/library.refine"].messages[0]["content"])
    assert "- lend_book.book_id from search_books.book_id, list_loans.book_id" in prompt
    assert "- return_book(loan_id* (string, internal))" in prompt
    assert "refused if: there is no such loan; the loan was returned already" in prompt


def test_corrections_of_what_does_not_exist_are_ignored_and_named() -> None:
    graph, outputs, _ = refine(read_corrections("wrong"))
    assert list_provided(graph) == PROVIDED | {("return_book", "pay_fine", "amount")}
    edge = next(edge for edge in graph.edges if edge.argument == "amount")
    assert edge.result is None, "the result has no such field"
    assert list_internal(graph, "search_books") == [], "no tool gives the word"
    ignored = outputs.notes["graph"]["library"]["ignored"]
    assert ignored == [
        "remove search_books → renew_loan: no such edge",
        "add open_library → lend_book: no tool open_library",
        "add get_member → lend_book: no argument card_number",
        "add lend_book → lend_book: a tool does not depend on itself",
        "add search_books → lend_book: it exists",
        "lend_book.shelf: no such argument",
        "everything: no such argument",
    ]


def test_a_hostile_reply_leaves_no_tool_that_cannot_be_called() -> None:
    graph, _, _ = refine(read_corrections("hostile"))
    assert list_provided(graph) == {("return_book", "renew_loan", "loan_id"), ("renew_loan", "return_book", "loan_id")}
    assert list_uncallable(graph) == set()
    assert list_internal(graph, "lend_book") == [], "a value that nothing provides is the user's"
    assert sorted(list_internal(graph, "return_book") + list_internal(graph, "renew_loan")) == ["loan_id"]


def test_as_many_edges_as_a_reply_likes_are_not_added() -> None:
    names = list(load_library().tools)
    every = [{"kind": "requires", "source": one, "target": other} for one in names for other in names if one != other]
    found = correct(json.dumps({"add": every}))
    assert found.added == 14
    assert len(found.ignored) == len(every) - 14
    assert found.ignored[0].endswith("too many edges")


@pytest.mark.parametrize("bad", ["I would rather not.", '```json\n{"add": "all"}\n```', "```json\n[1, 2]\n```"])
def test_an_unreadable_reply_is_asked_for_again_and_never_refuses_an_environment(bad: str) -> None:
    graph, outputs, engine = refine(bad, read_corrections("good"))
    assert outputs.notes["graph"]["library"]["refined"] is True
    assert len(engine.asked) == 2
    graph, outputs, engine = refine(bad, bad, bad)
    assert graph == make_graph(load_library())
    assert outputs.notes["graph"]["library"]["refined"] is False
    assert len(engine.asked) == 3


def test_a_written_pack_keeps_the_edges_of_the_tools_that_it_has(tmp_path: Path) -> None:
    graph, _, _ = refine(read_corrections("good"))
    built = load_library()
    write_environment(tmp_path / "library", built, graph=graph)
    pack = Pack.load(tmp_path / "library")
    assert pack.graph == graph.edges
    findings, _ = asyncio.run(validate_pack(pack))
    assert findings == []
    found = read_pack_graph(pack)
    assert found.edges == graph.edges
    assert list_provided(found) >= BOOKS
    del built.tools["list_loans"]
    built.tests = [test for test in built.tests if test.call.name != "list_loans"]
    write_environment(tmp_path / "smaller", built, graph=graph)
    kept = Pack.load(tmp_path / "smaller").graph
    assert kept == [edge for edge in graph.edges if "list_loans" not in (edge.source, edge.target)]
    write_environment(tmp_path / "bare", built)
    assert not (tmp_path / "bare" / "graph.jsonl").exists()
