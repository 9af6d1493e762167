"""Seeds for eval/bench/planned_requests.py that the repository does not hold: conversations in the manner of tau-bench and in Chinese.

The conversations are made from tables. They show what the planner learns from seeds: how a user is identified, which look-ups precede
a change, what the user confirms. `--tools FILE` replaces these short tool specifications by real ones.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

POLICIES = {
    "retail": "You are a retail agent. At the beginning, authenticate the user by email, or by name and zip code, even when the user gives a user"
    " id. You may only help one user per conversation. Before any change, list its details and obtain explicit user confirmation (yes)."
    " Make only one tool call at a time, and do not respond to the user at the same time. Orders can only be cancelled while they are"
    " pending, and delivered orders can be returned or exchanged once. Deny requests that are against this policy.",
    "airline": "You are an airline agent. First obtain the user id. Before any booking or change, list the action and obtain explicit user"
    " confirmation (yes). Make only one tool call at a time. Basic economy flights cannot be changed. Cancel only within 24 hours of booking,"
    " or with insurance. Deny requests that are against this policy. Transfer the user to a human agent only if nothing else is possible.",
}
CHINESE_POLICY = (
    "你是网上商店的客服。修改或取消订单之前，必须先查询订单，说明修改内容并等用户明确同意。只能取消待发货的订单；已发货的订单不能修改地址。"
    "退款只能退回原支付方式。不得透露其他客户的信息。规定不允许的请求要礼貌地拒绝。"
)
TOOLS: dict[str, dict[str, list[str]]] = {
    "retail": {
        "calculate": ["expression"], "cancel_pending_order": ["order_id", "reason"], "find_user_id_by_email": ["email"],
        "exchange_delivered_order_items": ["order_id", "item_ids", "new_item_ids", "payment_method_id"],
        "find_user_id_by_name_zip": ["first_name", "last_name", "zip"], "get_order_details": ["order_id"],
        "get_product_details": ["product_id"], "get_user_details": ["user_id"], "list_all_product_types": [],
        "modify_pending_order_address": ["order_id", "address1", "city", "zip"],
        "modify_pending_order_items": ["order_id", "item_ids", "new_item_ids", "payment_method_id"],
        "modify_pending_order_payment": ["order_id", "payment_method_id"], "modify_user_address": ["user_id", "address1", "city", "zip"],
        "return_delivered_order_items": ["order_id", "item_ids", "payment_method_id"], "transfer_to_human_agents": ["summary"],
    },
    "airline": {
        "book_reservation": ["user_id", "origin", "destination", "date", "payment_id"], "calculate": ["expression"],
        "cancel_reservation": ["reservation_id"], "get_flight_status": ["flight_number", "date"],
        "get_reservation_details": ["reservation_id"], "get_user_details": ["user_id"], "list_all_airports": [],
        "search_direct_flight": ["origin", "destination", "date"], "search_onestop_flight": ["origin", "destination", "date"],
        "send_certificate": ["user_id", "amount"], "transfer_to_human_agents": ["summary"],
        "update_reservation_baggages": ["reservation_id", "total_baggages", "payment_id"],
        "update_reservation_flights": ["reservation_id", "cabin", "payment_id"],
        "update_reservation_passengers": ["reservation_id", "passengers"],
    },
    "chinese": {
        "query_order": ["order_id"], "search_products": ["keyword"], "cancel_order": ["order_id"], "change_address": ["order_id", "address"],
        "request_refund": ["order_id", "reason"], "get_logistics": ["order_id"],
    },
}  # fmt: skip
# Calls after the user is identified. A repeated name is called for two objects.
RETAIL_FIRST = (["find_user_id_by_email"], ["find_user_id_by_name_zip"], ["find_user_id_by_email", "get_user_details"])
RETAIL_PARTS = (
    ["get_order_details"], ["get_order_details", "get_order_details"], ["get_order_details", "cancel_pending_order"],
    ["get_order_details", "get_product_details", "exchange_delivered_order_items"], ["get_product_details"],
    ["get_order_details", "modify_pending_order_address"], ["get_user_details", "modify_user_address"],
    ["get_order_details", "get_product_details", "calculate", "modify_pending_order_items"],
    ["get_order_details", "modify_pending_order_payment"], ["get_order_details", "return_delivered_order_items"],
    ["get_order_details", "transfer_to_human_agents"], ["list_all_product_types", "get_product_details"],
)  # fmt: skip
AIRLINE_PARTS = (
    ["get_reservation_details"], ["get_reservation_details", "cancel_reservation"], ["search_direct_flight", "calculate", "book_reservation"],
    ["get_reservation_details", "update_reservation_baggages"], ["get_reservation_details", "search_direct_flight", "update_reservation_flights"],
    ["get_reservation_details", "update_reservation_passengers"], ["search_direct_flight", "search_onestop_flight", "book_reservation"],
    ["get_reservation_details", "get_flight_status", "send_certificate"], ["get_reservation_details", "transfer_to_human_agents"],
)  # fmt: skip
CHINESE_PARTS = (
    ["query_order"], ["query_order", "cancel_order"], ["query_order", "change_address"], ["search_products"],
    ["query_order", "get_logistics"], ["query_order", "request_refund"],
)  # fmt: skip
CHANGES = ("cancel", "exchange", "modify", "return", "book_", "update", "send", "change", "request")


def make_tools(domain: str) -> list[ToolSpec]:
    tools = []
    for name, arguments in TOOLS[domain].items():
        properties = {each: {"type": "string"} for each in arguments}
        parameters = {"type": "object", "properties": properties, "required": arguments}
        tools.append(ToolSpec(name=name, description=name.replace("_", " "), parameters=parameters))
    return tools


def read_tools(path: Path, domain: str) -> list[ToolSpec]:
    """Read this domain's list of tools from a file with several lists."""
    lists = [each["tools"] for each in json.loads(path.read_text(encoding="utf-8")).values()]
    return next(
        [ToolSpec(**{key: tool["function"][key] for key in ("name", "description", "parameters")}) for tool in tools]
        for tools in lists
        if {"retail": "cancel_pending_order", "airline": "book_reservation"}[domain]
        in {tool["function"]["name"] for tool in tools}
    )


