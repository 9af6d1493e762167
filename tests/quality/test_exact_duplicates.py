"""Exact duplicates: what may differ, and what may not."""

from __future__ import annotations

import pytest

from simia.quality.exact_duplicates import hash_content, normalize_arguments
from simia.trajectory import Message, ToolCall, Trajectory


def conversation(
    *, text: str = "Where is it?", value: str = "A-1", result: str = '{"a":1}', call_id: str = "call_1", **extra: str
) -> Trajectory:
    return Trajectory(
        messages=[
            Message(role="user", content=text),
            Message(role="assistant", calls=[ToolCall(id=call_id, name="f", arguments={"x": value, "y": 2})], **extra),
            Message(role="tool", call_id=call_id, content=result),
            Message(role="assistant", content="There."),
        ]
    )


@pytest.mark.parametrize(
    "other",
    [
        conversation(call_id="call_77"),
        conversation(text="  where IS\n it? "),
        conversation(result='{ "a" : 1 }'),
        conversation(reasoning="Look it up."),
    ],
)
def test_the_same_conversation(other: Trajectory) -> None:
    assert hash_content(other) == hash_content(conversation())


@pytest.mark.parametrize(
    "other",
    [
        conversation(text="Where is that?"),
        conversation(value="A-2"),
        conversation(result='{"a":2}'),
        conversation().model_copy(update={"messages": conversation().messages[:-1]}),
    ],
)
def test_another_conversation(other: Trajectory) -> None:
    assert hash_content(other) != hash_content(conversation())


def test_the_order_of_arguments_is_nothing() -> None:
    other = conversation()
    other.messages[1].calls[0].arguments = {"y": 2, "x": "A-1"}
    assert hash_content(other) == hash_content(conversation())


def test_unparsable_arguments_count() -> None:
    one, two = conversation(), conversation()
    one.messages[1].calls[0] = ToolCall(id="c", name="f", raw="{a")
    two.messages[1].calls[0] = ToolCall(id="c", name="f", raw="{b")
    assert hash_content(one) != hash_content(two)


def test_arguments_with_integers_beyond_64_bits_are_compared() -> None:
    assert normalize_arguments({"y": 10**30, "x": 1}) == normalize_arguments({"x": 1, "y": 10**30})
    assert normalize_arguments({"y": 10**30}) != normalize_arguments({"y": 10**31})
