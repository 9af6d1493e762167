"""Diversity: figures that can be worked out by hand, coverage, and values that became more frequent."""

from __future__ import annotations

from math import log2
from typing import Any

import pytest

from simia.errors import Code
from simia.report.diversity import Diversity, find_grown_values, is_declined, measure_diversity
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

GET = ToolSpec(
    name="get_order",
    parameters={
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "detail": {"type": "string", "enum": ["short", "full"]},
            "page": {"type": "object", "properties": {"size": {"type": "integer"}}},
        },
        "required": ["order_id"],
    },
)
CANCEL = ToolSpec(
    name="cancel",
    parameters={"type": "object", "properties": {"reasons": {"type": "array", "items": {"enum": ["late", "wrong"]}}}},
)


def episode(
    *turns: list[tuple[str, dict[str, Any]]], said: str = "hello", end: str = "Done.", error: int | None = None
) -> Trajectory:
    """`error`: which call of all fails."""
    messages, number = [Message(role="user", content=said)], 0
    for turn in turns:
        calls = [
            ToolCall(id=f"c{number + i}", name=name, arguments=arguments) for i, (name, arguments) in enumerate(turn)
        ]
        messages.append(Message(role="assistant", calls=calls))
        for call in calls:
            failed = Code.TOOL_ERROR if number == error else None
            messages.append(Message(role="tool", call_id=call.id, content="{}", error=failed))
            number += 1
    messages.append(Message(role="assistant", content=end))
    return Trajectory(pack="shop", tools=[GET, CANCEL], messages=messages)


READ, STOP = [("get_order", {"order_id": "1"})], [("cancel", {"reasons": ["late"]})]


def test_entropy_of_tool_sequences() -> None:
    found = measure_diversity([episode(READ), episode(READ), episode(READ, STOP), episode(STOP, READ)], [])
    assert len(found.sequences) == 3
    assert found.entropy == -(0.5 * log2(0.5) + 2 * 0.25 * log2(0.25))
    assert measure_diversity([episode(READ)], []).entropy == 0
    assert measure_diversity([], []).entropy == 0


def test_distinct_n_of_each_speaker() -> None:
    given = [episode(said="the red and the blue", end="No."), episode(said="The red", end="No.")]
    found = measure_diversity(given, [])
    assert [found.compute_distinct_n("user", n) for n in (1, 2, 3)] == [4 / 7, 0.8, 1.0]
    assert [found.compute_distinct_n("assistant", n) for n in (1, 2, 3)] == [0.5, 0.0, 0.0]


def test_coverage_counts_every_schema_of_a_tool() -> None:
    other = GET.model_copy(update={"parameters": {"properties": {"detail": {"enum": ["kurz", "lang"]}}}})
    first = episode([("get_order", {"order_id": "1", "detail": "short"})])
    second = episode([("get_order", {"detail": "kurz"})]).model_copy(update={"tools": [other, CANCEL]})
    found = measure_diversity([first, second], [first, second])
    assert found.count_coverage(4) == (2, 6)  # short, full, kurz, lang; late, wrong
    assert found.list_several_schemas() == {"get_order": 2}
    assert measure_diversity([first, first], [first]).list_several_schemas() == {}


def test_coverage_counts_what_the_schemas_allow() -> None:
    found = measure_diversity([episode([("get_order", {"order_id": "1", "detail": "short", "page": None})])], [])
    assert [found.count_coverage(length) for length in (2, 3, 4)] == [(1, 2), (1, 4), (1, 4)]
    nested = episode([("get_order", {"order_id": "1", "page": {"size": 3}})])
    assert measure_diversity([nested], []).count_coverage(3) == (2, 4)
    assert measure_diversity([], [nested]).count_coverage(2) == (0, 2), "the seeds' tools could be used too"


def test_values_within_lists_are_seen_and_unknown_tools_are_not_counted() -> None:
    found = measure_diversity([episode(STOP, [("destroy", {"x": 1})])], [])
    assert found.count_coverage(4) == (1, 4)
    assert found.count_coverage(2) == (1, 2)


def test_parallel_and_declined() -> None:
    declined = episode(READ + READ, error=0, end="I'm sorry, but I can't refund it.")
    found = measure_diversity([episode(READ + STOP), episode(READ, READ, error=0), declined], [])
    assert (found.trajectories, found.parallel, found.declined) == (3, 2, 1)


@pytest.mark.parametrize(
    ("t", "expected"),
    [
        (episode(end="I'm unable to change a flown leg."), True),
        (episode(end="Your ticket is not refundable, so I won't cancel it."), True),
        (episode(end="The policy does not allow that."), True),
        (episode(end="Sorry for the delay; it is on its way. I can see it."), False),
        (episode(end="You cannot miss it, it is not far."), False),
        (episode(end="It is cancelled; I can't promise that the money is there today."), False),
    ],
)
def test_what_counts_as_declined(t: Trajectory, expected: bool) -> None:
    assert is_declined(t) is expected


def test_a_no_that_work_follows_is_none_and_a_farewell_changes_nothing() -> None:
    no = Message(role="assistant", content="I can't do that without your number.")
    work = Message(role="assistant", calls=[ToolCall(id="c", name="get_order", arguments={})])
    bye = [Message(role="user", content="Pity. Bye"), Message(role="assistant", content="Goodbye!")]
    assert not is_declined(Trajectory(messages=[no, work, *bye]))
    assert is_declined(Trajectory(messages=[work, no, *bye]))


def held(*days: Any) -> Diversity:
    return measure_diversity([episode([("hold", {"days": value, "note": {"long": True}})]) for value in days], [])


def test_a_value_that_has_become_more_frequent_is_told() -> None:
    seeds, new = held(3, 4, 5, 6, 7), held(*[7] * 16, *[2] * 6, *[6] * 4, *[5, 3, 1] * 3)
    assert new.values.keys() == {("hold", "days")}, "what is no plain value is not counted"
    ((argument, value, share, was),) = find_grown_values(new, seeds)
    assert (argument, value, round(share, 3), was) == ("hold.days", 7, 0.457, 0.2)


def test_what_is_no_favourite_is_not() -> None:
    assert find_grown_values(held(*range(40)), held(*range(5))) == [], "no value stands out"
    assert find_grown_values(held(*[7] * 40), held(*[7] * 5)) == [], "it was the only one before"
    assert find_grown_values(held(*[7] * 12, 3), held(3, 4, 5)) == [], "too few to tell"
    assert find_grown_values(held(*[7] * 40, 3), measure_diversity([], [])) == [], "nothing to compare with"


def test_numbers_and_texts_that_look_alike_are_two_values() -> None:
    assert held(7, "7", 7).values["hold", "days"].most_common() == [(7, 2), ("7", 1)]
