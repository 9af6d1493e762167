"""What a dialect read it writes back as it was; what we write, every dialect reads back as the same content."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from simia import formats
from simia.formats.dialect import MEMO, Code, RowError
from simia.pack import Pack
from simia.trajectory import Message, ToolCall, Trajectory
from tests.formats.strategies import JSON, OBJECTS, ROWS, TEXT
from tests.properties import examples

FOREIGN = ["apigen", "openai", "hermes", "llamafactory-v1", "codegym"]
THEN = Path(__file__).parents[1] / "recordings/seeds/office"  # some of its turns hold reasoning
SEEDS = [seed for name in ("office", THEN, "customer_service") for seed in Pack.load(name).seeds]
slow = examples(150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def exact(value: Any) -> str:
    """JSON text to compare by: it tells 1 from 1.0 and from true, and not one order of fields from another."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_row_comes_back_as_it_was(name: str) -> None:
    dialect = formats.get(name)

    @slow
    @given(ROWS[name])
    def check(row: dict[str, Any]) -> None:
        before = exact(row)
        try:
            read = dialect.read(row)
        except RowError:
            return
        assert exact(dialect.write(read)) == before
        stored = Trajectory.from_row(json.loads(json.dumps(read.to_row())))
        assert exact(dialect.write(stored)) == before, "the memory of a row survives our own file format"

    check()


@pytest.mark.parametrize("name", FOREIGN)
def test_rows_made_for_these_tests_are_read(name: str) -> None:
    """Guards the test above: most generated rows must be accepted, or it would test nothing."""
    counts = {"read": 0, "refused": 0}

    @slow
    @given(ROWS[name])
    def count(row: dict[str, Any]) -> None:
        try:
            formats.get(name).read(row)
            counts["read"] += 1
        except RowError:
            counts["refused"] += 1

    count()
    assert counts["read"] > 3 * counts["refused"]


@pytest.mark.parametrize("name", list(formats.DIALECTS))
def test_hostile_rows_raise_nothing_but_row_errors(name: str) -> None:
    dialect = formats.get(name)
    keys = st.sampled_from(
        "conversations messages tools system from value role content tool_calls function version extra end usage issues "
        f"name arguments id calls provenance {MEMO}".split()
    )
    leaf = st.one_of(
        JSON,
        st.sampled_from(["human", "gpt", "assistant", "tool", "function_call", "<tool_call>", "<tools>[1]</tools>"]),
    )
    rows = st.recursive(
        leaf, lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(keys, v, max_size=4)), max_leaves=12
    )

    @slow
    @given(st.dictionaries(keys, rows, max_size=4))
    def check(row: dict[str, Any]) -> None:
        dialect.sniff(row)
        try:
            read = dialect.read(row)
        except RowError:
            return
        for other in formats.DIALECTS.values():
            other.write(read)

    check()


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: str(seed.task_id))
@pytest.mark.parametrize("name", list(formats.DIALECTS))
def test_our_seeds_keep_their_content(name: str, seed: Trajectory) -> None:
    dialect = formats.get(name)
    row = json.loads(json.dumps(dialect.write(seed)))
    read = dialect.read(row)
    assert read.id == seed.id
    assert dialect.sniff(row)
    assert dialect.write(read) == row
    assert not any(MEMO in message.extra for message in read.messages), "our own form needs no memory"
    paired = [(m.call_id, m.role) for m in read.messages if m.role == "tool"]
    assert all(call_id for call_id, _ in paired)
    assert {call_id for call_id, _ in paired} <= {call.id for _, _, call in read.calls()}
    for other in formats.DIALECTS.values():
        assert other.read(other.write(read)).id == seed.id


def test_our_seeds_exercise_what_is_hard() -> None:
    messages = [m for seed in SEEDS for m in seed.messages]
    assert any(m.reasoning for m in messages)
    assert any(len(m.calls) > 1 for m in messages)
    assert any(m.calls and m.content for m in messages) or any(m.calls and m.reasoning for m in messages)


# Without "<": in dialects of tagged text, a literal tag in what someone says cannot be told from a real one.
PLAIN = TEXT.map(lambda text: text.replace("<", "~"))
SENTENCES = PLAIN.map(lambda text: f"so {text}")


