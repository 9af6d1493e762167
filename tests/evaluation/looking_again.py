"""An agent for recorded perturbations: it looks an order up, makes the reference's change, and looks the order up twice more."""

from __future__ import annotations

from typing import Any

from simia import Message, ToolCall
from simia.pack import Pack


def act(view: Any) -> Message:
    """Make the reference's first call, its second one, and the first one again; the user's only message is the task's instruction."""
    said = view.messages[0].content
    task = next(task for task in Pack.load("customer_service").tasks if task.instruction == said)
    look_up, change = task.actions
    made = sum(message.role == "assistant" for message in view.messages)
    calls = (look_up, change, look_up, look_up)
    if made == len(calls):
        return Message(role="assistant", content="Done.")
    call = ToolCall(id=f"call_{made}", name=calls[made].name, arguments=calls[made].arguments)
    return Message(role="assistant", calls=[call])
