"""Diversity: figures that can be worked out by hand, coverage against the seeds, and bounded counting."""

from __future__ import annotations

import json
import random
from collections import Counter
from math import log2
from typing import Any

import pytest

from simia.errors import Code
from simia.quality.selection.diversity import Diversity, compute_quantiles, is_declined
from simia.quality.selection.sketches import Distinct, Frequencies
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


def figures(*given: Trajectory, seeds: list[Trajectory] | None = None, cap: int = 65_536) -> dict[str, Any]:
    diversity = Diversity(seeds or [], cap=cap)
    for t in given:
        diversity.add(t)
    return diversity.finish()


READ, STOP = [("get_order", {"order_id": "1"})], [("cancel", {"reasons": ["late"]})]


def test_entropy_of_tool_sequences() -> None:
    found = figures(episode(READ), episode(READ), episode(READ, STOP), episode(STOP, READ))
    expected = -(0.5 * log2(0.5) + 2 * 0.25 * log2(0.25))
    assert found["tool_sequences"] == {"distinct": 3, "entropy_bits": expected, "most_frequent": 2}
    assert figures(episode(READ))["tool_sequences"]["entropy_bits"] == 0


def test_distinct_n_of_each_speaker() -> None:
    found = figures(episode(said="the red and the blue", end="No."), episode(said="The red", end="No."))
    assert found["grams"]["user"] == {
        "1": {"distinct": 4, "all": 7},
        "2": {"distinct": 4, "all": 5},
        "3": {"distinct": 3, "all": 3},
    }
    assert found["distinct_n"]["user"] == {"1": round(4 / 7, 4), "2": 0.8, "3": 1.0}
    assert found["distinct_n"]["assistant"] == {"1": 0.5, "2": 0.0, "3": 0.0}
    assert found["exact"]


def test_coverage_against_the_seeds() -> None:
    seed = episode([("get_order", {"order_id": "1", "detail": "full", "page": {"size": 3}})])
    found = figures(episode([("get_order", {"order_id": "1", "detail": "short", "page": None})]), seeds=[seed])
    shop = found["coverage"]["shop"]
    assert shop["tools"] == {
        "possible": 2, "used": 1, "used_by_seeds": 1, "never": ["cancel"], "only_in_seeds": [],
    }  # fmt: skip
    assert shop["optional_arguments"]["never"] == ["cancel(reasons)", "get_order(page)", "get_order(page.size)"]
    assert shop["optional_arguments"]["only_in_seeds"] == ["get_order(page)", "get_order(page.size)"]
    assert shop["enum_values"] == {
        "possible": 4, "used": 1, "used_by_seeds": 1,
        "never": ["cancel(reasons=late)", "cancel(reasons=wrong)", "get_order(detail=full)"],
        "only_in_seeds": ["get_order(detail=full)"],
    }  # fmt: skip


def test_values_within_lists_are_seen_and_unknown_tools_are_not_counted() -> None:
    found = figures(episode(STOP, [("destroy", {"x": 1})]))["coverage"]["shop"]
    assert found["enum_values"]["used"] == 1
    assert found["tools"]["used"] == 1
    assert found["tools"]["possible"] == 2


def test_shares_of_parallel_recovered_and_declined() -> None:
    found = figures(
        episode(READ + STOP),
        episode(READ, READ, error=0),
        episode(READ, error=0),
        episode(READ + READ, error=0, end="I'm sorry, but I can't refund it."),
    )
    assert (found["parallel"], found["with_errors"], found["recovered"], found["declined"]) == (2, 3, 1, 1)
    assert found["shares"] == {"parallel": 0.5, "recovered": 0.3333, "declined": 0.25}


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


def test_lengths() -> None:
    found = figures(*(episode(*[READ] * calls) for calls in range(1, 101)))["lengths"]
    assert found["calls"] == {"least": 1, "p5": 5, "p25": 25, "median": 50, "p75": 75, "p95": 95, "most": 100}
    assert found["messages"]["most"] == 202
    assert found["tokens"]["least"] > 0


def test_quantiles_of_little() -> None:
    assert compute_quantiles(Counter()) == {}
    assert set(compute_quantiles(Counter([7])).values()) == {7}


def test_nothing_at_all_is_plain_json() -> None:
    found = figures()
    assert json.loads(json.dumps(found)) == found
    assert found["trajectories"] == 0
    assert found["lengths"]["calls"] == {}


def test_beyond_the_cap_it_estimates_and_says_so() -> None:
    given = [
        episode(READ, said=" ".join(f"w{random.Random(i * 31 + j).randrange(4000)}" for j in range(30)))
        for i in range(300)
    ]
    exact, sampled = figures(*given), figures(*given, cap=512)
    assert exact["exact"]
    assert not sampled["exact"]
    for n in ("1", "2", "3"):
        assert sampled["distinct_n"]["user"][n] == pytest.approx(exact["distinct_n"]["user"][n], rel=0.15)
        assert sampled["grams"]["user"][n]["all"] == exact["grams"]["user"][n]["all"]


@pytest.mark.parametrize("n", [1, 2])
def test_the_sample_is_bounded_and_near_the_truth(n: int) -> None:
    counted = Distinct(cap=4096)
    for start in range(0, 100_000, 1000):
        counted.add([hash(tuple(range(i, i + n))) for i in range(start, start + 1000)] * 2)
    assert len(counted._kept) <= 4096
    assert counted.count == pytest.approx(100_000, rel=0.08)
    assert counted.share == pytest.approx(0.5, rel=0.08)


def test_the_sample_does_not_depend_on_the_order() -> None:
    values = [hash((i,)) for i in range(5000)]
    one, other = Distinct(cap=256), Distinct(cap=256)
    one.add(values)
    for value in reversed(values):
        other.add([value])
    assert one._kept == other._kept


def test_entropy_from_a_sample() -> None:
    whole, sampled = Frequencies(), Frequencies(cap=1024)
    rng = random.Random(3)
    for _ in range(60_000):
        value = hash((min(rng.randrange(20_000), rng.randrange(20_000)),))
        whole.add(value)
        sampled.add(value)
    assert whole.exact
    assert not sampled.exact
    assert sampled.entropy == pytest.approx(whole.entropy, rel=0.1)
    assert sampled.distinct == pytest.approx(whole.distinct, rel=0.12)
