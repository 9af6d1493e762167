"""The pre-filter of seeds: what it keeps, what it refuses and why."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simia.errors import Code
from simia.pack import Pack
from simia.quality.check import Checks
from simia.quality.seed_filter import filter_seeds
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

TOOL = ToolSpec(
    name="get", parameters={"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
)


def seed(text: str, *, order: str = "ORD-1", calls: bool = True, **more: Any) -> Trajectory:
    messages = [Message(role="user", content=text)]
    if calls:
        messages += [
            Message(role="assistant", calls=[ToolCall(id="c", name="get", arguments={"order_id": order})]),
            Message(role="tool", call_id="c", content="{}"),
        ]
    return Trajectory(tools=[TOOL], messages=[*messages, Message(role="assistant", content="Sent.")], **more)


def refused(seeds: list[Trajectory], **checks: Any) -> list[tuple[str | None, Code]]:
    return [(t.task_id, issues[0].code) for t, issues in filter_seeds(seeds, Checks(**checks))[1]]


def test_each_is_refused_for_its_own_reason() -> None:
    seeds = [
        seed("Where is ORD-1?", task_id="good"),
        seed("Where is it?", task_id="ungrounded"),
        seed("Hello", calls=False, task_id="chat"),
        seed("where is  ORD-1?", task_id="again"),
        seed("Where is ORD-1? {{name}}", task_id="placeholder"),
        seed("And ORD-2?", order="ORD-2", task_id="good too"),
    ]
    kept, _ = filter_seeds(seeds, Checks())
    assert [t.task_id for t in kept] == ["good", "good too"]
    assert refused(seeds) == [
        ("ungrounded", Code.UNGROUNDED_ID),
        ("chat", Code.NO_TOOL_USE),
        ("again", Code.DUPLICATE),
        ("placeholder", Code.LEAK),
    ]


def test_a_bad_seed_does_not_make_its_good_twin_a_duplicate() -> None:
    bad = seed("Where is ORD-1?", task_id="bad")
    bad.messages[2].call_id = "other"
    kept, _ = filter_seeds([bad, seed("Where is ORD-1?", task_id="good")], Checks())
    assert [t.task_id for t in kept] == ["good"]


def test_rules_can_be_relaxed() -> None:
    seeds = [seed("Hello", calls=False), seed("Where is it?")]
    assert refused(seeds, require_calls=False, identifiers=False) == []


def test_identifiers_are_learned_from_all_seeds_with_the_same_tools() -> None:
    """Nobody ever says the reference, in any seed: it is the agent's own text, not an identifier."""
    assert refused([seed(f"Please number {n}", order=f"REF-{n}00{n}") for n in range(4)]) == []


@pytest.mark.parametrize("name", ["customer_service", "office"])
def test_our_packs_pass(name: str) -> None:
    pack = Pack.load(name)
    kept, out = filter_seeds(pack.seeds, Checks())
    assert (kept, out) == (pack.seeds, [])


def test_a_pack_with_itself_is_half_duplicates() -> None:
    seeds = Pack.load("office").seeds
    _, out = filter_seeds([*seeds, *seeds], Checks())
    assert Counter(issues[0].code for _, issues in out) == {Code.DUPLICATE: len(seeds)}
