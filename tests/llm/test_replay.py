"""Recorded completions: exact matches only, misses that explain themselves, and the way from open questions to answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simia.errors import Code, UserError
from simia.llm.backends import find_price, open_backend
from simia.llm.engine import Engine
from simia.llm.prices import FREE
from simia.llm.replay import RecordedReply, ReplayBackend, ReplaySettings, append_recording, read_recording
from simia.llm.types import LLMFault, Reply, Request, make_reply_key
from simia.trajectory import Usage

SYSTEM = "You simulate a shop.\nRule one.\nRule two."


def ask(text: str, system: str = SYSTEM, **parameters: Any) -> Request:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    return Request(messages=messages, **parameters)


def backend(path: Path, **settings: Any) -> ReplayBackend:
    return ReplayBackend(ReplaySettings(path=path, **settings))


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


async def text_of(replay: ReplayBackend, request: Request, draw: str) -> str:
    return (await replay.complete(request, draw=draw)).text


async def miss(replay: ReplayBackend, request: Request, draw: str = "0") -> str:
    with pytest.raises(LLMFault) as caught:
        await replay.complete(request, draw=draw)
    assert (caught.value.code, caught.value.retry) == (Code.REPLAY_MISS, False)
    return caught.value.detail


async def test_serves_what_was_recorded(tmp_path: Path) -> None:
    path = tmp_path / "recorded.jsonl"
    full = Reply(text="yes", reasoning="hm", finish="stop", usage=Usage(prompt=3, completion=1), body={"big": 1})
    rows = [
        RecordedReply(request=ask("a", temperature=1.0), draw="0", reply=full, model="gpt-x"),
        RecordedReply(request=ask("a", temperature=1.0), draw="1", reply=Reply(text="no"), model="gpt-x"),
    ]
    assert append_recording(rows, path) == 2
    replay = backend(path)
    assert (replay.alias, replay.model) == ("replay", "gpt-x")
    reply = await replay.complete(ask("a", temperature=1.0), draw="0")
    assert reply == full.model_copy(update={"body": {}})
    assert await text_of(replay, ask("a", temperature=1.0), "1") == "no"
    reply.text = "changed"
    assert await text_of(replay, ask("a", temperature=1.0), "0") == "yes", "a caller cannot change the recording"


async def test_rows_without_a_draw_are_served_in_order_and_each_draw_keeps_its_own(tmp_path: Path) -> None:
    row = {"request": {"messages": ask("a").messages}}
    replay = backend(write(tmp_path / "r.jsonl", row | {"reply": {"text": "first"}}, row | {"reply": "second"}))
    assert [await text_of(replay, ask("a"), draw) for draw in ("x", "y", "x")] == ["first", "second", "first"]
    assert "no reply to this prompt is left for sample z: 2 replies recorded, all used" in await miss(
        replay, ask("a"), "z"
    )


async def test_a_miss_shows_the_first_line_that_differs(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append_recording(
        [RecordedReply(request=ask(text, temperature=1.0), draw="0", reply=Reply(text="t")) for text in ("a", "b\nc")],
        path,
    )
    replay = backend(path)
    changed = await miss(replay, ask("a", SYSTEM.replace("Rule two", "Rule 2"), temperature=1.0))
    assert "messages[0] (system), line 3 differs: recorded 'Rule two.', asked 'Rule 2.'" in changed
    nearest = await miss(replay, ask("b\nd", temperature=1.0))
    assert "messages[1] (user), line 2 differs: recorded 'c', asked 'd'" in nearest, (
        "against the nearest, not the first"
    )
    assert "temperature differs: recorded '1.0', asked '0.5'" in await miss(replay, ask("a", temperature=0.5))
    assert "recorded for sample 0, not for sample 7" in await miss(replay, ask("a", temperature=1.0), "7")
    longer = ask("a", temperature=1.0)
    longer.messages.append({"role": "assistant", "content": "more"})
    assert "messages[2] (assistant) role, line 1 differs: recorded nothing, asked 'assistant'" in await miss(
        replay, longer
    )


async def test_from_open_questions_to_answers(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    questions = [RecordedReply(request=ask("a"), draw="0"), RecordedReply(request=ask("b", max_tokens=5), draw="0")]
    assert append_recording(questions, path) == 2
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["reply"] for row in rows] == [None, None]
    assert rows[1]["request"] == {"messages": ask("b").messages, "max_tokens": 5}
    assert "it has no reply yet" in await miss(backend(path), ask("a"))

    write(path, rows[0], rows[1] | {"reply": "B", "model": "a-person"})  # people answer with plain text, in place
    replay = backend(path)
    assert replay.model == "a-person"
    assert await text_of(replay, ask("b", max_tokens=5), "0") == "B"
    assert "it has no reply yet" in await miss(replay, ask("a"))


async def test_a_later_answer_replaces_an_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append_recording(
        [RecordedReply(request=ask("a"), draw="0", reply=Reply(text=text)) for text in ("old", "new")], path
    )
    append_recording([RecordedReply(request=ask("a"), draw="0")], path)
    assert await text_of(backend(path), ask("a"), "0") == "new"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"request": {"messages": []}, "reply": null}\n{not json\n', r"r\.jsonl:2 is not a recorded completion"),
        ('{"request": {"mesages": []}, "reply": null}\n', r"r\.jsonl:1 .*mesages"),
        ("\n", "holds no recorded requests"),
    ],
)
def test_a_bad_file_is_the_users_to_mend(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        backend(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.jsonl"):
        backend(tmp_path / "none.jsonl")


def test_opened_from_settings_and_free(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append_recording([RecordedReply(request=ask("a"), draw="0", reply=Reply(text="t"))], path)
    settings = ReplaySettings(path=path, model="m", alias="api.openai.com")
    opened = open_backend(settings)
    assert (opened.alias, opened.model) == ("api.openai.com", "m")
    assert find_price(settings) == FREE
    assert len(list(read_recording(path))) == 1


async def test_a_draw_names_the_request_that_was_recorded_for_it(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [
        RecordedReply(request=ask("old"), draw="i0.0", reply=Reply(text="t"), batch="b1", prompts={"a.j2": "1"}),
        RecordedReply(request=ask("x"), draw="shared", reply=Reply(text="to x"), prompts={"a.j2": "2", "b.j2": "3"}),
        RecordedReply(request=ask("y"), draw="shared", reply=Reply(text="to y")),
    ]
    append_recording(rows, path)
    assert list(read_recording(path)) == rows
    assert (await miss(backend(path), ask("new"), "i0.0")).startswith("r.jsonl: no such prompt")

    replay = backend(path, match="draw")
    async with Engine(replay) as engine:
        reply = await engine.ask(ask("new"), item="i0", draw="i0.0")
        assert reply.text == "t"
        assert engine.make_key(ask("new"), "i0.0") == make_reply_key("replay", "recorded", ask("old"), "i0.0")
        assert engine.journal.recall(engine.make_key(ask("new"), "i0.0")) == reply
        # A draw that several requests have names none of them.
        assert (await engine.ask(ask("y"), item="s", draw="shared")).text == "to y"
        assert "no such prompt" in await miss(replay, ask("z"), "shared")
        assert await miss(replay, ask("old"), "i1.0") == "r.jsonl: no reply is recorded for sample i1.0"
    assert replay.prompts.keys() == {"a.j2", "b.j2", "recorded requests"}
    assert replay.prompts["a.j2"] == "1, 2"


def test_token_counts_of_a_recording_may_be_estimates(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    usage = Usage(prompt=900, completion=300, estimated=True)
    append_recording([RecordedReply(request=ask("a"), draw="0", reply=Reply(text="t", usage=usage))], path)
    (row,) = read_recording(path)
    assert row.reply is not None
    assert row.reply.usage == usage
    assert (usage + Usage(prompt=1)).estimated, "a sum with an estimate is an estimate"
    assert "estimated" not in Usage(prompt=1).model_dump(exclude_defaults=True)
