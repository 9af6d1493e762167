"""Rows in the form of glaive's demonstration file, with content of our own."""

from __future__ import annotations

import json
from typing import Any


def make_tool(name: str, description: str, **types: str) -> dict[str, Any]:
    properties = {key: {"type": kind, "description": key} for key, kind in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"name": name, "description": description, "parameters": parameters}


def make_row(turns: list[tuple[str, Any]], *tools: dict[str, Any]) -> dict[str, Any]:
    """`turns`: who, and a text or a JSON value."""
    said = [{"from": who, "value": value if isinstance(value, str) else json.dumps(value)} for who, value in turns]
    return {"conversations": said, "tools": json.dumps(list(tools))}


STOCK = make_tool("get_stock_price", "The price of a share.", symbol="string")
STOCK_AT = make_tool("get_stock_price", "The price of a share on a day.", company="string", day="string")
BOOKS = (
    make_tool("find_book", "Find a book.", title="string"),
    make_tool("order_book", "Order a book.", book_id="string", address="string"),
)
GLAIVE_ROWS = [
    make_row(
        [
            ("human", "Hi, what is a share of MSFT worth?"),
            ("function_call", {"name": "get_stock_price", "arguments": {"symbol": "MSFT"}}),
            ("observation", {"price": 412.25, "currency": "USD"}),
            ("gpt", "A share of MSFT is worth 412.25 US dollars."),
        ],
        STOCK,
    ),
    make_row(
        [
            ("human", "I am looking for The Winter Orchard."),
            ("function_call", {"name": "find_book", "arguments": {"title": "The Winter Orchard"}}),
            ("observation", {"books": [{"book_id": "BK-7710", "form": "paperback", "price": 18.40}]}),
            ("gpt", "We have it as a paperback. Would you like to order it, and where should it go?"),
            ("human", "I want the paperback, sent to 12 Mill Road."),
            ("gpt", "That is BK-7710 for 18.40 euros. Shall I order it?"),
            ("human", "Yes, order BK-7710 for 18.40."),
            ("function_call", {"name": "order_book", "arguments": {"book_id": "BK-7710", "address": "12 Mill Road"}}),
            ("observation", {"status": "ordered"}),
            ("gpt", "It is ordered and will be sent to 12 Mill Road."),
        ],
        *BOOKS,
    ),
    make_row(
        [
            ("human", "What was a share of Tolvane worth on 2025-03-04?"),
            ("function_call", {"name": "get_stock_price", "arguments": {"company": "Tolvane", "day": "2025-03-04"}}),
            ("observation", {"price": 17.5}),
            ("gpt", "On 2025-03-04 it was worth 17.50."),
        ],
        STOCK_AT,
    ),
]