def make_value(name: str, rng: random.Random) -> Any:
    number = rng.randrange(1000, 9999)
    kinds = {
        "email": f"user{number}@example.com", "order_id": f"#W{number}{number}", "user_id": f"ana_park_{number}",
        "reservation_id": f"R{number}Q", "zip": f"{number}0", "date": f"2024-05-{number % 27 + 1:02}", "first_name": "Ana", "last_name": "Park",
        "address": "光明路18号", "keyword": "台灯", "reason": "no longer needed",
    }  # fmt: skip
    return kinds.get(name, f"{name}-{number}")


def make_seed(domain: str, parts: list[list[str]], tools: list[ToolSpec], number: int, *, policy: str) -> Trajectory:
    """Write a conversation that makes these calls; a change follows the assistant's question and the user's yes."""
    rng = random.Random(f"{domain} {number}")
    chinese = domain == "chinese"
    wish, done, ask, yes = (
        ("你好，我想请你帮我看一下我的订单，", "好的，已经为您处理好了。", "我将为您办理，您同意吗？", "同意，请办理吧。")
        if chinese
        else ("Hello, I need some help with my order, please. ", "That is done, and here is what I found.", "I will do that. Do you agree?", "Yes, please.")
    )  # fmt: skip
    specs = {tool.name: tool for tool in tools}
    messages: list[Message] = []
    given: dict[str, Any] = {}
    for part in parts:
        for name in part:
            required = specs[name].parameters.get("required", [])
            given |= {each: make_value(each, rng) for each in required if each not in given}
    said = ("我的" if chinese else "Mine are: ") + (", ").join(str(value) for value in given.values())
    messages.append(Message(role="user", content=wish + said))
    for i, name in enumerate(name for part in parts for name in part):
        if name.startswith(CHANGES):
            messages += [Message(role="assistant", content=ask), Message(role="user", content=yes)]
        arguments = {each: given[each] for each in specs[name].parameters.get("required", [])}
        arguments = {
            each: [value] if specs[name].parameters["properties"][each].get("type") == "array" else value
            for each, value in arguments.items()
        }
        messages.append(Message(role="assistant", calls=[ToolCall(id=f"c{i}", name=name, arguments=arguments)]))
        messages.append(
            Message(role="tool", call_id=f"c{i}", content=json.dumps({"status": "ok", "number": number, **given}))
        )
    messages.append(Message(role="assistant", content=done))
    return Trajectory(pack=domain, task_id=f"{domain}-{number}", system=policy or None, tools=tools, messages=messages)


def make_tau_seeds(count: int, path: Path | None = None) -> list[Trajectory]:
    """Make retail and airline conversations in turn. `path`: a file with real tool specifications."""
    rng = random.Random(7)
    seeds = []
    for domain in ("retail", "airline"):
        tools = read_tools(path, domain) if path else make_tools(domain)
        for number in range(count // 2):
            first = list(rng.choice(RETAIL_FIRST)) if domain == "retail" else ["get_user_details"]
            parts = [first, *rng.sample(RETAIL_PARTS if domain == "retail" else AIRLINE_PARTS, rng.choice((1, 1, 2)))]
            parts.sort(key=lambda part: "transfer_to_human_agents" in part)
            seeds.append(make_seed(domain, parts, tools, number, policy=POLICIES[domain]))
    return seeds


def make_chinese_seeds(count: int, *, policy: bool = True) -> list[Trajectory]:
    tools = make_tools("chinese")
    text = CHINESE_POLICY if policy else ""
    return [
        make_seed("chinese", [CHINESE_PARTS[number % len(CHINESE_PARTS)]], tools, number, policy=text)
        for number in range(count)
    ]
