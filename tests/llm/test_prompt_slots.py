"""Slots of the local model server: a static part and a conversation find the slot that holds their beginning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simia.llm.embedded import EmbeddedBackend, EmbeddedSettings
from simia.llm.engine import Engine
from simia.llm.prices import FREE
from simia.llm.prompt_slots import PromptSlots
from simia.llm.types import Request


def say(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def open_conversation(name: str) -> list[dict[str, Any]]:
    return [say("system", f"Rules of {name}."), say("user", f"Question about {name}.")]


def continue_conversation(messages: list[dict[str, Any]], number: int, results: int = 1) -> list[dict[str, Any]]:
    return [*messages, say("assistant", f"call {number}"), *(say("tool", f"{number}.{n}") for n in range(results))]


def test_each_static_part_has_a_slot_and_the_one_used_longest_ago_gives_way() -> None:
    slots = PromptSlots(2)
    assert [slots.choose(open_conversation(pack)) for pack in ("shop", "clinic", "shop", "clinic")] == [0, 1, 0, 1]
    slots.choose(open_conversation("shop"))
    assert slots.choose(open_conversation("hotel")) == 1
    assert slots.choose(open_conversation("shop")) == 0


def test_the_turns_of_two_conversations_stay_in_their_slots() -> None:
    slots = PromptSlots(2)
    first, second = open_conversation("shop"), open_conversation("clinic")
    for number in range(5):
        assert (slots.choose(first), slots.choose(second)) == (0, 1)
        first, second = continue_conversation(first, number), continue_conversation(second, number, results=3)


def test_a_question_that_is_asked_again_keeps_its_slot() -> None:
    slots = PromptSlots(4)
    asked = [say("user", "Design a hotel.")]
    assert slots.choose(asked) == 0
    assert slots.choose([*asked, say("assistant", "{"), say("user", "Reply again.")]) == 0


async def test_a_real_server_reads_only_what_is_new_of_a_conversation(weights: Path) -> None:
    backend = EmbeddedBackend(
        EmbeddedSettings(model=str(weights), threads=1, context=1024, slots=2), say=lambda _: None
    )
    talks = [
        [
            say("system", f"You know all {what} of a small town by name, and describe them in one sentence."),
            say("user", "Name one."),
        ]
        for what in ("shops", "parks")
    ]
    shops, parks = talks
    async with Engine(backend, price=FREE) as engine:
        for number, talk in enumerate((shops, parks, shops, shops, parks, parks)):
            request = Request(messages=list(talk), temperature=0.0, max_tokens=12)
            reply = await engine.ask(request, item="i", draw=str(number))
            talk += [say("assistant", reply.text), say("user", "Name another one.")]
            fresh = reply.usage.prompt - reply.usage.cached
            assert number < 2 or fresh < 30, f"{fresh} of {reply.usage.prompt} tokens were read again"
