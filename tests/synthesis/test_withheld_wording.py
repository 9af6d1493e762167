"""A model words what is withheld: a usable reply makes a variant, others are asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from simia.authoring.task_variants import list_needed_values, withhold_value
from simia.prompts import load_template
from simia.synthesis.reasons import Unreadable
from simia.synthesis.scenarios.withheld_wording import ask_withheld_wording, read_wording
from simia.synthesis.stage import StageContext
from simia.task import Task
from tests.authoring.test_task_variants import make_task

FIXTURES = Path(__file__).parent / "fixtures" / "report"
T = TypeVar("T")


def read_reply(name: str) -> str:
    return (FIXTURES / f"{name}.txt").read_text(encoding="utf-8")


class OneReply:
    """Renders the prompt and answers with one reply."""

    def __init__(self, reply: str) -> None:
        self._reply = reply
        self.prompt = ""

    async def ask(
        self, prompt: str, values: Mapping[str, Any], parse: Callable[[str], T], *, label: str, role: str = "writer"
    ) -> T:
        self.prompt = load_template(prompt)[0].render(values)
        return parse(self._reply)


def test_a_reply_makes_a_variant() -> None:
    task = make_task()
    needed = list_needed_values(task)[0]
    context = OneReply(read_reply("wording_good"))
    words = asyncio.run(ask_withheld_wording(cast(StageContext, context), task, needed))
    assert "ORD-1234 (argument `order_id` of `get`)" in context.prompt
    assert context.prompt.rstrip().endswith(task.instruction)
    variant = withhold_value(task, needed, words)
    assert isinstance(variant, Task)
    assert variant.withheld[0].fact == "It's ORD-1234."


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("wording_bad_still_named", "the opening names ORD-1234"),
        ("wording_bad_no_match", "does not match the question"),
        ("wording_hostile_matches_all", "matches any text"),
    ],
)
def test_replies_that_cannot_be_used(name: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words):
        read_wording(read_reply(name), "ORD-1234")
