"""Replies as models write them, each with the turns that a person would read in it."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.errors import Code
from simia.formats.reply.reply_parser import ParsedReply, parse_reply
from simia.pack import Pack
from simia.trajectory import Message, ToolCall

# One conversation, told in many ways; a turn is (role, text, calls).
Told = list[tuple[str, Any, list[tuple[str, Any]]]]
ASK = ("user", "Where is ORD-1?", [])
LOOK = ("assistant", None, [("get", {"id": "ORD-1"})])
FOUND = ("tool", '{"status":"sent"}', [])
SAY = ("assistant", "It was sent.", [])
STORY: Told = [ASK, LOOK, FOUND, SAY]
TWO = ("assistant", None, [("get", {"id": "A"}), ("get", {"id": "B"})])
ONE_A, ONE_B = ("tool", '{"n":1}', []), ("tool", '{"n":2}', [])
PAIR: Told = [("user", "Both?", []), TWO, ONE_A, ONE_B, ("assistant", "Yes.", [])]

CALL = '<tool_call>{"name": "get", "arguments": {"id": "ORD-1"}}</tool_call>'
TAGGED = f"""<user>
Where is ORD-1?
</user>
<assistant>
{CALL}
</assistant>
<tool>
{{"status": "sent"}}
</tool>
<assistant>
It was sent.
</assistant>"""
JSON = json.dumps(
    {
        "messages": [
            {"role": "user", "content": "Where is ORD-1?"},
            {"role": "assistant", "content": None, "calls": [{"name": "get", "arguments": {"id": "ORD-1"}}]},
            {"role": "tool", "content": {"status": "sent"}},
            {"role": "assistant", "content": "It was sent."},
        ]
    }
)
TAGGED_TWO = (
    "<user>\nBoth?\n</user>\n<assistant>\n"
    '<tool_call>{"name": "get", "arguments": {"id": "A"}}</tool_call>\n'
    '<tool_call>{"name": "get", "arguments": {"id": "B"}}</tool_call>\n</assistant>\n'
    "RESULTS\n<assistant>\nYes.\n</assistant>"
)


def indented(text: str, by: str = "    ") -> str:
    return "\n".join(by + line for line in text.split("\n"))


def without(text: str, *parts: str) -> str:
    for part in parts:
        assert part in text
        text = text.replace(part, "")
    return text


def sharegpt(*rows: tuple[str, str]) -> str:
    return json.dumps({"conversations": [{"from": who, "value": value} for who, value in rows]})


GET = '{"name": "get", "arguments": {"id": "ORD-1"}}'
OPENAI = [
    {"role": "user", "content": "Where is ORD-1?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c9", "type": "function", "function": {"name": "get", "arguments": '{"id": "ORD-1"}'}}],
    },
    {"role": "tool", "tool_call_id": "c9", "content": '{"status":"sent"}'},
    {"role": "assistant", "content": [{"type": "text", "text": "It was sent."}]},
]

READ: list[tuple[str, str, Told]] = [
    # the tagged form
    ("tagged as asked", TAGGED, STORY),
    ("tags in capitals", TAGGED.replace("user>", "USER>").replace("assistant>", "Assistant>"), STORY),
    ("everything indented", indented(TAGGED), STORY),
    ("indented by tabs", indented(TAGGED, "\t"), STORY),
    ("content indented below its tags", indented(TAGGED).replace("    Where", "      Where"), STORY),
    ("windows line ends", TAGGED.replace("\n", "\r\n"), STORY),
    ("in a fence", f"```\n{TAGGED}\n```", STORY),
    ("in an xml fence", f"```xml\n{TAGGED}\n```\n", STORY),
    ("fence never closed", f"```\n{TAGGED}", STORY),
    ("prose before", f"Sure! Here is a conversation:\n\n{TAGGED}", STORY),
    ("prose after", f"{TAGGED}\n\nLet me know if you need more.", STORY),
    ("prose on both sides", f"Here:\n{TAGGED}\nDone.", STORY),
    ("blank lines between turns", TAGGED.replace(">\n<", ">\n\n\n<"), STORY),
    ("rules between turns", TAGGED.replace("</user>\n", "</user>\n---\n"), STORY),
    ("blank lines around content", TAGGED.replace("It was sent.", "\n\nIt was sent.\n\n"), STORY),
    ("user not closed", without(TAGGED, "</user>\n"), STORY),
    ("last turn not closed", TAGGED.removesuffix("</assistant>"), STORY),
    ("nothing closed", without(TAGGED, "</user>\n", "</assistant>", "</tool>\n"), STORY),
    ("call not closed", without(TAGGED, "</tool_call>"), STORY),
    ("on one line each", f"<user>Where is ORD-1?</user>\n<assistant>{CALL}</assistant>\n"
     '<tool>{"status": "sent"}</tool>\n<assistant>It was sent.</assistant>', STORY),
    ("turns next to each other", TAGGED.replace(">\n<assistant>", "><assistant>"), STORY),
    ("call over several lines", TAGGED.replace(CALL, '<tool_call>\n{\n  "name": "get",\n'
     '  "arguments": {"id": "ORD-1"}\n}\n</tool_call>'), STORY),
    ("call with a trailing comma", TAGGED.replace('"ORD-1"}}', '"ORD-1",}}'), STORY),
    ("call without its last brace", TAGGED.replace('"ORD-1"}}', '"ORD-1"}'), STORY),
    ("call in a fence", TAGGED.replace(GET, f"\n```json\n{GET}\n```\n"), STORY),
    ("call in python", TAGGED.replace(GET, "{'name': 'get', 'arguments': {'id': 'ORD-1'}}"), STORY),
    ("arguments as text", TAGGED.replace('{"id": "ORD-1"}', json.dumps('{"id": "ORD-1"}')), STORY),
    ("call outside its turn", TAGGED.replace(f"<assistant>\n{CALL}\n</assistant>", CALL), STORY),
    ("call after its turn", TAGGED.replace(f"{CALL}\n</assistant>", f"I look.\n</assistant>\n{CALL}"),
     [ASK, ("assistant", "I look.", LOOK[2]), FOUND, SAY]),
    ("text before the call", TAGGED.replace(CALL, f"One moment.\n\n{CALL}"),
     [ASK, ("assistant", "One moment.", LOOK[2]), FOUND, SAY]),
    ("result named by an attribute", TAGGED.replace("<tool>", '<tool name="get">'), STORY),
    ("result in a response tag", TAGGED.replace("<tool>\n", "<tool>\n<tool_response>\n")
     .replace("\n</tool>", "\n</tool_response>\n</tool>"), STORY),
    ("response tag for the turn", TAGGED.replace("tool>", "tool_response>"), STORY),
    ("other role words", TAGGED.replace("user>", "human>").replace("assistant>", "gpt>").replace("tool>",
     "observation>"), STORY),
    ("result over several lines", TAGGED.replace('{"status": "sent"}', '{\n  "status": "sent"\n}'), STORY),
    ("result with a trailing comma", TAGGED.replace('"sent"}', '"sent",}'), STORY),
    ("result that is text", TAGGED.replace('{"status": "sent"}', "[INFO] sent"),
     [ASK, LOOK, ("tool", "[INFO] sent", []), SAY]),
    ("a system turn", f"<system>\nBe kind.\n</system>\n{TAGGED}", STORY),
    ("thoughts of its own before", f"<think>\nA draft:\n<user>\nHi\n</user>\n</think>\n{TAGGED}", STORY),
    ("only the end of its thoughts", f"A draft: <user>\n</think>\n\n{TAGGED}", STORY),
    ("two calls, two results", TAGGED_TWO.replace("RESULTS", '<tool>\n{"n": 1}\n</tool>\n<tool>\n{"n": 2}\n</tool>'),
     PAIR),
    ("two calls, a list of results", TAGGED_TWO.replace("RESULTS", '<tool>\n[{"n": 1}, {"n": 2}]\n</tool>'), PAIR),
    ("two calls, two response tags", TAGGED_TWO.replace("RESULTS", "<tool>\n<tool_response>\n"
     '{"n": 1}\n</tool_response>\n<tool_response>\n{"n": 2}\n</tool_response>\n</tool>'), PAIR),
    ("two calls as a list", TAGGED_TWO.replace("}}</tool_call>\n<tool_call>", "}}, ").replace("<tool_call>",
     "<tool_call>[").replace("</tool_call>", "]</tool_call>").replace("RESULTS", '<tool>[{"n":1},{"n":2}]</tool>'), PAIR),
    # the JSON form
    ("JSON as asked", JSON, STORY),
    ("JSON in a fence", f"```json\n{JSON}\n```", STORY),
    ("JSON after prose, in a fence", f"Here you are:\n```json\n{JSON}\n```\nEnjoy!", STORY),
    ("JSON with prose after", f"{JSON}\nI hope that helps.", STORY),
    ("bare list", json.dumps(json.loads(JSON)["messages"]), STORY),
    ("one message a line", "\n".join(json.dumps(m) for m in json.loads(JSON)["messages"]), STORY),
    ("trailing comma", JSON[:-2] + ",]}", STORY),
    ("last brace missing", JSON[:-1], STORY),
    ("single call", JSON.replace('"calls": [', '"call": ').replace("}}]}", "}}}"), STORY),
    ("OpenAI", json.dumps(OPENAI), STORY),
    ("ShareGPT", sharegpt(("human", "Where is ORD-1?"), ("function_call", GET), ("observation", '{"status":"sent"}'),
                          ("gpt", "It was sent.")), STORY),
    ("ShareGPT, parallel", sharegpt(
        ("human", "Both?"), ("function_call", '{"name": "get", "arguments": {"id": "A"}}'),
        ("function_call", '{"name": "get", "arguments": {"id": "B"}}'), ("observation", '{"n":1}'),
        ("observation", '{"n":2}'), ("gpt", "Yes.")), PAIR),
    ("text then call as two turns", sharegpt(
        ("human", "Where is ORD-1?"), ("gpt", "One moment."), ("function_call", GET),
        ("observation", '{"status":"sent"}'), ("gpt", "It was sent.")),
     [ASK, ("assistant", "One moment.", LOOK[2]), FOUND, SAY]),
    ("synonyms", JSON.replace('"user"', '"Human"').replace('"assistant"', '"ai"').replace('"tool"', '"function"'), STORY),
    ("nested", f'{{"trajectory": {JSON}}}', STORY),
    ("calls in the content", json.dumps([{"role": "user", "content": "Where is ORD-1?"}, {"role": "assistant",
     "content": CALL}, {"role": "tool", "content": {"status": "sent"}}, {"role": "assistant",
     "content": "It was sent."}]), STORY),
    ("a system message", JSON.replace('[{"role": "user"', '[{"role": "system", "content": "x"}, {"role": "user"', 1), STORY),
    ("results named, in another order", json.dumps([
        {"role": "user", "content": "Both?"},
        {"role": "assistant", "calls": [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]},
        {"role": "tool", "name": "g", "content": "of g"}, {"role": "tool", "name": "f", "content": "of f"},
        {"role": "assistant", "content": "Yes."}]),
     [("user", "Both?", []), ("assistant", None, [("f", {}), ("g", {})]), ("tool", "of g", []), ("tool", "of f", []),
      ("assistant", "Yes.", [])]),
    ("result that is a list", JSON.replace('{"status": "sent"}', '[1, 2]'), [ASK, LOOK, ("tool", "[1,2]", []), SAY]),
    ("result that is null", JSON.replace('{"status": "sent"}', "null"), [ASK, LOOK, ("tool", "null", []), SAY]),
    ("result with accents, keys in order", JSON.replace('{"status": "sent"}', '{"z": "Zo\\u00eb", "a": 1.50}'),
     [ASK, LOOK, ("tool", '{"z":"Zoë","a":1.5}', []), SAY]),
    # no tags at all
    ("markdown capitals", "**HUMAN:** Where is ORD-1?\n\n**FUNCTION CALL:** " + GET + "\n\n**OBSERVATION:** "
     '{"status": "sent"}\n\n**ASSISTANT:** It was sent.', STORY),
    ("headings", f"### User\nWhere is ORD-1?\n\n### Assistant\n{CALL}\n\n### Observation\n{{\"status\": \"sent\"}}\n\n"
     "### Assistant\nIt was sent.", STORY),
    ("plain words", f"User: Where is ORD-1?\nAssistant: {CALL}\nObservation: {{\"status\": \"sent\"}}\n"
     "Assistant: It was sent.", STORY),
    ("plain words and a function call", f"Here is one.\n\nUser: Where is ORD-1?\nFunction call: {GET}\n"
     'Observation: {"status": "sent"}\nAssistant: It was sent.', STORY),
]  # fmt: skip


def told(messages: list[Message]) -> Told:
    return [(m.role, m.content, [(c.name, c.arguments) for c in m.calls]) for m in messages]


@pytest.mark.parametrize(("text", "story"), [c[1:] for c in READ], ids=[c[0] for c in READ])
def test_a_reply_is_read_as_it_was_meant(text: str, story: Told) -> None:
    parsed = parse_reply(text)
    assert parsed.issues == []
    assert told(parsed.messages) == story
    calls = [c.id for m in parsed.messages for c in m.calls]
    assert calls == [f"call_{n}" for n in range(1, len(calls) + 1)]
    assert sorted(m.call_id or "?" for m in parsed.messages if m.role == "tool") == calls


CONTENT = [
    "A: yes, that one\nB: no",
    "User: is that you?",
    "assistant: no\n\nUser: yes",
    "### Assistant\n**HUMAN:** Observation: x",
    "    indented code\n        deeper\n\n\nafter two blank lines",
    "- a list\n  - nested\n\n1. one",
    "she said \"go\" and left, it's O'Brien's",
    "a < b and c > d, <b>bold</b>, <user id>, see </users>",
    "```python\nprint('hi')\n```",
    '{"looks": "like JSON"}',
    "tags in a line: <user> and </assistant> do nothing",
    "unicode \u2028 separator, \x0b too, emoji 🎉",
    "trailing spaces  \nnext",
]


@pytest.mark.parametrize("text", CONTENT)
@pytest.mark.parametrize("form", ["json", "tagged"])
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_what_looks_like_a_role_or_markup_inside_a_turn_is_content(text: str, form: str, role: str) -> None:
    messages = [Message(role="user", content="Hi"), Message(role="assistant", content="Hello")]
    messages[role == "assistant"].content = text
    parsed = parse_reply(written(messages, form))
    assert parsed.issues == []
    assert parsed.messages == messages
    assert parsed.repairs == []


def test_indentation_within_content_stays_when_the_tags_are_indented() -> None:
    text = "  <user>\n    def f():\n        return 1\n  </user>\n  <assistant>\n  Fine.\n  </assistant>"
    assert parse_reply(text).messages[0].content == "def f():\n    return 1"


REFUSED = [
    ("empty", "", Code.EMPTY_REPLY),
    ("blank", " \n\t\n", Code.EMPTY_REPLY),
    ("refusal", "I'm sorry, but I can't help with that.", Code.REFUSAL),
    ("refusal with a typographic apostrophe", "I’m sorry, but I can’t create this.", Code.REFUSAL),
    ("as an AI", "As an AI, I am not able to write such a conversation.", Code.REFUSAL),
    ("prose", "The weather is fine today.", Code.UNPARSABLE),
    ("no messages", '{"messages": []}', Code.UNPARSABLE),
    ("not a list of messages", '{"answer": 5}', Code.UNPARSABLE),
    ("cut JSON", JSON[:-8], Code.UNPARSABLE),
    ("unknown role", JSON.replace('"tool"', '"narrator"'), Code.UNKNOWN_ROLE),
    ("message that is no object", '["hi", "there"]', Code.UNPARSABLE),
    ("user content that is no text", '[{"role": "user", "content": {"a": 1}}]', Code.UNPARSABLE),
    ("text between turns", TAGGED.replace("</user>\n", "</user>\nThe assistant thinks.\n"), Code.UNPARSABLE),
    ("turn tags inside a turn", TAGGED.replace('{"status": "sent"}', "<user>\n<name>Bob</name>\n</user>"),
     Code.UNPARSABLE),
    ("a closing tag too many", TAGGED.replace("</user>", "</user>\n</user>"), Code.UNPARSABLE),
    ("call that cannot be read", TAGGED.replace(GET, "get the order"), Code.UNPARSABLE),
    ("call without a name", TAGGED.replace('"name": "get", ', ""), Code.UNPARSABLE),
    ("call cut off", TAGGED.replace('"ORD-1"}}', '"ORD-'), Code.UNPARSABLE_ARGUMENTS),
    ("text after an open call", TAGGED.replace("</tool_call>", "\nI am looking."), Code.UNPARSABLE),
    ("thought never closed", TAGGED.replace("It was sent.", "<think>It was sent."), Code.UNPARSABLE),
    ("lost in its own thoughts", f"<think>I should write\n{TAGGED}", Code.UNPARSABLE),
    ("role line of another case", "User: Hi\nAssistant: Say this:\nuser: hello\nAssistant: Bye", Code.UNPARSABLE),
    ("role line of another style", "**User:** Hi\n**Assistant:** Like so:\nUser: hello", Code.UNPARSABLE),
    ("indented role line", "User: Hi\nAssistant: Like so:\n  User: hello", Code.UNPARSABLE),
    ("one role only", "User: Hi\nmore text", Code.UNPARSABLE),
    ("letters are no roles", "A: Hi\nB: Hello", Code.UNPARSABLE),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code"), [c[1:] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_a_reply_without_one_reading_is_refused(text: str, code: Code) -> None:
    parsed = parse_reply(text)
    assert [issue.code for issue in parsed.issues] == [code]


def test_everything_in_the_reasoning_channel_is_an_empty_reply() -> None:
    issue = parse_reply("", TAGGED).issues[0]
    assert issue.code is Code.EMPTY_REPLY
    assert "reasoning" in issue.detail


def test_reasoning_never_mixes_with_content() -> None:
    tagged = TAGGED.replace(CALL, f"<think>Look first.\nThen speak.</think>\nOne moment.\n{CALL}")
    as_json = JSON.replace('"content": null', '"reasoning": "Look first.\\nThen speak.", "content": "One moment."')
    for text in (tagged, as_json):
        turn = parse_reply(text).messages[1]
        assert (turn.reasoning, turn.content, len(turn.calls)) == ("Look first.\nThen speak.", "One moment.", 1)


def test_an_open_thought_ends_at_the_call() -> None:
    parsed = parse_reply(TAGGED.replace(CALL, f"<think>Look first.\n{CALL}"))
    assert parsed.issues == []
    assert (parsed.messages[1].reasoning, parsed.messages[1].content) == ("Look first.", None)
    assert parsed.repairs == ["missing_close_tag"]


def test_a_result_that_names_another_tool_answers_nothing() -> None:
    parsed = parse_reply(TAGGED.replace("<tool>", '<tool name="put">'))
    assert parsed.messages[2].call_id is None


def test_a_result_too_many_answers_nothing() -> None:
    parsed = parse_reply(TAGGED.replace("</tool>", '</tool>\n<tool>\n{"more": 1}\n</tool>'))
    assert [m.call_id for m in parsed.messages if m.role == "tool"] == ["call_1", None]


def test_a_list_of_another_length_is_one_result() -> None:
    parsed = parse_reply(TAGGED_TWO.replace("RESULTS", "<tool>\n[1, 2, 3]\n</tool>"))
    assert [m.content for m in parsed.messages if m.role == "tool"] == ["[1,2,3]"]


def test_a_tool_error_is_marked() -> None:
    for text in (TAGGED, JSON):
        parsed = parse_reply(text.replace('"status": "sent"', '"error": "no order"'))
        assert parsed.messages[2].error is Code.TOOL_ERROR
        assert parse_reply(text).messages[2].error is None


def test_the_form_that_was_asked_for_is_read_even_behind_prose() -> None:
    assert told(parse_reply(f"Here:\n{JSON}", form="json").messages) == STORY


def test_repairs_are_named_in_order() -> None:
    parsed = parse_reply("```\nSure:\n" + TAGGED.replace('"ORD-1"}}', '"ORD-1",}}') + "\nBye.\n```")
    assert parsed.repairs == ["code_fence", "trailing_comma", "trailing_text"]


@pytest.mark.parametrize("pack", ["customer_service", "office"])
@pytest.mark.parametrize("form", ["json", "tagged"])
def test_seeds_come_back_as_they_were(pack: str, form: str) -> None:
    for seed in Pack.load(pack).seeds:
        parsed = parse_reply(written(seed.messages, form))
        assert parsed == ParsedReply(seed.messages, [], [])


# Any conversation at all: what is written in either form is read back.


def written(messages: list[Message], form: str) -> str:
    if form == "json":
        rows: list[dict[str, Any]] = []
        for message in messages:
            row: dict[str, Any] = {"role": message.role, "content": message.content}
            if message.reasoning:
                row["reasoning"] = message.reasoning
            if message.calls:
                row["calls"] = [{"name": call.name, "arguments": call.arguments} for call in message.calls]
            rows.append(row)
        return orjson.dumps({"messages": rows}).decode()
    blocks = []
    for message in messages:
        lines = [f"<think>{message.reasoning}</think>"] if message.reasoning else []
        lines += [message.text] if message.text else []
        for call in message.calls:
            body = orjson.dumps({"name": call.name, "arguments": call.arguments}).decode()
            lines.append(f"<tool_call>{body}</tool_call>")
        blocks.append("\n".join([f"<{message.role}>", *lines, f"</{message.role}>"]))
    return "\n".join(blocks)


LINES = st.sampled_from(
    ["A: yes", "User: hi", "assistant: no", "### Assistant", "**HUMAN:** x", "Observation:", "", "  indented", "\ttab",
     'say "x"', "it's O'Brien", "1 < 2 > 0", "{", "}", "[1]", "```", "C:\\new\\dir", "é “q” 🎉", "\\u00e9", "---", "x"]
)  # fmt: skip
WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="<>"), max_size=12)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Lines of any kind; no blank line at either end, because tags stand on lines of their own."""
    return "\n".join(["x", *draw(st.lists(LINES | WORDS, max_size=5)), "y"])


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts(), lambda v: st.lists(v, max_size=3), max_leaves=4
)
OBJECTS = st.dictionaries(st.text("abc_", min_size=1, max_size=5), VALUES, max_size=3)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message(role="user", content=draw(texts())))
        for _ in range(draw(st.integers(0, 2))):
            reasoning = draw(st.none() | texts())
            calls = [
                ToolCall(id="", name=draw(st.sampled_from(["f", "get_it"])), arguments=draw(OBJECTS))
                for _ in range(draw(st.integers(1, 3)))
            ]
            messages.append(
                Message(role="assistant", content=draw(st.none() | texts()), reasoning=reasoning, calls=calls)
            )
            for call in calls:
                result = orjson.dumps({"r": draw(OBJECTS)}).decode() if draw(st.booleans()) else draw(texts())
                messages.append(Message(role="tool", name=call.name, content=result))
        messages.append(Message(role="assistant", content=draw(texts())))
    number = 0
    for message in messages:
        for call in message.calls:
            number += 1
            call.id = f"call_{number}"
    results = (m for m in messages if m.role == "tool")
    for message, call in zip(results, [c for m in messages for c in m.calls], strict=True):
        message.call_id = call.id
    return messages


@pytest.mark.parametrize("form", ["json", "tagged"])
@given(messages=conversations())
def test_what_is_written_is_read_back(form: str, messages: list[Message]) -> None:
    parsed = parse_reply(written(messages, form))
    assert parsed.issues == []
    assert parsed.messages == messages


@given(st.text())
def test_any_text_at_all_is_read_or_refused(text: str) -> None:
    parsed = parse_reply(text)
    assert parsed.issues or parsed.messages


@given(
    st.lists(st.sampled_from([*TAGGED.split("\n"), "x", '{"a":', "```", "User: x", "**Assistant:** y"]), max_size=12)
)
def test_any_mixture_of_lines_is_read_or_refused(lines: list[str]) -> None:
    parsed = parse_reply("\n".join(lines))
    assert parsed.issues or parsed.messages