@st.composite
def trajectory(draw: st.DrawFn) -> Trajectory:
    """Anything that an agent can do in order: user, then rounds of text, reasoning and parallel calls."""
    messages = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message(role="user", content=draw(SENTENCES)))
        for _ in range(draw(st.integers(0, 2))):
            calls = [
                ToolCall(
                    id=f"x{n}", name="find_book", arguments=draw(OBJECTS), extra=draw(st.sampled_from([{}, {"k": 1}]))
                )
                for n in range(draw(st.integers(1, 3)))
            ]
            said, thought = draw(st.one_of(st.none(), SENTENCES, st.just(""))), draw(st.one_of(st.none(), PLAIN))
            messages.append(Message(role="assistant", content=said, reasoning=thought, calls=calls))
            messages += [Message(role="tool", content=draw(PLAIN), call_id=call.id) for call in calls]
        messages.append(Message(role="assistant", content=draw(SENTENCES), reasoning=draw(st.one_of(st.none(), PLAIN))))
    system = draw(st.one_of(st.none(), PLAIN))
    return Trajectory(system=system, tools=draw(st.sampled_from([[], SEEDS[0].tools])), messages=messages)


@pytest.mark.parametrize("name", FOREIGN)
def test_any_orderly_trajectory_keeps_its_content(name: str) -> None:
    dialect = formats.get(name)

    @slow
    @given(trajectory())
    def check(t: Trajectory) -> None:
        read = dialect.read(json.loads(json.dumps(dialect.write(t))))
        assert exact(content(read)) == exact(content(t))

    check()


def content(t: Trajectory) -> list[Any]:
    """What `Trajectory.id` hashes, without the hash: that one cannot take integers of more than 64 bits."""
    said = [[m.role, m.content, m.reasoning, [[c.name, c.arguments, c.raw] for c in m.calls]] for m in t.messages]
    return [t.system, [tool.model_dump() for tool in t.tools], said]


def test_tags_in_arguments_and_tools_do_not_break_the_text() -> None:
    hostile = "</tool_call> <tool_call> </tools>"
    tool = SEEDS[0].tools[0].model_copy(update={"description": hostile})
    call = ToolCall(id="call_1", name=tool.name, arguments={"note": hostile})
    messages = [Message(role="user", content="go"), Message(role="assistant", calls=[call])]
    t = Trajectory(system="Be kind.", tools=[tool], messages=messages)
    assert formats.get("hermes").read(formats.get("hermes").write(t)).id == t.id


EDITS = {
    "apigen": {
        "conversations": [
            {"from": "human", "value": "hi", "loss": None},
            {"from": "gpt", "value": "I look."},
            {"from": "function_call", "value": '{"name":"f","arguments":{"a":1}}', "loss": True},
            {"from": "observation", "value": '{"b": 1}\n</tool_response>\n<tool_response>\nsecond'},
        ],
        "tools": '[ {"type": "function", "function": {"name": "f", "strict": true}} ]',
        "system": None,
    },
    "openai": {
        "messages": [
            {"role": "developer", "content": "old", "name": "boss"},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "loss": True, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
            {"role": "tool", "content": "ok"},
        ],
        "tools": '[{"name":"f"}]',
    },
    "codegym": {
        "messages": [
            {
                "role": "system",
                "content": 'Function:\ndef f():\n    """\n    Look.\n    Args:\n        None\n    """',
                "weight": 0,
            },
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": '<|FunctionCallBegin|>{"name": "f", "arguments": {"a":1}}<|FunctionCallEnd|>',
                "loss": True,
            },
            {"role": "tool", "content": "ok"},
        ],
    },
    "hermes": {
        "messages": [
            {"role": "system", "content": 'Use <tools>[{"name": "f"}]</tools> well', "weight": 0},
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": '<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>', "loss": True},
            {"role": "tool", "content": "<tool_response>\nok\n</tool_response>\n"},
        ],
    },
    "llamafactory-v1": {
        "messages": [
            {"role": "system", "content": [{"type": "text", "value": "old"}], "loss_weight": 0.0},
            {"role": "user", "content": [{"type": "text", "value": "h"}, {"type": "text", "value": "i"}]},
            {
                "role": "assistant",
                "content": [{"type": "tool_call", "value": '{"name":"f","arguments":{"a":1}}'}],
                "loss": True,
            },
            {
                "role": "tool",
                "content": [{"type": "text", "value": '[{"name": "f", "content": 1}, {"name": "f", "content": "b"}]'}],
            },
        ],
        "tools": '[{"type": "function", "function": {"name":"f"}}]',
    },
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("value", [2, True, 1.0])
def test_an_edited_argument_is_written_and_unknown_fields_stay(name: str, value: Any) -> None:
    """1 becomes True or 1.0: equal in Python, other values in JSON."""
    dialect = formats.get(name)
    read = dialect.read(EDITS[name])
    assert dialect.write(read) == EDITS[name]
    edited = read.model_copy(deep=True)
    message = next(m for m in edited.messages if m.calls)
    message.calls[0].arguments = {"a": value}
    again = dialect.read(json.loads(json.dumps(dialect.write(edited))))
    assert exact(content(again)) == exact(content(edited))
    assert next(m for m in again.messages if m.calls).extra["loss"] is True
    untouched = EDITS[name]["messages" if "messages" in EDITS[name] else "conversations"][-1]
    assert dialect.write(edited)["messages" if "messages" in EDITS[name] else "conversations"][-1] == untouched


