"""Openings are rendered once and have the ids of the whole text, also where their common part is tokenised by itself."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.trainers.openings import OpeningCache, find_common_part
from simia.trainers.tokens import ChatText
from simia.trajectory import Message
from tests.trainers.test_tokens import SWITCH, Letters

END = "<|im_end|>"


class Pieces:
    """A tokenizer that reads special tokens first and merges letters within the words between them. Counts the characters."""

    def __init__(self, *, glues: bool = False) -> None:
        self.glues, self.read = glues, 0
        self.known: dict[str, int] = {}

    def __call__(self, text: str) -> list[int]:
        self.read += len(text)
        form = rf"{re.escape(END)}\s*|\S+|\s+" if self.glues else rf"{re.escape(END)}|\S+?(?={re.escape(END)})|\S+|\s+"
        return [self.known.setdefault(piece, len(self.known)) for piece in re.findall(form, text)]


def render(system: str | None, messages: Any, tools: Any) -> str:
    return f"system {system} {[tool.name for tool in tools]}{END}\nuser {messages[0].text}{END}\nassistant"


def user(text: str) -> list[Message]:
    return [Message(role="user", content=text)]


@pytest.mark.parametrize("glues", [False, True])
def test_the_ids_are_those_of_the_whole_text(glues: bool) -> None:
    encode, tools = Pieces(glues=glues), [SWITCH]
    cache = OpeningCache(encode, [END])
    rules = "Rules. " * 200
    texts = ["hello", "hello there", "", "  indented", f"a token {END} within", "hello"]
    for text in texts:
        found = cache.find(rules, user(text), tools) or cache.make(render, rules, user(text), tools)
        assert found == Pieces.__call__(encode, render(rules, user(text), tools))
        found.append(-1)
        assert cache.find(rules, user(text), tools) == found[:-1], "a row's ids are its own"
    other = [SWITCH.model_copy(update={"name": "dim"})]
    assert cache.find(rules, user("hello"), other) is None, "other tools"
    assert cache.find("Other rules.", user("hello"), tools) is None
    assert cache.make(render, "Other rules.", user("hello"), tools) == encode(
        render("Other rules.", user("hello"), tools)
    )
    assert cache.make(render, rules, user("hello"), other) == encode(render(rules, user("hello"), other))


def test_the_common_part_is_read_once() -> None:
    encode, rules, tools = Pieces(), "Rules. " * 200, [SWITCH]
    cache = OpeningCache(encode, [END])
    for number in range(2):
        cache.make(render, rules, user(f"task {number}"), tools)
    before = encode.read
    for number in range(2, 52):
        cache.make(render, rules, user(f"task {number}"), tools)
    assert encode.read - before < 50 * 60


def test_a_common_part_ends_with_the_end_of_a_turn() -> None:
    assert find_common_part(f"a{END}\nuser x", f"a{END}\nuser y", [END]) == f"a{END}"
    assert find_common_part(f"a{END}b</s>c", f"a{END}b</s>d", [END, "</s>"]) == f"a{END}b</s>"
    assert find_common_part("the same words", "the same world", [END]) == ""


async def test_rows_of_one_task_are_rendered_once_however_many_ask() -> None:
    renders: list[str] = []

    class Counting(Letters):
        def apply_chat_template(self, rows: list[dict[str, Any]], **values: Any) -> str:
            text = super().apply_chat_template(rows, **values)
            if values.get("tools"):
                renders.append(text)
            return text

    async with await open_environment("customer_service", user="none", say=lambda _: None) as environment:
        text = ChatText(Counting())
        tasks = [task.id for task in environment.tasks[:3]]
        episodes = [await environment.reset(task) for task in tasks * 4]
        rows = await asyncio.gather(*(text.open_row(episode) for episode in episodes))
        assert len(renders) == 3
        fresh = ChatText(Letters())
        for row, episode in zip(rows, episodes, strict=True):
            assert row.prompt_ids == fresh._ids(renders[tasks.index(episode.task.id)])
            assert row.prompt_ids == text.begin(episode).prompt_ids
        assert len({id(row.prompt_ids) for row in rows}) == len(rows)
        for episode in episodes:
            await episode.close()
