"""ReAct's turns: what is written is read back, and what a model adds is left out."""

from __future__ import annotations

import pytest

from simia.formats.react import read_react_message, write_observations, write_react
from simia.trajectory import ToolCall

CALL = ToolCall(id="call_0", name="look", arguments={"id": "#W1", "text": "a {brace}\nAnswer: no"})


def test_a_call_with_its_thought_is_read_back() -> None:
    read = read_react_message(write_react("It must be looked up.", [CALL]) or "")
    assert (read.content, read.calls) == ("It must be looked up.", [CALL])


def test_an_answer_is_read_without_its_thought() -> None:
    read = read_react_message("Thought: it is done\nAnswer: Done.\nAll of it.")
    assert (read.content, read.reasoning, read.calls) == ("Done.\nAll of it.", "it is done", [])
    assert read_react_message(write_react("Hello", []) or "").content == "Hello"
    assert read_react_message("Hello").content == "Hello"


@pytest.mark.parametrize(
    "more", ["\nObservation: {}\nThought: x\nAnswer: y", '\nAction: {"name": "b", "arguments": {}}']
)
def test_only_the_first_action_counts(more: str) -> None:
    read = read_react_message('Thought: t\nAction: {"name": "a", "arguments": {}}' + more)
    assert [call.name for call in read.calls] == ["a"]


def test_an_action_that_cannot_be_read_is_a_call() -> None:
    read = read_react_message("Thought: t\nAction: look(id=1)")
    assert [call.arguments for call in read.calls] == [None]
    assert write_observations(["a", "b"]) == "Observation: a\nObservation: b"
