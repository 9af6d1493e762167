"""The rows that a parsed reply is stored as agree with its messages, whatever the reply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.amplification.prompt import render_exemplar
from simia.formats.reply.reply_parser import parse_reply
from simia.pack import Pack
from tests.properties import examples

RECORDINGS = Path(__file__).parents[2] / "recordings"


def check(text: str) -> int:
    """The rows that are stored are those of the messages; returns how many there are. No text makes the parser raise."""
    parsed = parse_reply(text)
    stored = [message.model_dump(mode="json", exclude_defaults=True) for message in parsed.messages]
    assert orjson.loads(orjson.dumps(parsed.rows or [])) == orjson.loads(orjson.dumps(stored))
    return 0 if parsed.issues else len(stored)


@pytest.mark.parametrize("form", ["json", "tagged"])
@pytest.mark.parametrize("pack", ["customer_service", "office"])
def test_rows_of_every_seed(pack: str, form: Any) -> None:
    for seed in Pack.load(pack).seeds:
        assert check(render_exemplar(seed, form)), seed.task_id


def test_rows_of_recorded_replies() -> None:
    taken = []
    for path in RECORDINGS.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            reply = orjson.loads(line).get("reply") or {}
            text = reply if isinstance(reply, str) else reply.get("text")
            taken.append(bool(check(text or "")))
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
    check(orjson.dumps({"messages": rows}, option=orjson.OPT_NON_STR_KEYS).decode() if whole(rows) else "")


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
    check("\n".join(lines))


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
    check(text)


def test_text_parts_of_a_result_are_joined() -> None:
    call = {"role": "assistant", "calls": [{"name": "f", "arguments": {}}]}
    rows = [{"role": "user", "content": "hi"}, call, {"role": "tool", "content": [{"type": "text", "text": "42"}]}]
    assert parse_reply(orjson.dumps({"messages": rows}).decode()).messages[-1].content == "42"


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
    check(text)
