"""A valid reply cut anywhere and continued in any of the usual ways reads as if it had never been cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia import search_path
from simia.amplification.prompt import render_exemplar
from simia.formats.reply.continuation import LEAST_LETTERS, build_continuation, can_continue, join_replies, splice
from simia.formats.reply.reply_parser import ParsedReply, parse_reply
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory, Usage

RECORDINGS = Path(__file__).parents[2] / "recordings"


def recorded(name: str) -> list[str]:
    rows = (json.loads(line) for line in (RECORDINGS / f"{name}.jsonl").read_text().splitlines())
    return [row["reply"]["text"] for row in rows]


def seeds() -> list[Trajectory]:
    packs = (Pack.load(search_path.find_resource("seeds", name)) for name in ("customer_service", "office"))
    return [seed for pack in packs for seed in pack.seeds]


def with_code() -> Trajectory:
    """Turns that hold fences, blank lines and thoughts of their own."""
    text = "Run this:\n\n```python\nfor row in rows:\n    print(row)\n```\n\nand then this:\n```\nls -l /tmp\n```"
    return Trajectory(
        messages=[
            Message(role="user", content="How do I list them?\n\n```sh\nls\n```\nfails here."),
            Message(
                role="assistant",
                reasoning="look first, then answer",
                calls=[ToolCall(id="c", name="read_file", arguments={"path": "a\nb", "mode": "```"})],
            ),
            Message(role="tool", call_id="c", content='{"text": "```\\nno\\n```", "lines": [1, 2, 3]}'),
            Message(role="assistant", content=text),
        ]
    )


JSON = [render_exemplar(seed, "json") for seed in [*seeds(), with_code()]]
PRETTY = [json.dumps(json.loads(text), indent=2, ensure_ascii=False) for text in JSON]
TAGGED = [render_exemplar(seed, "tagged") for seed in [*seeds(), with_code()]]
REAL = [
    text
    for name in ("strong-json", "blind-json", "strong-tagged", "blind-tagged", "quickstart")
    for text in recorded(name)
]
FENCED = [f"```json\n{text}\n```" for text in PRETTY] + [f"```xml\n{text}\n```" for text in TAGGED]
VALID = [text for text in [*JSON, *PRETTY, *TAGGED, *FENCED, *REAL] if not parse_reply(text).issues]


def told(parsed: ParsedReply) -> object:
    """What was read; not how: a fence that was mended is mended either way."""
    return [message.model_dump() for message in parsed.messages], [str(issue) for issue in parsed.issues]


def after(first: str, second: str) -> object:
    whole = join_replies(Reply(text=first, finish="length"), Reply(text=second, finish="stop"))
    return told(parse_reply(whole.text, whole.reasoning))


@st.composite
def halves(draw: st.DrawFn) -> tuple[str, str, str]:
    text = draw(st.sampled_from(VALID))
    at = draw(st.integers(1, len(text) - 1))
    return text, text[:at], text[at:]


def test_there_are_valid_replies_of_every_form() -> None:
    assert len(VALID) > 200
    assert all(any(text in VALID for text in group) for group in (JSON, PRETTY, TAGGED, FENCED, REAL))


@given(halves())
def test_the_exact_rest(case: tuple[str, str, str]) -> None:
    text, first, second = case
    assert splice(first, second)[0] == text


@given(halves(), st.integers(20, 400))
def test_an_overlap(case: tuple[str, str, str], length: int) -> None:
    text, first, second = case
    again = first[-length:]
    if len(again) >= 20 and len(set(again[:20])) >= LEAST_LETTERS:
        assert after(first, again + second) == told(parse_reply(text))
        assert after(first, "\n" + again.lstrip() + second) == told(parse_reply(text)) or len(again.lstrip()) < 20


@given(halves(), st.sampled_from(["json", "xml", "text", ""]), st.booleans(), st.booleans())
def test_a_fence_opened_again(case: tuple[str, str, str], language: str, closed: bool, overlapping: bool) -> None:
    text, first, second = case
    # In a fence of a turn's own, one more fence is anybody's guess; so is a bare one where the reply's own is still open.
    if not second.strip("` \n") or first.count("```") > text.startswith("```"):
        return
    if text.startswith("```") and (second.count("```") != 1 or not language):
        return
    if not text.startswith("```") and "```" in second:
        return
    again = first[-40:]
    if not overlapping or len(again) < 40 or len(set(again[:20])) < LEAST_LETTERS or "`" in again:
        again = ""
    close = "\n```" if closed and not text.startswith("```") else ""
    if text.startswith("```") and not closed:
        second = second.removesuffix("```")
    fenced = f"```{language}\n{again}{second}{close}"
    assert after(first, fenced) == told(parse_reply(text))


@given(halves())
def test_joining_is_never_an_error_and_never_loses_the_first_half(case: tuple[str, str, str]) -> None:
    text, first, second = case
    assert splice(first, second[::-1])[0].startswith(first)
    assert splice(first, text)[0] == text or len(first) < 20 or len(set(first[:20])) < LEAST_LETTERS


@pytest.mark.parametrize(
    "words", ["Sorry about that! Here is the rest:", "Continuing from where I stopped:", "Sure, the rest:"]
)
def test_a_plain_preamble_goes_and_is_named(words: str) -> None:
    text = TAGGED[7]
    first, second = text[:300], text[300:]
    whole = join_replies(Reply(text=first), Reply(text=f"{words}\n\n{first[-30:]}{second}"))
    assert whole.text == text
    assert whole.body == {"seam": ["preamble", "overlap of 30"]}
    assert splice(JSON[7][:300], f"{words}\n{JSON[7][300:]}") == (JSON[7], ["preamble"])
    assert splice(first, f"{words}\n```xml\n{second}\n```") == (text, ["preamble", "fence"])


def test_a_line_of_apology_that_may_be_a_turn_stays() -> None:
    first = "<user>\nWhere is it?\n</user>\n<assistant>\n"
    second = "I'm sorry about the delay.\nIt left on Monday.\n</assistant>"
    assert splice(first, second) == (first + second, [])
    assert after(first, second) == told(parse_reply(first + second))
    quoted = '{"messages": [{"role": "user", "content": "'
    rest = 'Sorry, where is it?"},\n{"role": "assistant", "content": "Here."}]}'
    assert splice(quoted, rest) == (quoted + rest, [])


def test_what_repeats_itself_is_no_overlap() -> None:
    rule = "-" * 60
    assert splice(f"<assistant>\n{rule}", f"{rule}\nDone.")[0] == f"<assistant>\n{rule}{rule}\nDone."
    assert splice("It was sent", "was sent by post")[0] == "It was sentwas sent by post"  # too short to be sure


def test_the_continuation_shows_what_was_written_and_frees_the_form() -> None:
    request = Request(
        messages=[{"role": "user", "content": "Write."}],
        temperature=1.0,
        max_tokens=50,
        response_format={"type": "json_schema", "json_schema": {"name": "t", "schema": {}}},
    )
    more = build_continuation(request, Reply(text='{"messages": [', finish="length"))
    assert [message["role"] for message in more.messages] == ["user", "assistant", "user"]
    assert more.messages[1]["content"] == '{"messages": ['
    assert (more.temperature, more.max_tokens, more.response_format) == (1.0, 50, None)
    assert len(request.messages) == 1
    assert request.response_format is not None


def test_usage_is_summed_and_the_ending_is_the_second_ones() -> None:
    first = Reply(text="a", finish="length", usage=Usage(prompt=10, completion=5, cost=0.5), model="m", reasoning="one")
    second = Reply(text="b", finish="length", usage=Usage(prompt=20, completion=7, cached=9), reasoning="two")
    whole = join_replies(first, second)
    assert whole.usage == Usage(prompt=30, completion=12, cached=9, cost=0.5)
    assert (whole.text, whole.truncated, whole.model, whole.reasoning) == ("ab", True, "m", "one\ntwo")


def test_only_a_cut_text_is_continued() -> None:
    assert can_continue(Reply(text="{", finish="length"))
    assert not can_continue(Reply(text=" \n", reasoning="long", finish="length"))
    assert not can_continue(Reply(text="{}", finish="stop"))
