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
