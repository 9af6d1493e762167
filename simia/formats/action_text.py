"""Actions as text: what a style of writing them must say, and what all styles need for it.

A style knows nothing of rows and turns: it turns one text into one message and back. See `acted` for the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall


class InexpressibleTurn(ValueError):  # noqa: N818 - a finding on the data, not a fault
    """The text form has no place for this message; the words say why."""


class ActionStyle(ABC):
    """How one kind of environment puts thoughts, actions, observations and tasks into text."""

    tools: Sequence[ToolSpec]
    acknowledged: str | None = None
    """The agent's answer to the system text, where that stands in a turn of its own."""

    @abstractmethod
    def read_agent(self, text: str) -> Message:
        """An assistant message with one call, or with the text that closes the episode; any other text as it is."""

    @abstractmethod
    def write_agent(self, message: Message) -> str:
        """Raises `Unsaid` with the reason where the text form has no place for it."""

    @abstractmethod
    def acts(self, text: str) -> bool:
        """Does the agent's text hold an action?"""

    def read_result(self, text: str) -> str:
        return text

    def write_result(self, text: str) -> str:
        return text

    def split(self, text: str) -> tuple[str | None, str]:
        """(system text, task) of the turn that tells the task. The system text is how the turn begins."""
        return None, text

    def join(self, system: str | None, task: str) -> str:
        if system is not None:
            raise InexpressibleTurn("the row has no place for a system text")
        return task

    def starts(self, turn: str, masked: bool) -> bool:
        """Does a task start with this turn? `masked`: the agent's turn before it is not trained on."""
        return False

    def closes(self, message: Message) -> bool:
        """Is this the agent's last word, whatever the environment may still say?"""
        return not message.calls

    def finish(self, message: Message) -> list[Message]:
        """What a last action becomes that no observation follows."""
        return [message]

    def unfinish(self, messages: list[Message]) -> list[Message]:
        """The reverse of `finish`: the messages that have turns."""
        return messages


def make_tool(name: str, description: str, **properties: dict[str, Any]) -> ToolSpec:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return ToolSpec(name=name, description=description, parameters={**parameters, "additionalProperties": False})


def text_schema(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, **more, "description": description}


def make_action(name: str, reasoning: str | None, **arguments: str) -> Message:
    call = ToolCall(id="", name=name, arguments=dict(arguments))
    return Message(role="assistant", reasoning=reasoning, calls=[call])


def take_only_call(m: Message) -> tuple[str, dict[str, str]]:
    """The one call of a message, with arguments that can stand in a line of text."""
    if m.content or len(m.calls) != 1:
        raise InexpressibleTurn("a turn holds one action and nothing beside it")
    arguments = m.calls[0].arguments
    if arguments is None or not all(isinstance(value, str) for value in arguments.values()):
        raise InexpressibleTurn("the action's arguments are not text")
    return m.calls[0].name, arguments


def take_closing_text(m: Message) -> str:
    if not isinstance(m.content, str):
        raise InexpressibleTurn("its content is not text")
    return m.content
