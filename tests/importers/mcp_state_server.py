"""A server by the official SDK (mcp<2) that keeps a shop in memory, which two tools load and save; its schemas break JSON Schema."""

import asyncio
import copy
import json
import os
import sys
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TEXT = len(sys.argv) > 1 and sys.argv[1] == "text"  # the state travels as JSON text
START = {"orders": {"O-1": {"status": "pending", "total": 5}}, "log": []}
STATE: dict[str, Any] = copy.deepcopy(START)
READS = types.ToolAnnotations(readOnlyHint=True)
ORDER = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
LOAD = {
    "type": "object",
    "properties": {"scenario": {"type": "string" if TEXT else "object"}},
    "required": ["scenario"],
}
BROKEN: dict[str, dict[str, Any]] = {
    "required_flag": {"type": "object", "properties": {"value": {"type": "string", "required": True}}},
    "any_type": {"type": "object", "properties": {"value": {"type": "any"}, "other": {"type": None}}},
    "no_type": {"properties": {"value": {"type": "string"}}},
    "nothing": {},
    "additional": {"type": "object", "properties": {"value": {}}, "additionalProperties": "false"},
    "draft_4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {"value": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
    },
    "enumeration": {"type": "object", "properties": {"value": {"type": "string", "enum": [1, 2], "default": "3"}}},
    "examples": {"type": "object", "properties": {"value": {"type": "string", "examples": "x"}}, "required": True},
    "hopeless": {"type": "object", "properties": {"value": {"type": "strnig"}}},
}
TOOLS = [
    types.Tool(name="load_scenario", description="Load the shop.", inputSchema=LOAD),
    types.Tool(name="save_scenario", description="Save the shop.", inputSchema={"type": "object", "properties": {}}),
    types.Tool(name="orders", description="All orders.", inputSchema={"type": "object"}, annotations=READS),
    types.Tool(name="cancel", description="Cancel an order.", inputSchema=ORDER),
    types.Tool(name="end", description="The server ends.", inputSchema={"type": "object", "properties": {}}),
    types.Tool(
        name="look", description="Variables.", inputSchema={"type": "object", "properties": {}}, annotations=READS
    ),
    *(types.Tool(name=name, description="Takes a value.", inputSchema=schema) for name, schema in BROKEN.items()),
]
server: Any = Server("shop", version="3")


@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return TOOLS


@server.call_tool(validate_input=False)
async def call_tool(name: str, arguments: dict[str, Any]) -> Any:
    if name == "load_scenario":
        scenario = json.loads(arguments["scenario"]) if TEXT else arguments["scenario"]
        if not isinstance(scenario.get("orders", {}), dict):
            raise ValueError("orders must be an object")
        STATE.clear()
        STATE.update({"orders": {}, "log": [], **scenario})
        return [types.TextContent(type="text", text="Successfully loaded scenario")]
    if name == "save_scenario":
        return [types.TextContent(type="text", text=json.dumps(json.dumps(STATE)))] if TEXT else STATE
    if name == "orders":
        return STATE["orders"]
    if name == "cancel":
        if arguments["order_id"] not in STATE["orders"]:
            raise ValueError(f"no order {arguments['order_id']}")
        STATE["orders"][arguments["order_id"]]["status"] = "cancelled"
        STATE["log"].append(arguments["order_id"])
        return [types.TextContent(type="text", text="cancelled")]
    if name == "end":
        os._exit(3)
    if name == "look":
        return {"now": os.environ.get("SHOP_NOW"), "region": os.environ.get("REGION"), "words": sys.argv[1:]}
    return [types.TextContent(type="text", text=json.dumps(arguments))]


async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


asyncio.run(main())
