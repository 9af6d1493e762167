"""The quick reader of well-formed replies agrees with the dialects, and stored rows with messages, whatever the reply."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.amplification.prompt import render_exemplar
from simia.errors import Code
from simia.formats.reply import reply_parser
from simia.formats.reply.reply_parser import ParsedReply, parse_reply, strip_fence
from simia.formats.reply.well_formed import read_well_formed
from simia.pack import Pack
from simia.trajectory import Message, Trajectory
from tests.properties import examples

RECORDINGS = Path(__file__).parents[2] / "recordings"


def check(text: str) -> bool:
    """Check the rows, and that both readers agree; return whether the quick one took the reply. No text makes them raise."""
    parsed = parse_reply(text)
    stored = [message.model_dump(mode="json", exclude_defaults=True) for message in parsed.messages]
    assert orjson.loads(orjson.dumps(parsed.rows or [])) == orjson.loads(orjson.dumps(stored))
    if read_well_formed(strip_fence(text.strip("\ufeff \t\n"))) is None:
        return False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reply_parser, "read_well_formed", lambda _: None)
        slow = parse_reply(text)
    assert not slow.issues
    assert parsed.messages == slow.messages
    assert orjson.dumps(parsed.rows) == orjson.dumps(slow.rows)
    assert set(parsed.repairs) == set(slow.repairs)
    return True


@pytest.mark.parametrize("form", ["json", "tagged"])
@pytest.mark.parametrize("pack", ["customer_service", "office"])
def test_every_seed_is_well_formed(pack: str, form: Any) -> None:
    for seed in Pack.load(pack).seeds:
        assert check(render_exemplar(seed, form)), seed.task_id


def test_recorded_replies() -> None:
    taken = []
    for path in RECORDINGS.glob("*.jsonl"):
        for line in path.read_bytes().splitlines():
            reply = orjson.loads(line).get("reply") or {}
            text = reply if isinstance(reply, str) else reply.get("text")
            taken.append(check(text or ""))
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
    text = orjson.dumps({"messages": rows}).decode()
    assert read_well_formed(text) is None
    assert parse_reply(text).messages[-1].content == "42"


@pytest.mark.parametrize("form", ["json", "tagged"])
def test_integers_beyond_64_bits_are_refused_in_arguments_and_kept_in_results(form: Any) -> None:
    big = "12345678901234567890123"

    def parse(arguments: str, result: str) -> ParsedReply:
        call, tool = f'{{"name":"f","arguments":{arguments}}}', f'"role":"tool","content":{result}'
        if form == "tagged":
            call = f"<tool_call>{call}</tool_call>"
            return parse_reply(f"<user>\nhi\n</user>\n<assistant>\n{call}\n</assistant>\n<tool>\n{result}\n</tool>")
        return parse_reply(
            f'{{"messages":[{{"role":"user","content":"hi"}},{{"role":"assistant","calls":[{call}]}},{{{tool}}}]}}'
        )

    refused = parse(f'{{"a":{{"b":{big}}}}}', "{}")
    assert [issue.code for issue in refused.issues] == [Code.UNPARSABLE_ARGUMENTS]
    assert big in (refused.messages[1].calls[0].raw or "")
    kept = parse('{"a":{"b":18446744073709551615}}', f'{{"id":[{big}]}}')
    assert kept.messages[1].calls[0].arguments == {"a": {"b": 18446744073709551615}}
    assert kept.messages[2].content == f'{{"id":[{big}]}}'


def test_rows_of_one_message() -> None:
    seed = Trajectory(messages=[Message(role="user", content="hi")])
    assert read_well_formed(render_exemplar(seed, "json")) == ([{"role": "user", "content": "hi"}], [])


CALL_BODIES = [
    '{"name":"f","arguments":{"a":1}}',
    '\n{"name":"f","arguments":{}}\n',
    '{"name":"f","arguments":{"a":1,"a":2}}',
    '{"name":"f","arguments":{"a":"<think>x</think>"}}',
    '{"name":"f","arguments":{"a":"</tool_call>"}}',
    '{"name":"f","arguments":{"a":123456789012345678901234567890}}',
    '{"name":"f","arguments":{"a":{"b":[-123456789012345678901234567890]}}}',
]


BEFORE = ["", "Two lines,\n\n  one indented.\n", "<think>x</think>", "<think>\nx\n</think>\n\nSo:"]
AFTER = ["</tool_call>" + rest for rest in ("", "\n", " \n\n", " then", "\n<tool_call>", "</think>")] + ["", "\n"]
RESULTS = [
    '{"a": 1}',
    '{"a":[123456789012345678901234567890]}',
    '{"a":1,"a":2}',
    "text",
    "\n [1]\n",
    "[1]\n",
    '[{"text":"a"}]',
]


@pytest.mark.parametrize("call", CALL_BODIES)
def test_tagged_calls(call: str) -> None:
    for before, after, result in product(BEFORE, AFTER, RESULTS):
        body = f"{before}<tool_call>{call}{after}"
        check(f"<user>\nhi\n</user>\n<assistant>\n{body}\n</assistant>\n<tool>\n{result}\n</tool>\n\nA remark.")


def test_several_calls_on_lines_of_their_own_are_well_formed() -> None:
    call = '<tool_call>\n{"name":"f","arguments":{}}\n</tool_call>'
    results = "".join(f"\n<tool>\n[{i}]\n</tool>" for i in range(2))
    assert check(f"<user>\nhi\n</user>\n<assistant>\n<think>x</think>\nSo:\n{call}\n{call}\n</assistant>{results}")


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
