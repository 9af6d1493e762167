"""What the fake endpoint says in journeys: a deterministic trajectory for each prompt, good ones and bad ones.

About a quarter is wrong in the ways in which models are wrong; the text varies in form, as models' replies do.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

PLANNED = re.compile(r"Calls: ([\w., ]+)\.(?=\s|$)")
PART = re.compile(r"\[([^\]]+)\](?:\{(\d+)\})?")  # of a pattern
WORDS = "lamp kettle parcel ribbon garden window letter harbour candle pencil basket mirror".split()  # noqa: SIM905


def trajectory(body: dict[str, Any]) -> str:
    """A customer's question about an order; every value follows from the prompt's hash."""
    seen = json.dumps(body["messages"], sort_keys=True).encode()
    number = int.from_bytes(hashlib.blake2b(seen, digest_size=8).digest())
    asked = str(body["messages"][-1]["content"])
    if planned := PLANNED.findall(asked):
        return follow_plan(body, [name for names in planned for name in names.split(", ")], number)
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


def follow_plan(body: dict[str, Any], names: list[str], number: int) -> str:
    """Make the planned calls, each with arguments that its schema wants and the user has said; about a fifth forget the last one."""
    system, asked = (str(body["messages"][at]["content"]) for at in (0, -1))
    tools = {tool["name"]: tool for tool in map(json.loads, re.findall(r'^\{"name":.*\}$', system, re.M))}
    if number % 5 == 0:
        names = names[:-1]
    arguments = [make_arguments(tools[name]["parameters"], number) for name in names]
    values = [str(value) for each in arguments for value in each.values()]
    words = [WORDS[number // 12**i % 12] for i in range(8)]
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": f"Good day, the {' '.join(words[:4])} {number % 997}, please."},
        {"role": "assistant", "content": f"Which {words[4]} do you mean, the one of {words[5]} {number % 89}?"},
        {"role": "user", "content": f"It is about {', '.join(values)}; {words[6]} {words[7]}."},
    ]
    for i, name in enumerate(names):
        fails = f"first call of {name} has returned an error" in asked and name not in names[:i]
        messages.append({"role": "assistant", "content": None, "calls": [{"name": name, "arguments": arguments[i]}]})
        result = {"error": f"{words[i % 8]} not found"} if fails else {"ok": True, words[i % 8]: number % 1009 + i}
        messages.append({"role": "tool", "content": result})
    done = {"role": "assistant", "content": f"Done: the {words[2]} of the {words[5]}, number {number % 997}."}
    return json.dumps({"messages": [*messages, done]})


def make_arguments(schema: dict[str, Any], number: int) -> dict[str, Any]:
    return {name: make_value(schema["properties"][name], number) for name in schema.get("required", [])}


def make_value(schema: dict[str, Any], number: int) -> Any:
    if "enum" in schema:
        return schema["enum"][number % len(schema["enum"])]
    if schema.get("type") == "array":
        return [make_value(schema["items"], number)]
    if schema.get("type") == "object":
        return make_arguments(schema, number)
    if schema.get("type") in ("integer", "number"):
        return min(number % 9, schema.get("maximum", 9))
    if schema.get("format") == "email":
        return f"user{number % 997}@example.com"
    if pattern := schema.get("pattern"):
        return PART.sub(lambda part: ("7" if "9" in part[1] else "A") * int(part[2] or 1), pattern.strip("^$"))
    return f"{WORDS[number % 12]} {number % 997}"


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
