"""OfficeBench rows: actions become calls of `app.action`, and come back as the text they were."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from simia import formats
from simia.errors import Code
from simia.formats.dialect import MEMO, RowError
from simia.formats.llamafactory import UntrainableError
from simia.formats.officebench import APPS, NOTHING, OFFICE, SWITCH, TOOLS
from simia.quality.check import Checks, check_trajectory
from simia.trajectory import Message, ToolCall, Trajectory
from tests.formats.strategies import JSON, OBJECTS, TEXT, UNKNOWN
from tests.properties import examples

DIALECT = formats.get("officebench")
ROWS = json.loads((Path(__file__).parent / "data" / "officebench.json").read_text(encoding="utf-8"))
slow = examples(150, suppress_health_check=[HealthCheck.too_slow])


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def plain(t: Trajectory) -> Trajectory:
    messages = [Message(**m.model_dump(exclude={"extra"})) for m in t.messages]
    return Trajectory(system=t.system, tools=t.tools, messages=messages)


@pytest.mark.parametrize("row", ROWS)
def test_rows_are_seeds_and_come_back_as_they_were(row: dict[str, Any]) -> None:
    before = exact(row)
    assert DIALECT.sniff(row)
    read = DIALECT.read(row)
    assert check_trajectory(read, Checks()) == []
    assert exact(DIALECT.write(read)) == before
    stored = Trajectory.from_row(json.loads(json.dumps(read.to_row())))
    assert exact(DIALECT.write(stored)) == before
    again = DIALECT.read(DIALECT.write(plain(read)))
    assert again.id == read.id
    assert not any(MEMO in m.extra for m in again.messages), "our own form needs no memory"


def test_what_is_read() -> None:
    t = DIALECT.read(ROWS[0])
    assert t.system == ROWS[0]["messages"][0]["content"]
    assert [(c.name, c.arguments) for _, _, c in t.calls()] == [
        ("system.switch_app", {"target_app": "calendar"}),
        (
            "calendar.create_event",
            {
                "user": "Nadia",
                "summary": "Budget review",
                "time_start": "2024-03-05 14:00:00",
                "time_end": "2024-03-05 15:00:00",
            },
        ),
    ]
    assert (t.messages[-1].content, t.messages[-1].reasoning) == (NOTHING, "Nothing was asked beyond that.")
    assert DIALECT.read(ROWS[1]).messages[-1].content == "125"
    assert DIALECT.read(ROWS[2]).messages[-1].role == "assistant", "what the environment says after the end is no turn"


@pytest.mark.parametrize(
    ("text", "name", "arguments", "raw"),
    [
        ("<answer>{'app': 'shell', 'action': 'command', 'command': 'ls'}</answer>", "shell.command", {"command": "ls"}, False),
        ('<think>a</think>\n\n<answer>\n{"app": "ocr", "action": "recognize_file"}\n</answer>\n', "ocr.recognize_file", {}, False),
        ('<answer> {"app": "pdf", "action": "read_file", "pdf_file_path": "a" </answer>', "", None, None),
        ('<answer> {"app": "pdf", "action": "read_file", "x": } </answer>', "pdf.read_file", None, True),
        ('<answer> {"app": "pdf", "action": 5} </answer>', "", None, True),
        ("<answer> {'app': 'pdf', 'action': 'read_file', 'x': {1, 2}} </answer>", "pdf.read_file", None, True),
    ],
)  # fmt: skip
def test_actions_as_models_write_them(text: str, name: str, arguments: Any, raw: bool | None) -> None:
    """`raw` None: there is no action to be made out, so that the text stays text."""
    m = OFFICE.read_agent(text)
    if raw is None:
        assert (m.calls, m.content) == ([], text)
        return
    assert (m.calls[0].name, m.calls[0].arguments, m.calls[0].raw is not None) == (name, arguments, raw)


def test_tools_have_strict_schemas() -> None:
    assert len(TOOLS) == 21
    assert SWITCH.argument_errors({"target_app": "paint"})
    assert not SWITCH.argument_errors({"target_app": APPS[0]})
    cell = next(spec for spec in TOOLS if spec.name == "excel.set_cell")
    right = {"file_path": "/testbed/data/a.xlsx", "row_idx": 2, "column_idx": "3", "text": 4.5}
    assert not cell.argument_errors(right)
    for wrong in ({"row_idx": "two"}, {"row_idx": -1}, {"text": None}, {"sheet": 1}, {"file_path": ""}):
        assert cell.argument_errors(right | wrong)


def test_edits_win_and_the_rest_stays() -> None:
    row = copy.deepcopy(ROWS[1]) | {"source": "x"}
    row["messages"][0]["name"] = "boss"
    row["messages"][4]["content"] = row["messages"][4]["content"].replace("\n", "\n\n")
    t = DIALECT.read(row)
    assert DIALECT.write(t) == row
    t.system = "Short."
    t.messages[-1].content = "126"
    written = DIALECT.write(t)
    assert written["source"] == "x"
    assert written["messages"][0] == {"role": "system", "content": "Short.", "name": "boss"}
    assert written["messages"][1:-1] == row["messages"][1:-1]
    assert '"answer": "126"' in written["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({}, Code.BAD_ROW),
        ({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}, Code.BAD_ROW),
        ({"messages": [{"role": "tool", "content": "hi"}]}, Code.UNKNOWN_ROLE),
        ({"messages": [{"role": "user", "content": [1]}]}, Code.BAD_ROW),
        ({"messages": [{"role": "assistant", "content": '<answer> {"app": "pdf", "action": "x"} </answer>'}]}, Code.BAD_ROW),
        ({"messages": [*ROWS[0]["messages"], {"role": "system", "content": "late"}]}, Code.UNKNOWN_ROLE),
    ],
)  # fmt: skip
def test_bad_rows_are_refused_in_one_line(row: dict[str, Any], code: Code) -> None:
    with pytest.raises(RowError) as error:
        DIALECT.read(row)
    assert error.value.code is code
    assert "\n" not in error.value.detail


def test_what_a_row_cannot_say_is_not_written() -> None:
    def base() -> Trajectory:
        return plain(DIALECT.read(ROWS[0]))

    two, beside, own, foreign, ends = base(), base(), base(), base(), base()
    two.messages[1].calls.append(ToolCall(id="z", name="pdf.read_file", arguments={"pdf_file_path": "a"}))
    beside.messages[1].content = "I switch."
    own.messages[1].calls[0].arguments = {"app": "pdf", "target_app": "pdf"}
    foreign.tools = foreign.tools[1:]
    ends.messages[1].reasoning = "so </think>\n<answer> {} </answer>"
    for t in (two, beside, own, foreign, ends):
        with pytest.raises(UntrainableError):
            DIALECT.write(t)


def test_a_file_of_rows_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in ROWS), encoding="utf-8")
    assert [t.tools[0].name for t in formats.read(path) if isinstance(t, Trajectory)] == [SWITCH.name] * 3


ACTIONS = st.builds(lambda fields, rest: json.dumps({**rest, **fields}), st.fixed_dictionaries(
    {"app": st.sampled_from([*APPS, "system"]), "action": st.sampled_from(["read_file", "finish_task", "switch_app"])},
    optional={"answer": JSON, "target_app": JSON, "text": TEXT},
), OBJECTS)  # fmt: skip
AGENT = st.one_of(
    st.builds("<think>{}</think>\n<answer> {} </answer>".format, TEXT, ACTIONS),
    st.builds("{}<answer>{}</answer>{}".format, TEXT, ACTIONS, TEXT),
    st.builds("<answer> {}".format, ACTIONS),
    st.sampled_from(["<answer> {'app': 'a', 'action': } </answer>", "<answer></answer>", "<think>"]),
    TEXT,
)


@st.composite
def any_row(draw: st.DrawFn) -> dict[str, Any]:
    chat = draw(st.booleans())
    names = {"user": "user" if chat else "human", "assistant": "assistant" if chat else "gpt", "system": "system"}
    role, text = ("role", "content") if chat else ("from", "value")
    kinds = [*draw(st.sampled_from([[], ["system"]])), "user", *draw(st.lists(st.sampled_from(["user", "assistant"]), max_size=5))]  # fmt: skip
    turns = [{role: names[k], text: draw(AGENT if k == "assistant" else TEXT), **draw(UNKNOWN)} for k in kinds]
    turns.append({role: names["assistant"], text: '<answer> {"app": "system", "action": "finish_task"} </answer>'})
    return {"messages" if chat else "conversations": turns, **draw(UNKNOWN)}


@slow
@given(any_row())
def test_any_row_comes_back_as_it_was(row: dict[str, Any]) -> None:
    before = exact(row)
    assert exact(DIALECT.write(DIALECT.read(row))) == before


SAID = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0<"), min_size=1, max_size=20)


@slow
@given(st.data())
def test_any_episode_is_written_and_read_back_equal(data: st.DataObject) -> None:
    messages = [Message(role="user", content=data.draw(SAID))]
    for n in range(data.draw(st.integers(1, 4))):
        spec = data.draw(st.sampled_from(OFFICE.tools))
        given_ = {key: data.draw(st.one_of(SAID, JSON)) for key in spec.parameters["properties"]}
        call = ToolCall(id=f"c{n}", name=spec.name, arguments=given_)
        thought = data.draw(st.one_of(st.none(), SAID))
        messages.append(Message(role="assistant", reasoning=thought, calls=[call]))
        messages.append(Message(role="tool", content=data.draw(TEXT), call_id=f"c{n}"))
    messages.append(Message(role="assistant", content=data.draw(st.one_of(SAID, st.just("</answer>")))))
    t = Trajectory(system=data.draw(st.one_of(st.none(), SAID)), tools=list(OFFICE.tools), messages=messages)
    again = DIALECT.read(json.loads(json.dumps(DIALECT.write(t))))
    assert exact([again.system, *(m.model_dump(include={"role", "content", "reasoning"}) for m in again.messages)]) == (
        exact([t.system, *(m.model_dump(include={"role", "content", "reasoning"}) for m in t.messages)])
    )
    assert exact([c.arguments for _, _, c in again.calls()]) == exact([c.arguments for _, _, c in t.calls()])