@pytest.mark.parametrize("name", FOREIGN)
def test_every_other_edit_is_written(name: str) -> None:
    dialect = formats.get(name)
    read = dialect.read(EDITS[name])
    edited = read.model_copy(deep=True)
    edited.system = "new rules"
    edited.tools[0].description = "finds"
    edited.messages[0].content = "hello"
    edited.messages[0].extra["added"] = 1
    edited.messages[-1].content = "changed"
    edited.messages.append(Message(role="assistant", content="done"))
    edited.extra["tag"] = "x"
    row = dialect.write(edited)
    again = dialect.read(row)
    assert again.id == edited.id
    assert row["tag"] == "x"
    assert again.messages[0].extra["added"] == 1
    assert dialect.write(read) == EDITS[name], "the edit touched the original"


def test_edits_keep_the_habits_of_the_file() -> None:
    """Tools stay flat or nested, text or list, and the system turn keeps its role and unknown fields."""
    read = formats.get("openai").read(EDITS["openai"])
    read.system, read.tools[0].description = "new", "finds"
    row = formats.get("openai").write(read)
    assert row["messages"][0] == {"role": "developer", "content": "new", "name": "boss"}
    assert json.loads(row["tools"])[0]["name"] == "f"
    read = formats.get("apigen").read(EDITS["apigen"])
    read.tools[0].description = "finds"
    assert json.loads(formats.get("apigen").write(read)["tools"])[0]["function"]["strict"] is True


def test_reserved_name_is_refused() -> None:
    for row in ({"conversations": [], MEMO: 1}, {"conversations": [{"from": "human", "value": "a", MEMO: {}}]}):
        with pytest.raises(RowError) as error:
            formats.get("apigen").read(row)
        assert error.value.code is Code.BAD_ROW


def test_forged_memory_is_ignored() -> None:
    """A row of ours may come from someone else, with anything under the reserved name."""
    for forged in ({"turns": 5, "span": 1}, {"turns": [{"from": "x"}], "span": 1}, {"turns": [], "span": 0}, 7):
        for head in ({"head": {"turns": [1], "fields": {}}}, {"head": 3}, {"habit": {"turn": 3}}, {"container": []}):
            message = Message(role="user", content="hi", extra={MEMO: dict.fromkeys(FOREIGN, forged)})
            t = Trajectory(messages=[message], extra={MEMO: dict.fromkeys(FOREIGN, head)})
            for name in FOREIGN:
                assert formats.get(name).read(formats.get(name).write(t)).id == t.id


@pytest.mark.parametrize("name", ["apigen", "hermes", "llamafactory-v1", "codegym"])
def test_forms_without_call_ids_write_results_in_the_order_of_the_calls(name: str) -> None:
    calls = [ToolCall(id=id_, name="find_book", arguments={}) for id_ in ("a", "b")]
    results = [Message(role="tool", content=text, call_id=id_) for text, id_ in (("of b", "b"), ("of a", "a"))]
    start = [Message(role="user", content="hi"), Message(role="assistant", calls=calls)]
    dialect = formats.get(name)
    read = dialect.read(dialect.write(Trajectory(messages=[*start, *results])))
    assert [m.text for m in read.messages if m.role == "tool"] == ["of a", "of b"]
    results[0].call_id = "of another call"
    read = dialect.read(dialect.write(Trajectory(messages=[*start, *results])))
    assert [m.text for m in read.messages if m.role == "tool"] == ["of b", "of a"], "it cannot be told"
