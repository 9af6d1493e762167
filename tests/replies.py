"""What the fake endpoint says in journeys: a deterministic trajectory for each prompt, good ones and bad ones.

About a quarter is wrong in the ways in which models are wrong; the text varies in form, as models' replies do.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def trajectory(body: dict[str, Any]) -> str:
    """A customer's question about an order; every value follows from the prompt's hash."""
    seen = json.dumps(body["messages"], sort_keys=True).encode()
    number = int.from_bytes(hashlib.blake2b(seen, digest_size=8).digest())
    order, email = f"ORD-{number % 90000 + 10000}", f"user{number % 997}@example.com"
    total = number % 9000 / 100 + 1
    arguments = {"order_id": order, "email": email}
    fault = number % 23
    if fault == 1:
        arguments["order_id"] = f"ORD-{(number + 7) % 90000 + 10000}"  # nobody said it
    if fault == 2:
        arguments.pop("email")
    name = "find_order" if fault == 3 else "get_order"
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": f"Where is {order}? I'm {email}."},
        {"role": "assistant", "content": None, "calls": [{"name": name, "arguments": arguments}]},
        {"role": "tool", "content": {"order_id": order, "status": "shipped", "total": total}},
        {"role": "assistant", "content": f"It's on its way; the total was €{total:.2f}."},
    ]
    if fault == 4:
        messages.pop()
    text = json.dumps({"messages": messages}, ensure_ascii=False)
    if fault == 5:
        return "I'm sorry, but I can't help with that."
    if fault == 6:
        return text[: len(text) // 2]
    if fault == 7:
        return f"```json\n{text}\n```"
    if fault == 8:
        return text.replace('"}]', '",}]')
    return text


def stage(body: dict[str, Any]) -> str | dict[str, Any]:
    """All roles of a simulated rollout: the tools, the user, the judge, and an agent that calls once and then answers."""
    system, last = str(body["messages"][0]["content"]), str(body["messages"][-1]["content"])
    if system.startswith("You are the computer system"):
        count = last.split("# Calls to answer now")[1].strip().count("\n") + 1
        row = {"outcome": "result", "content": {"ok": True}, "changes": []}
        return json.dumps({"answers": [{"call": n + 1, **row} for n in range(count)]})
    if system.startswith("You judge"):
        return '{"why": "all done", "solved": true}'
    if system.startswith("You play a user"):
        heard = [row for row in body["messages"] if row["role"] == "user"]
        return "Please do it." if len(heard) == 1 else "Thanks! ###STOP###"
    if any(row["role"] == "tool" for row in body["messages"]):
        return "It is done."
    tool = body["tools"][0]["function"]
    arguments = dict.fromkeys(tool["parameters"].get("required", []), "x")
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": tool["name"], "arguments": json.dumps(arguments)},
    }
    return {"tool_calls": [call]}


DIMENSIONS = ("consistency", "grounding", "results", "honesty", "policy", "outcome")


def judged(body: dict[str, Any]) -> str:
    """A trajectory, or a judge's verdict on one: about a quarter fails, one of 17 cannot be read. A verdict follows from the prompt."""
    if not str(body["messages"][0]["content"]).startswith("You check conversations"):
        return trajectory(body)
    number = int.from_bytes(hashlib.blake2b(str(body["messages"][1]["content"]).encode(), digest_size=8).digest())
    if number % 17 == 3:
        return "I would rather not say."
    points = {name: {"why": f"see {name}", "pass": True} for name in DIMENSIONS}
    if number % 4 == 0:
        points["honesty"] = {"why": "turn 3 tells a total that no result holds", "pass": False}
    return json.dumps(points)
