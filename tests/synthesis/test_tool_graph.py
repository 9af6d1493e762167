"""The tool graph without a model: what provides what, which tables are shared, which arguments a user must know."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.pack_provenance import ToolEdge
from simia.synthesis.context import ItemContext
from simia.synthesis.graph.graph_building import (
    join_graphs,
    list_parameter_texts,
    make_graph,
    mark_external,
    read_pack_graph,
)
from simia.synthesis.graph.graph_settings import GraphSettings
from simia.synthesis.graph.tool_graph import GraphInput, GraphTool, ToolGraph
from simia.synthesis.graph.tool_results import read_fields
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import StageInput, StageOutputs
from simia.synthesis.stages.graph import GraphStage
from simia.tool import ToolSpec
from tests.synthesis.build_fixtures import FIXTURES, FixtureEngine, load_library, run_stages

PROVIDED = {
    ("search_books", "lend_book", "book_id"),
    ("list_loans", "lend_book", "book_id"),
    ("list_loans", "return_book", "loan_id"),
    ("lend_book", "return_book", "loan_id"),
    ("list_loans", "renew_loan", "loan_id"),
    ("lend_book", "renew_loan", "loan_id"),
}


def list_provided(graph: ToolGraph) -> set[tuple[str, str, str | None]]:
    return {(edge.source, edge.target, edge.argument) for edge in graph.edges if edge.kind == "provides"}


def list_internal(graph: ToolGraph, tool: str) -> list[str]:
    return [each.name for each in graph.tools[tool].inputs if not each.external]


def make_pack(tools: Any) -> Pack:
    return Pack(name="made", tools=[ToolSpec.model_validate(tool) for tool in tools])


def read_travel() -> Pack:
    return make_pack(json.loads((FIXTURES / "graph" / "travel_tools.json").read_text()))


def test_a_built_environment_has_the_edges_of_its_identifiers() -> None:
    graph = make_graph(load_library())
    assert list_provided(graph) == PROVIDED
    assert graph.list_producers("lend_book", "book_id") == ["search_books", "list_loans"]
    assert [each.name for each in graph.list_needs("lend_book")] == ["book_id"], "no tool returns a member's id"
    changed = {(edge.source, edge.target) for edge in graph.edges if edge.kind == "changes"}
    assert {("lend_book", "return_book"), ("pay_fine", "get_member")} <= changed
    assert not any(source in {"search_books", "get_member", "list_loans"} for source, _ in changed), (
        "look-ups change nothing"
    )
    assert ("pay_fine", "return_book") not in changed, "the two concern rows of different tables"


def test_a_result_that_repeats_an_argument_provides_nothing() -> None:
    graph = make_graph(load_library())
    assert "member_id" in [each.name for each in graph.tools["get_member"].outputs]
    assert graph.list_producers("pay_fine", "member_id") == []


def test_foreign_tools_without_tables_are_matched_by_names() -> None:
    graph = make_graph(read_travel())
    assert list_provided(graph) == {
        ("searchFlights", "bookFlight", "flightId"),
        ("getTraveller", "bookFlight", "travellerId"),
        ("bookFlight", "cancelBooking", "id"),
        ("geocodeCity", "getForecast", "latitude"),
        ("geocodeCity", "getForecast", "longitude"),
    }, "neither `status`, nor a listed `cabin`, nor an id of something else"
    assert list_internal(graph, "bookFlight") == ["flightId", "travellerId"]
    assert next(edge.result for edge in graph.edges if edge.target == "bookFlight") == "flights.id"
    assert not any(edge.kind == "changes" for edge in graph.edges), "no tool names a table"


def test_results_of_a_pack_without_declarations_come_from_its_recordings() -> None:
    graph = make_graph(Pack.load("customer_service"))
    assert {"order_id", "orders", "status"} <= {each.name for each in graph.tools["list_orders"].outputs}
    assert graph.list_producers("list_orders", "customer_id") == ["find_customer"]
    assert ("get_order", "return_items", "item_ids") in list_provided(graph)
    assert ("search_products", "exchange_item", "new_product_id") in list_provided(graph)
    assert ("get_voucher", "get_order", "order_id") in list_provided(graph), "`used_for` is a foreign key of orders"
    assert list_internal(graph, "get_order") == ["order_id"], "a user knows their own email"


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ("A list of {order_id, total} in the order of the ids", ["order_id", "total"]),
        ("{id, items}; items is a list of {item_id, price}", ["item_id", "price", "id", "items"]),
        ('{"order_id": the new order, "note": its note}', ["order_id", "note"]),
        ("Object containing the new feedback_id and confirmed interview_id.", ["feedback_id", "interview_id"]),
        ("Whether it worked", []),
        ("{", []),
    ],
)
def test_fields_of_a_result_in_words(words: str, fields: list[str]) -> None:
    assert sorted(read_fields(words)) == sorted(fields)


def test_every_tool_can_be_called_also_in_a_circle() -> None:
    """`one` needs what `two` returns and the reverse: a user knows one of them. The third tool needs nothing else."""
    tools = {
        "one": GraphTool(inputs=[GraphInput(name="a_id")]),
        "two": GraphTool(inputs=[GraphInput(name="b_id")], writes=True),
        "three": GraphTool(inputs=[GraphInput(name="b_id"), GraphInput(name="colour")]),
    }
    edges = [
        ToolEdge(source="two", target="one", argument="a_id"),
        ToolEdge(source="one", target="two", argument="b_id"),
        ToolEdge(source="one", target="three", argument="b_id"),
    ]
    graph = mark_external(ToolGraph(tools=tools, edges=edges))
    assert list_internal(graph, "one") == [], "the look-up is where one begins"
    assert list_internal(graph, "two") == list_internal(graph, "three") == ["b_id"]
    known = mark_external(ToolGraph(tools=tools, edges=edges), [("three", "b_id")])
    assert list_internal(known, "three") == []


def test_the_edges_of_a_pack_come_before_those_that_words_find() -> None:
    pack = read_travel()
    pack.__dict__["graph"] = [
        ToolEdge(source="getTraveller", target="bookFlight", argument="travellerId"),
        ToolEdge(source="dropped", target="bookFlight", argument="flightId"),
    ]
    graph = read_pack_graph(pack)
    assert list_provided(graph) == {("getTraveller", "bookFlight", "travellerId")}
    assert list_internal(graph, "bookFlight") == ["travellerId"]


def test_odd_and_hostile_declarations_are_read_as_data() -> None:
    deep: dict[str, Any] = {"properties": {"order_id": {"type": "string"}}}
    for _ in range(400):
        deep = {"items": deep}
    tools = [
        {"name": "get_order", "returns": deep},
        {"name": "find_order", "returns": {"anyOf": 5, "properties": ["x"], "items": {"properties": {"id": "string"}}}},
        {"name": "a", "parameters": {"properties": ["x"], "required": "x"}},
        {
            "name": "list_orders",
            "returns": {"properties": {"订单号": {"type": ["null", "string"]}, "": {}, "orderID": {}}},
        },
        {
            "name": "取消",
            "parameters": {
                "properties": {"订单号": {"type": "string"}, "order_id": {"anyOf": [{"type": "null"}]}, "y": 1}
            },
        },
    ]
    graph = make_graph(make_pack(tools))
    assert {("list_orders", "取消", "订单号"), ("list_orders", "取消", "order_id")} <= list_provided(graph)
    assert make_graph(make_pack([])) == ToolGraph(tools={})


def test_texts_of_tools_that_write_are_matched_unless_they_make_something() -> None:
    path = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "rows": {"type": "integer"}},
        "required": ["path"],
    }
    tools = [
        {"name": "search_files", "returns": {"properties": {"path": {"type": "string"}, "rows": {"type": "integer"}}}},
        *({"name": name, "parameters": path} for name in ("delete_file", "create_file", "read_file")),
    ]
    assert list_provided(make_graph(make_pack(tools))) == {
        ("search_files", "delete_file", "path"),
        ("search_files", "read_file", "path"),
        ("search_files", "read_file", "rows"),
    }


def test_numbers_in_names_tell_them_apart() -> None:
    tools = [
        {"name": "get_match", "returns": "{player1_id, player2_id}"},
        {"name": "ban", "parameters": {"properties": {"player2_id": {"type": "string"}}, "required": ["player2_id"]}},
    ]
    graph = make_graph(make_pack(tools))
    assert [edge.result for edge in graph.edges] == ["player2_id"]


def test_a_field_of_the_same_name_comes_first() -> None:
    tools = [
        {"name": "get_stay", "returns": "{old_room_id, room_id}"},
        {"name": "clean", "parameters": {"properties": {"room_id": {"type": "string"}}, "required": ["room_id"]}},
    ]
    assert [edge.result for edge in make_graph(make_pack(tools)).edges] == ["room_id"]


def test_several_environments_make_one_graph() -> None:
    graph = join_graphs({"library": make_graph(load_library()), "travel": make_graph(read_travel())})
    assert graph.list_producers("library/lend_book", "book_id") == ["library/search_books", "library/list_loans"]
    assert all(edge.source.split("/")[0] == edge.target.split("/")[0] for edge in graph.edges)


def test_embeddings_find_what_names_do_not_and_join_no_two_tables() -> None:
    built = load_library()
    texts = list_parameter_texts(built)
    vectors = {text: [1.0, 0.0] for text in texts}
    found = make_graph(built, GraphSettings(matcher="embeddings"), vectors=vectors)
    assert list_provided(found) > PROVIDED
    assert ("get_member", "pay_fine", "amount") in list_provided(found), "a number for a number"
    assert not any(edge.result == "book_id" for edge in found.edges if edge.argument == "loan_id")
    assert {edge.origin for edge in found.edges} == {"words", "embeddings", "state"}
    apart = {text: [0.0] * n + [1.0] + [0.0] * (len(texts) - n - 1) for n, text in enumerate(texts)}
    assert list_provided(make_graph(built, GraphSettings(matcher="embeddings"), vectors=apart)) == PROVIDED


def test_the_stage_gives_a_graph_for_each_environment() -> None:
    outputs = StageOutputs(made={"environments": {"library": load_library().model_dump(mode="json")}})
    run_stages(FixtureEngine({}), [GraphStage(GraphSettings(refine=False))], outputs)
    graph = ToolGraph.model_validate(outputs.of("graph")["library"])
    assert graph == make_graph(load_library())
    assert outputs.notes["graph"]["library"]["edges"] == {"changes": 12, "provides": 6}


class OneVector:
    """Embeds every text as the same vector."""

    async def ask(self, request: Request, *, item: str, draw: str) -> Reply:
        return Reply(text=json.dumps([[1.0, 0.0]] * len(request.input or [])))

    def find_asked(self, request: Request, draw: str) -> Request:
        return request


@pytest.mark.parametrize(("roles", "compared_by"), [({"embeddings": OneVector()}, "embeddings"), ({}, "words")])
async def test_the_stage_embeds_parameters_if_the_run_has_a_model_for_it(
    roles: dict[str, OneVector], compared_by: str
) -> None:
    stage = GraphStage(GraphSettings(matcher="embeddings", refine=False))
    context = ItemContext("graph/library", roles, SamplingSettings(), asyncio.Semaphore(1))
    made = await stage.make(StageInput("library", load_library().model_dump(mode="json")), context)
    assert context.notes["compared_by"] == compared_by
    found = list_provided(ToolGraph.model_validate(made))
    assert (found > PROVIDED) == (compared_by == "embeddings")
