"""What a scripted model says: the answer function of `python -m tests.fake_endpoint --respond tests.trainers.reference_model:respond`.

The model `reference` plays the solution of the task whose first message it is sent, `hermes` the same with its calls as text, `idle` says
that it cannot help, and `looping` repeats the solution's first call for ever.
"""

from __future__ import annotations

import functools
from typing import Any

from simia.envs.play.baseline_agents import NOTHING, ReferenceAgent
from simia.formats.openai import write_openai_call
from simia.formats.tagged_calls import write_tagged
from simia.pack import Pack
from simia.trajectory import Message

PACK = "customer_service"


def respond(body: dict[str, Any]) -> dict[str, Any]:
    """Return the next message of the model that the request names."""
    rows = body["messages"]
    if body["model"] == "idle":
        return {"content": NOTHING}
    first = next(row["content"] for row in rows if row["role"] == "user")
    said = sum(row["role"] == "assistant" for row in rows)
    messages = list_solutions()[first]
    message = messages[0 if body["model"] == "looping" else said]
    if body["model"] == "hermes":
        return {
            "content": f"\n{write_tagged(message.text, message.calls)}\n\n"
        }  # a model's blank lines are not simia's
    calls = [write_openai_call(call) for call in message.calls]
    return {"content": message.content, **({"tool_calls": calls, "finish_reason": "tool_calls"} if calls else {})}


@functools.cache
def list_solutions() -> dict[str, list[Message]]:
    """Return the agent's messages of each solution by the user's first message."""
    found = {}
    for task in Pack.load(PACK).tasks:
        first = next(turn.user for turn in task.make_script() if turn.user is not None)
        found.setdefault(first, ReferenceAgent(task)._messages)
    return found
