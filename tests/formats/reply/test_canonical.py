"""The short way reads nothing that the dialects would read in another way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.amplification.prompt import render_exemplar
from simia.formats.reply import parse
from simia.formats.reply.fast_path import read_canonical
from simia.formats.reply.parse import ParsedReply, parse_reply
from simia.pack import Pack
from simia.trajectory import Message, Trajectory
from tests.properties import examples

RECORDINGS = Path(__file__).parents[2] / "recordings"


def by_the_dialects(text: str, monkeypatch: pytest.MonkeyPatch) -> ParsedReply:
    with monkeypatch.context() as patch:
        patch.setattr(parse, "read_canonical", lambda _: None)
        return parse_reply(text)


def same(text: str, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the short way took it; it must agree if it did."""
    short = read_canonical(text.strip("\ufeff \t\n"))
    if short is None:
        return False
    long = by_the_dialects(text, monkeypatch)
    assert not long.issues
    assert [message.model_dump() for message in short.messages] == [message.model_dump() for message in long.messages]
    assert set(short.repairs) == set(long.repairs)
    stored = [message.model_dump(mode="json", exclude_defaults=True) for message in short.messages]
    assert orjson.loads(orjson.dumps(short.rows)) == stored
    return True


@pytest.mark.parametrize("form", ["json", "tagged"])
@pytest.mark.parametrize("pack", ["customer_service", "office"])
def test_every_seed_goes_the_short_way(pack: str, form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in Pack.load(pack).seeds:
        assert same(render_exemplar(seed, form), monkeypatch), seed.task_id


def test_recorded_replies_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    for path in RECORDINGS.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            reply = orjson.loads(line).get("reply") or {}
            text = reply if isinstance(reply, str) else reply.get("text")
            taken.append(same(text or "", monkeypatch))
    assert sum(taken) >= 20


ODD = st.sampled_from(
    [
        "",
        " ",
        "a",
        "<",
        "</",
        "<user>",
        "</tool>",
        "<think>",
        "</think>",
        "<tool_call>{}</tool_call>",
        "\n",
        "\n<user>\n",
        "{",
        '"',
        "A: b",
        "null",
        "[1]",
    ]
)
TEXT = st.lists(ODD, max_size=4).map("".join)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
CALL = st.fixed_dictionaries({"name": TEXT, "arguments": VALUE}) | VALUE
ROW = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "bot"])},
    optional={
        "content": VALUE | TEXT | st.just([{"type": "text", "text": "parts"}]),
        "calls": st.lists(CALL, max_size=2) | VALUE,
        "reasoning": TEXT,
        "name": TEXT,
    },
)
GOOD = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "calls": st.lists(
            st.fixed_dictionaries({"name": st.just("f"), "arguments": st.dictionaries(TEXT, VALUE, max_size=2)}),
            min_size=1,
            max_size=2,
        ),
    },
    optional={"content": TEXT, "reasoning": TEXT},
)


@examples(400)
@given(rows=st.lists(ROW | GOOD, min_size=1, max_size=6))
def test_json_of_any_rows(rows: list[dict[str, Any]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        same(orjson.dumps({"messages": rows}, option=orjson.OPT_NON_STR_KEYS).decode() if whole(rows) else "", patch)


def whole(rows: Any) -> bool:
    try:
        orjson.dumps(rows)
    except (TypeError, orjson.JSONEncodeError):
        return False
    return True


LINE = st.sampled_from(
    [
        "<user>",
        "</user>",
        "<assistant>",
        "</assistant>",
        "<tool>",
        "</tool>",
        '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>',
        "<think>x</think>",
        "hello",
        "",
        "  indented",
        '{"a": 1}',
        "[1, 2]",
        "<b>",
        "A: no",
        '{"error": "no"}',
    ]
)


@examples(600)
@given(lines=st.lists(LINE, max_size=14))
def test_tags_in_any_order(lines: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        same("\n".join(lines), patch)


@examples(300)
@given(
    bodies=st.lists(
        st.tuples(
            st.sampled_from(["user", "assistant", "tool"]),
            st.lists(
                LINE.filter(lambda line: "user" not in line and "assistant>" not in line and "tool>" not in line),
                max_size=4,
            ),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_well_formed_tags_with_odd_bodies(bodies: list[tuple[str, list[str]]]) -> None:
    text = "\n".join(f"<{role}>\n" + "\n".join(lines) + f"\n</{role}>" for role, lines in [("user", ["hi"]), *bodies])
    with pytest.MonkeyPatch.context() as patch:
        same(text, patch)


def test_text_parts_are_left_to_the_dialects(monkeypatch: pytest.MonkeyPatch) -> None:
    call = {"role": "assistant", "calls": [{"name": "f", "arguments": {}}]}
    rows = [{"role": "user", "content": "hi"}, call, {"role": "tool", "content": [{"type": "text", "text": "42"}]}]
    text = orjson.dumps({"messages": rows}).decode()
    assert read_canonical(text) is None
    assert by_the_dialects(text, monkeypatch).messages[-1].content == "42"


def test_a_message_with_a_call_and_its_result() -> None:
    seed = Trajectory(messages=[Message(role="user", content="hi")])
    assert read_canonical(render_exemplar(seed, "json")) == (
        [Message(role="user", content="hi")],
        [{"role": "user", "content": "hi"}],
        [],
    )


SLIPS = st.lists(
    st.tuples(st.sampled_from([",", "\n", "\t", "}", "]", '"', "", ":", " "]), st.integers(0, 400), st.booleans()),
    max_size=3,
)


@examples(500)
@given(slips=SLIPS, seed=st.integers(0, 15), cut=st.integers(0, 4))
def test_slips_anywhere(slips: list[tuple[str, int, bool]], seed: int, cut: int) -> None:
    text = render_exemplar(Pack.load("office").seeds[seed], "json")
    for piece, at, instead in slips:
        at = at % len(text)
        text = text[:at] + piece + text[at + instead :]
    text = text[: len(text) - cut]
    short = read_canonical(text)
    if short is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        long = by_the_dialects(text, patch)
    assert not long.issues, (text, long.issues)
    assert [message.model_dump() for message in short.messages] == [message.model_dump() for message in long.messages]
