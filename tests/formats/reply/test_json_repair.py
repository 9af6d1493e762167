"""Repair of model-written JSON: each slip with the value that its author meant, and what must be refused instead."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.formats.reply.reply_json import (
    ReadCall,
    RepairError,
    extract_letters,
    load_json,
    load_json_values,
    read_arguments,
    read_call_text,
)

MENDED = [
    ("strict", '{"a": 1}', {"a": 1}, []),
    ("fence", '```json\n{"a": 1}\n```', {"a": 1}, ["code_fence"]),
    ("fence never closed", '```\n{"a": 1}', {"a": 1}, ["code_fence"]),
    ("trailing text", '{"a": 1}\nHope this helps!', {"a": 1}, ["trailing_text"]),
    ("leading text", 'Here it is:\n{"a": 1}', {"a": 1}, ["leading_text"]),
    ("trailing comma in an object", '{"a": 1, "b": 2,}', {"a": 1, "b": 2}, ["trailing_comma"]),
    ("trailing comma in a list", '{"a": [1, 2, ]}', {"a": [1, 2]}, ["trailing_comma"]),
    ("missing brace at the end", '{"a": {"b": 1}', {"a": {"b": 1}}, ["missing_bracket"]),
    ("two closers missing", '{"a": [{"b": "x"', {"a": [{"b": "x"}]}, ["missing_bracket"]),
    ("brace missing before a bracket", '{"a": [{"b": {"c": 1}], "d": 2}', {"a": [{"b": {"c": 1}}], "d": 2}, None),
    ("brace missing between objects", '[{"a": {"x": 1}, {"a": {"x": 2}}]', [{"a": {"x": 1}}, {"a": {"x": 2}}], None),
    ("bracket too many", '{"a": 1}}', {"a": 1}, ["extra_bracket"]),
    ("raw newline", '{"a": "one\ntwo"}', {"a": "one\ntwo"}, ["raw_control"]),
    ("raw tab", '{"a": "one\ttwo"}', {"a": "one\ttwo"}, ["raw_control"]),
    ("single quotes", "{'a': 'x', 'b': True, 'c': None}", {"a": "x", "b": True, "c": None}, None),
    ("apostrophe in single quotes", "{'name': 'Fiona O\\'Brien'}", {"name": "Fiona O'Brien"}, None),
    ("python repr of an apostrophe", "{'name': \"O'Brien\", 'ok': False}", {"name": "O'Brien", "ok": False}, None),
    ("bare apostrophe in single quotes", "{'name': 'O'Brien', 'n': 1}", {"name": "O'Brien", "n": 1}, None),
    ("python literals in JSON", '{"a": True, "b": None, "c": False}', {"a": True, "b": None, "c": False}, None),
    ("unescaped quotes", '{"a": "he said "yes" to it"}', {"a": 'he said "yes" to it'}, ["unescaped_quote"]),
    ("unescaped quotes at the end", '{"a": "the "rust one"", "b": 1}', {"a": 'the "rust one"', "b": 1}, None),
    ("unescaped quotes, comma after", '{"a": "say "hi", then go", "b": 1}', {"a": 'say "hi", then go', "b": 1}, None),
    ("JSON in quotes, not escaped", '{"a": "{"error": "none", "n": 2}"}', {"a": '{"error": "none", "n": 2}'}, None),
    ("escaped apostrophe", r'{"a": "O\'Brien"}', {"a": "O'Brien"}, ["bad_escape"]),
    ("windows path", r'{"a": "C:\Users\Documents"}', {"a": r"C:\Users\Documents"}, ["bad_escape"]),
    ("unquoted keys", "{a: 1, b: [2]}", {"a": 1, "b": [2]}, ["json_repair"]),
    ("missing comma", '{"a": 1 "b": 2}', {"a": 1, "b": 2}, ["json_repair"]),
    ("one quote for inches", '{"a": "5" tall", "b": "x"}', {"a": '5" tall', "b": "x"}, ["json_repair"]),
    ("bare value", '{"a": ORD-20417, "b": 1}', {"a": "ORD-20417", "b": 1}, ["json_repair"]),
    ("byte order mark", '\ufeff{"a": 1,}', {"a": 1}, ["trailing_comma"]),
    ("colons, commas in text", '{"a": "x: y, {z}, [w]",}', {"a": "x: y, {z}, [w]"}, ["trailing_comma"]),
    ("numbers", '{"a": -1.5e3, "b": 0, "c": 1.10,}', {"a": -1500.0, "b": 0, "c": 1.1}, ["trailing_comma"]),
    ("empty containers", '{"a": {}, "b": [],}', {"a": {}, "b": []}, ["trailing_comma"]),
]
# What must survive every repair untouched, each inside a text that needs one (the trailing comma).
SURVIVORS = [
    "O'Brien",
    "“quotes” and ‘more’",
    "emoji 🎉👍🏽",
    "é\u00e9 ü ß",
    'an "escaped" quote',
    "C:\\new\\table",
    "line\nbreak\ttab",
    "https://example.com/a?b=c&d",
    "日本語",
    "a // b /* c */",
    "ends with a backslash\\",
    "{curly} [square], and: colons",
    "NaN Infinity None",
]
REFUSED = [
    ("empty", ""),
    ("prose", "I cannot do that."),
    ("NaN", '{"a": NaN}'),
    ("Infinity", '{"a": -Infinity}'),
    ("overflow", '{"a": 1e999}'),
    ("too large for 64 bits", '{"a": 123456789012345678901234,}'),
    ("too large for 64 bits and cut off", '{"a": {"b": 123456789012345678901234}'),
    ("cut inside a string", '{"a": "the parcel was'),
    ("cut after a comma", '{"a": 1,'),
    ("cut after a key", '{"a": 1, "b"'),
    ("cut after a colon", '{"a":'),
    ("two values", '{"a": 1}\n{"b": 2}'),
    ("closed too early", '{"a": 1}, "b": 2}'),
    ("value lost in the trailing text", '{"a": 1} and also {"b": 2}'),
    ("structure swallowed", '{"a": "b, "c": "d"}'),
    ("ellipsis", '["a", ...]'),
    ("comment with content", '{"a": 1 /* or 2 */, "b": 3,}'),
    ("half a surrogate pair", r'{"a": "\ud83d"}'),
    ("path with escapes that are letters", r'{"a": "C:\Users\new"}'),
    ("key twice", '{"a": 1, "a": 2,}'),
    ("too deep", "[" * 100 + "]" * 99 + ",]"),
    ("missing value between", '{"a": , "b": 1}'),
    ("undefined", '{"a": undefined}'),
]


@pytest.mark.parametrize(("text", "value", "repairs"), [c[1:] for c in MENDED], ids=[c[0] for c in MENDED])
def test_a_slip_is_mended_as_it_was_meant(text: str, value: object, repairs: list[str] | None) -> None:
    read, named = load_json(text)
    assert read == value
    if repairs is not None:
        assert named == repairs
    else:
        assert named


@pytest.mark.parametrize("text", SURVIVORS)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_text_survives_a_repair(text: str, ascii_only: bool) -> None:
    written = json.dumps({"key": text, "list": [text]}, ensure_ascii=ascii_only)
    broken = written[:-1] + ",}"
    assert load_json(broken) == ({"key": text, "list": [text]}, ["trailing_comma"])


@pytest.mark.parametrize("text", [c[1] for c in REFUSED], ids=[c[0] for c in REFUSED])
def test_what_has_two_readings_or_none_is_refused(text: str) -> None:
    with pytest.raises(RepairError):
        load_json(text)


def test_exact_leaves_nothing_out() -> None:
    assert load_json('{"a": 1,}', exact=True)[0] == {"a": 1}
    for text in ('{"a": 1} done', 'see {"a": 1}', "[INFO] started"):
        with pytest.raises(RepairError):
            load_json(text, exact=True)


def test_values_reads_several_in_a_row() -> None:
    assert load_json_values('{"a": 1}\n{"b": 2}')[0] == [{"a": 1}, {"b": 2}]
    assert load_json_values('{"a": 1}, {"b": 2}')[0] == [{"a": 1}, {"b": 2}]


ARGUMENTS = [
    ("object", {"a": 1}, {"a": 1}),
    ("text", '{"a": 1}', {"a": 1}),
    ("text of text", '"{\\"a\\": \\"O\'Brien\\"}"', {"a": "O'Brien"}),
    ("nothing", "", {}),
    ("null", None, {}),
    ("needs repair", "{'a': 'x',}", {"a": "x"}),
]


@pytest.mark.parametrize(("given", "expected"), [c[1:] for c in ARGUMENTS], ids=[c[0] for c in ARGUMENTS])
def test_arguments(given: object, expected: dict[str, object]) -> None:
    read, raw, _ = read_arguments(given)
    assert (read, raw) == (expected, None)


@pytest.mark.parametrize("given", ["not json", "[1, 2]", [1, 2], 5, '{"a": "cut', {"a": 1.5e30}])
def test_arguments_that_are_none_stay_raw(given: object) -> None:
    read, raw, _ = read_arguments(given)
    assert read is None
    assert raw


CALLS = [
    ("one", '{"name": "f", "arguments": {"a": 1}}', [("f", {"a": 1})]),
    ("list", '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"b": 2}}]', [("f", {}), ("g", {"b": 2})]),
    ("in a row", '{"name": "f", "arguments": {}}{"name": "g", "arguments": {}}', [("f", {}), ("g", {})]),
    ("lines", '{"name": "f", "arguments": {}}\n{"name": "g", "arguments": {}}', [("f", {}), ("g", {})]),
    ("arguments as text", '{"name": "f", "arguments": "{\\"a\\": 1}"}', [("f", {"a": 1})]),
    ("nested", '{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}', [("f", {})]),
    ("parameters", '{"name": "f", "parameters": {"a": 1}}', [("f", {"a": 1})]),
    ("tool and args", '{"tool": "f", "args": {"a": 1}}', [("f", {"a": 1})]),
    ("no arguments", '{"name": "f"}', [("f", {})]),
    ("in tags", '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>', [("f", {})]),
    (
        "tags in a row",
        '<tool_call>{"name": "f"}</tool_call>\n<tool_call>{"name": "g"}</tool_call>',
        [("f", {}), ("g", {})],
    ),
    ("named by its tag", '<tool_call name="f">{"a": 1}</tool_call>', [("f", {"a": 1})]),
    ("function tag", '<tool_call><function=f>{"a": 1}</function></tool_call>', [("f", {"a": 1})]),
    ("brace missing", '{"name": "f", "arguments": {"a": 1}', [("f", {"a": 1})]),
    ("in a fence", '```json\n{"name": "f", "arguments": {"a": "O\'Brien"}}\n```', [("f", {"a": "O'Brien"})]),
    ("broken arguments", '{"name": "f", "arguments": {"a": "cut', [("f", None)]),
    ("arguments beside the name", '{"name": "f", "order_id": "X"}', [("f", None)]),
]


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CALLS], ids=[c[0] for c in CALLS])
def test_calls(text: str, expected: list[tuple[str, object]]) -> None:
    read, _ = read_call_text(text)
    assert [(call.name, call.arguments) for call in read] == expected
    assert all((call.raw is None) == (call.arguments is not None) for call in read)


def test_a_call_keeps_the_id_that_the_model_gave_it() -> None:
    assert read_call_text('{"id": "c9", "name": "f", "arguments": {}}')[0] == [ReadCall("f", {}, None, "c9")]


@pytest.mark.parametrize("text", ["[]", '{"arguments": {}}', "5", '<tool_call>{"name": "f"}</tool_call> and more'])
def test_calls_that_are_none(text: str) -> None:
    with pytest.raises(RepairError):
        read_call_text(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=8), JSON, min_size=1, max_size=4))
def test_the_tolerant_reader_agrees_with_the_strict_one(value: dict[str, object]) -> None:
    """Broken by a trailing comma only, any JSON object reads as itself."""
    assert load_json(json.dumps(value)[:-1] + ",}") == (value, ["trailing_comma"])


@given(st.dictionaries(st.text("ab", max_size=3), JSON, min_size=1, max_size=3), st.data())
def test_a_cut_text_is_never_read_as_something_else(value: dict[str, object], data: st.DataObject) -> None:
    """Whatever is cut off a reply: what is read (if anything) holds every letter that was left, and no other."""
    written = json.dumps(value, ensure_ascii=False)
    cut = written[: data.draw(st.integers(1, len(written)))]
    try:
        read, _ = load_json(cut)
    except RepairError:
        return
    assert extract_letters(json.dumps(read, ensure_ascii=False)) == extract_letters(cut)
