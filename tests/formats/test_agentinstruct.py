"""AgentInstruct rows: read into native calls, written back as they were, and nothing written that they cannot say."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from simia import formats
from simia.errors import Code
from simia.formats.agentinstruct import FINISHED, RECORDED, STYLES
from simia.formats.dialect import MEMO, RowError
from simia.formats.llamafactory import UntrainableError
from simia.quality.check import Checks, check_trajectory
from simia.trajectory import Message, ToolCall, Trajectory
from tests.formats.strategies import TEXT, UNKNOWN
from tests.properties import examples

DIALECT = formats.get("agentinstruct")
ROWS = json.loads((Path(__file__).parent / "data" / "agentinstruct.json").read_text(encoding="utf-8"))
BY_ID = {row["id"]: row for row in ROWS}
slow = examples(150, suppress_health_check=[HealthCheck.too_slow])


def exact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def plain(t: Trajectory) -> Trajectory:
    """As amplification leaves it: no memory of a row, nothing but content."""
    messages = [Message(**m.model_dump(exclude={"extra", "train"})) for m in t.messages]
    return Trajectory(task_id="run/i000003", pack="x", system=t.system, tools=t.tools, messages=messages)


@pytest.mark.parametrize("row", ROWS, ids=list(BY_ID))
def test_rows_are_seeds_and_come_back_as_they_were(row: dict[str, Any]) -> None:
    before = exact(row)
    assert DIALECT.sniff(row)
    read = DIALECT.read(row)
    assert check_trajectory(read, Checks()) == []
    assert exact(DIALECT.write(read)) == before
    stored = Trajectory.from_row(json.loads(json.dumps(read.to_row())))
    assert exact(DIALECT.write(stored)) == before, "the memory of a row survives our own file format"
    assert exact(row) == before, "reading changed the row"


@pytest.mark.parametrize("row", ROWS, ids=list(BY_ID))
def test_amplified_trajectories_are_written_and_read_back_equal(row: dict[str, Any]) -> None:
    t = plain(DIALECT.read(row))
    written = DIALECT.write(t)
    assert set(written) == {"id", "conversations"}
    assert [turn["loss"] for turn in written["conversations"] if turn["from"] == "human"].count(None) > 0
    again = DIALECT.read(written)
    assert again.id == t.id
    assert again.task_id == t.task_id
    assert not any(MEMO in m.extra for m in again.messages), "our own form needs no memory"


def test_a_shell_row() -> None:
    t = DIALECT.read(BY_ID["os_3"])
    assert (t.system or "").endswith("Act: answer(the answer)"), "neither problem is in the system text"
    assert t.messages[0].text == "How many lines of /var/log/shop.log speak of a timeout?"
    assert [m.role for m in t.messages] == ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert t.messages[1].calls[0].arguments == {"script": "head -3 /var/log/shop.log"}
    assert t.messages[1].reasoning == "I look at the file first."
    assert t.messages[4].text == "17"
    assert (t.messages[5].content, t.messages[5].train) == ("17", True)
    finished = DIALECT.read(BY_ID["os_4"])
    assert (finished.messages[2].content, finished.messages[-1].content) == ("", FINISHED)


def test_a_shop_row() -> None:
    t = DIALECT.read(BY_ID["webshop_11"])
    assert t.system == BY_ID["webshop_11"]["conversations"][0]["value"]
    assert [c.name for _, _, c in t.calls()] == ["search", "click", "click"]
    assert t.messages[-1].content == "click[Buy Now]"
    row = DIALECT.write(plain(t))
    assert row["conversations"][1] == {"from": "gpt", "loss": False, "value": "Ok."}


def test_a_web_page_row() -> None:
    t = DIALECT.read(BY_ID["mind2web_5"])
    assert t.messages[1].calls[0].arguments == {"choice": "C", "value": "2 adults"}
    assert [m.content for m in t.messages[2:]] == [RECORDED, FINISHED]
    assert DIALECT.read(BY_ID["mind2web_7"]).messages[1].calls[0].name == "none_of_the_above"


def test_losses_are_kept_and_set() -> None:
    row = copy.deepcopy(BY_ID["os_4"])
    row["conversations"][1]["loss"] = False
    t = DIALECT.read(row)
    assert [m.train for m in t.messages if m.role == "assistant"] == [False, True, True]
    t.messages[3].train = False
    assert [turn["loss"] for turn in DIALECT.write(t)["conversations"]] == [None, False, None, False, None, True]
    assert DIALECT.write(plain(t))["conversations"][1]["loss"] is True


def test_edits_win_and_the_rest_stays() -> None:
    row = {**copy.deepcopy(BY_ID["os_3"]), "origin": 7}
    row["conversations"][5]["weight"] = 0.5
    t = DIALECT.read(row)
    t.system = "Other words."
    t.messages[1].calls[0].arguments = {"script": "true"}
    written = DIALECT.write(t)
    assert written["origin"] == 7
    first, changed = written["conversations"][0]["value"], written["conversations"][5]
    assert first == "Other words.\n\nNow, my problem is:\n\nHow many entries does /opt have?"
    assert (changed["weight"], "```bash\ntrue\n```" in changed["value"]) == (0.5, True)
    assert written["conversations"][6:] == row["conversations"][6:]


REFUSED = [
    ({"id": "os_1"}, Code.BAD_ROW, "conversations"),
    ({"id": "os_1", "conversations": []}, Code.BAD_ROW, "conversations"),
    ({"id": "kg_1", "conversations": [{"from": "human", "value": "x"}]}, Code.BAD_ROW, "os, webshop, mind2web"),
    ({"id": "os_1", "conversations": [{"from": "system", "value": "x"}]}, Code.UNKNOWN_ROLE, "system"),
    ({"id": "os_1", "conversations": [{"from": "gpt", "value": "x"}]}, Code.BAD_ROW, "task"),
    ({"id": "os_1", "conversations": [{"from": "human", "value": "x"}]}, Code.BAD_ROW, "agent"),
    ({"id": "os_1", "conversations": [{"from": "human", "value": None}]}, Code.BAD_ROW, "conversations[0]"),
    ({"id": "os_1", "conversations": [{"from": "human", "loss": "no", "value": "x"}]}, Code.BAD_ROW, "loss"),
    ({"id": "os_1", "conversations": [{"from": "human", "value": "x", MEMO: 1}, {"from": "gpt", "value": "y"}]}, Code.BAD_ROW, "reserved"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "code", "said"), REFUSED)
def test_bad_rows_are_refused_in_one_line(row: dict[str, Any], code: Code, said: str) -> None:
    with pytest.raises(RowError) as error:
        DIALECT.read(row)
    assert error.value.code is code
    assert said in error.value.detail
    assert "\n" not in error.value.detail


def broken(kind: str, **changes: Any) -> Trajectory:
    t = plain(DIALECT.read(next(row for row in ROWS if row["id"].startswith(kind))))
    for name, value in changes.items():
        setattr(t, name, value)
    return t


def test_what_a_row_cannot_say_is_not_written() -> None:
    two = broken("os")
    two.messages[1].calls.append(ToolCall(id="z", name="bash", arguments={"script": "ls"}))
    beside = broken("os")
    beside.messages[1].content = "I look."
    foreign = broken("os", tools=[*STYLES["os"].tools, *STYLES["webshop"].tools])
    edited = broken("os")
    edited.tools = [edited.tools[0].model_copy(update={"description": "another"})]
    fence = broken("os")
    fence.messages[1].reasoning = "I think.\n\nAct: finish\n\nAct: bash\n\n```bash\nls\n```"
    prose = broken("webshop")
    prose.messages[-1].content = "I bought the mugs."
    result = broken("mind2web")
    result.messages[2].content = "The list shows two adults."
    for t in (two, beside, foreign, edited, fence, prose, result, broken("os", tools=[])):
        with pytest.raises(UntrainableError) as error:
            DIALECT.write(t)
        assert error.value.issue.code is Code.UNEXPRESSIBLE


WORDS = st.one_of(
    TEXT, st.sampled_from(["a]", "```", "\n", "Act: finish", "\n\nAction:\nclick[x]", "'''\n", "Value: x"])
)
AGENT = st.one_of(
    st.builds("Think: {}\n\nAct: bash\n\n```bash\n{}\n```".format, WORDS, WORDS),
    st.builds("Thought:{}\nAct: answer({})".format, WORDS, WORDS),
    st.builds("Thought:\n{}\n\nAction:\n{}[{}]".format, WORDS, st.sampled_from(["search", "click"]), WORDS),
    st.builds("Thought: {}\nAction: click[{}]".format, WORDS, WORDS),
    st.builds("Thought: {}\nAnswer: {}.\nAction: TYPE\nValue: {}".format, WORDS, st.sampled_from("ABZ"), WORDS),
    st.sampled_from(["Ok.", "Act: finish", "Answer: A.", "Action: search[]", "Act: bash", ""]),
    WORDS,
)
HUMAN = st.one_of(
    WORDS,
    st.sampled_from(["The output of the OS is empty.", "The output of the OS:\n\n", "x\n\nNow, my problem is:\n\ny"]),
    st.builds("The output of the OS:\n{}".format, WORDS),
    st.builds("Now, I will start a new problem. My problem is:\n{}".format, WORDS),
    st.builds("{}\n\nNow, my problem is:\n\n{}".format, WORDS, WORDS),
    st.builds("{}\n\n'''\n{}".format, WORDS, WORDS),
    st.builds("WebShop [SEP] {}".format, WORDS),
)


@st.composite
def any_row(draw: st.DrawFn) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    for role in ["human", *draw(st.lists(st.sampled_from(["human", "gpt", "gpt", "human"]), min_size=1, max_size=6))]:
        turn: dict[str, Any] = {"from": role, "value": draw(AGENT if role == "gpt" else HUMAN)}
        if draw(st.booleans()):
            turn["loss"] = draw(st.sampled_from([None, True, False]))
        turns.append(turn | {k: v for k, v in draw(UNKNOWN).items() if k not in ("id", "loss")})
    return {"id": draw(st.sampled_from(["os_1", "webshop_2", "mind2web_3", "i000001"])), "conversations": turns}


MARKED = {"from": "human", "value": "x\n\nNow, my problem is:\n\ny"}


def shown_before(task: dict[str, Any], name: str = "os_1") -> dict[str, Any]:
    """A row in which a demonstration comes before the task."""
    opening = [{"from": "human", "value": "Do as told."}, {"from": "gpt", "value": "Ok."}]
    return {"id": name, "conversations": [*opening, task, {"from": "gpt", "value": "Act: finish"}]}


def test_a_task_after_a_demonstration_is_read_whole() -> None:
    """The mark of a task divides the first turn of a row; in a later turn, what stands before it belongs to the task."""
    read = DIALECT.read(shown_before(MARKED))
    assert (read.system, read.messages[0].content) == ("Do as told.", MARKED["value"])
    page = {"from": "human", "value": "words\n\n'''\n<html>", "loss": None}
    shown = shown_before(page, "mind2web_3")
    shown["conversations"][1]["loss"] = False
    assert DIALECT.read(shown).messages[0].content == page["value"]
    edited = DIALECT.read(shown_before(MARKED))
    edited.messages[0].content = "z"
    assert DIALECT.write(edited)["conversations"][2]["value"] == "Now, my problem is:\n\nz"
    edited.messages[0].content = "w\n\nNow, my problem is:\n\nz"
    with pytest.raises(UntrainableError, match="cannot express this turn"):
        DIALECT.write(edited)


@slow
@given(any_row())
@example(shown_before(MARKED))
@example({"id": "os_1", "conversations": [MARKED, {"from": "gpt", "value": ""}, MARKED, {"from": "gpt", "value": ""}]})
def test_any_row_that_is_read_comes_back_as_it_was(row: dict[str, Any]) -> None:
    before = exact(row)
    try:
        read = DIALECT.read(row)
    except RowError:
        return
    assert exact(DIALECT.write(read)) == before


def test_the_rows_of_that_test_are_read() -> None:
    counts = {"read": 0, "refused": 0}

    @slow
    @given(any_row())
    def count(row: dict[str, Any]) -> None:
        try:
            DIALECT.read(row)
            counts["read"] += 1
        except RowError:
            counts["refused"] += 1

    count()
    assert counts["read"] > counts["refused"]


SAID = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="`"), min_size=1, max_size=20)


@st.composite
def episode(draw: st.DrawFn) -> Trajectory:
    """What a simulated agent does in one of the environments."""
    name = draw(st.sampled_from(list(STYLES)))
    style = STYLES[name]
    page = "'''\n<html> </html>\n'''\n\nTask: x" if name == "mind2web" else ""
    messages = [Message(role="user", content=page + draw(SAID))]
    for n in range(draw(st.integers(1, 1 if name == "mind2web" else 4))):
        spec = draw(st.sampled_from(style.tools))
        arguments = {key: "B" if key == "choice" else draw(SAID) for key in spec.parameters["properties"]}
        call = ToolCall(id=f"c{n}", name=spec.name, arguments=arguments)
        thought = draw(st.one_of(st.none(), SAID))
        messages.append(Message(role="assistant", reasoning=thought, calls=[call]))
        messages.append(Message(role="tool", content=RECORDED if name == "mind2web" else draw(SAID), call_id=f"c{n}"))
    close = {"os": draw(SAID), "webshop": "click[Buy Now]", "mind2web": FINISHED}[name]
    thought = draw(st.one_of(st.none(), SAID)) if name != "mind2web" else None
    messages.append(Message(role="assistant", content=close, reasoning=thought))
    return Trajectory(system=draw(SAID), tools=list(style.tools), messages=messages)


@slow
@given(episode())
def test_any_episode_is_written_and_read_back_equal(t: Trajectory) -> None:
    t.system = re.sub(r"\W", "x", t.system or "")  # instructions; markers in them are refused, as the next test shows
    again = DIALECT.read(json.loads(json.dumps(DIALECT.write(t))))
    assert again.id == t.id


@slow
@given(episode(), st.data())
def test_hostile_words_are_written_faithfully_or_refused(t: Trajectory, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(t.messages) - 1))
    message = t.messages[at]
    if message.calls and data.draw(st.booleans()):
        message.reasoning = data.draw(AGENT)
    elif message.calls:
        message.calls[0].arguments = {key: data.draw(AGENT) for key in message.calls[0].arguments or {}}
    else:
        message.content = data.draw(st.one_of(AGENT, HUMAN))
    try:
        row = DIALECT.write(t)
    except UntrainableError:
        return
    again = DIALECT.read(row)
    mine, theirs = ([[m.role, m.content, m.reasoning or None] for m in x.messages] for x in (t, again))
    assert mine == theirs
    assert [c.arguments for _, _, c in again.calls()] == [c.arguments for _, _, c in t.calls()]
