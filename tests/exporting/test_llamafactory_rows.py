"""One trajectory to LLaMA-Factory's rows: the forms, and each thing that is refused because the trainer would spoil it.

That the trainer really does so, and reads what is written here as meant, is proved in tests/trainers with the real one.
"""

import json
from pathlib import Path
from typing import Any

import jinja2
import pytest

from simia.errors import Code
from simia.exporting.export_records import ExportRow, Template
from simia.exporting.llamafactory_rows import LLaMAFactoryWriter
from simia.formats.apigen import ApigenDialect
from simia.formats.llamafactory import UntrainableError, convert_conversation, list_segment_ends, write_row
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

TOOL = ToolSpec(name="f", description="d")


def call(arguments: dict[str, Any] | None, n: int = 1, raw: str | None = None) -> ToolCall:
    return ToolCall(id=f"c{n}", name="f", arguments=arguments, raw=raw)


def user(text: str = "u") -> Message:
    return Message(role="user", content=text)


def agent(text: str | None = None, *calls: ToolCall, **more: Any) -> Message:
    return Message(role="assistant", content=text, calls=list(calls), **more)


def tool(text: str = "r", n: int | None = 1) -> Message:
    return Message(role="tool", content=text, call_id=None if n is None else f"c{n}")


def talk(*messages: Message, **fields: Any) -> Trajectory:
    return Trajectory(**{"system": "S", "tools": [TOOL], "messages": list(messages), **fields})


def values(t: Trajectory, **options: Any) -> list[tuple[str, str]]:
    return [(turn["from"], turn["value"]) for turn in write_row(t, **options)["conversations"]]


def test_roles_and_head() -> None:
    t = talk(user("a"), agent(None, call({"x": 1})), tool("b"), agent("c"))
    row = write_row(t)
    assert [turn["from"] for turn in row["conversations"]] == ["human", "function_call", "observation", "gpt"]
    assert row["system"] == "S"
    assert json.loads(row["tools"]) == [TOOL.flat()]
    assert (row["id"], row["turn"]) == (t.id, 3)
    assert write_row(talk(user(), agent("b"), tools=[]))["tools"] == ""


def test_results_of_parallel_calls_are_joined_as_the_template_needs() -> None:
    t = talk(user(), agent(None, call({"x": 1}, 1), call({}, 2)), tool("one", 1), tool("two", 2), agent("b"))

    def export_row(template: Template) -> dict[str, Any]:
        (row,) = LLaMAFactoryWriter("whole", None, template, 9000).rows(t)
        assert isinstance(row, ExportRow)
        return dict(json.loads(row.text))

    for template in ("qwen", "qwen3", "qwen3_nothink"):
        found = export_row(template)["conversations"][2]["value"]
        assert found == "one\n</tool_response>\n<tool_response>\ntwo"
    row = export_row("llama3")
    # LLaMA-Factory writes <|start_header_id|>ipython<|end_header_id|>\n\n before a turn of results, and <|eot_id|> after it.
    assert row["conversations"][2]["value"] == "one<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\ntwo"
    assert [m.text for m in ApigenDialect().read(row).messages if m.role == "tool"] == ["one", "two"]


def test_the_chat_template_for_llama3_writes_what_the_trainer_writes() -> None:
    """LLaMA-Factory 0.9.5 frames a row's turns so; Llama 3.1's own template quotes results, drops words next to a call, and trims."""
    t = talk(
        user(" Where is 注文? "), agent("I look.\n", call({"x": "Ü <b>"}, 1), call({}, 2)), tool('{"a": 1}', 1), tool("two", 2),
        agent("Done.", call({}, 3)), tool("[]", 3), agent(" b "),
    )  # fmt: skip
    (row,) = LLaMAFactoryWriter("whole", None, "llama3", 9000).rows(t)
    assert isinstance(row, ExportRow)
    written = "<s>"
    for turn in json.loads(row.text)["conversations"]:
        text = turn["value"]
        if turn["from"] in ("human", "observation"):
            role = {"human": "user", "observation": "ipython"}[turn["from"]]
            written += f"<|start_header_id|>{role}<|end_header_id|>\n\n{text}<|eot_id|>"
        else:
            words = (
                text.replace("<tool_call>", "").replace("</tool_call>", "").replace('"arguments": ', '"parameters": ')
            )
            words = words.replace("\\u003c", "<")  # escaped in rows; the trainer parses and writes calls again
            written += f"<|start_header_id|>assistant<|end_header_id|>\n\n{words}<|eot_id|>"
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)  # as transformers does
    template.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    source = (Path(__file__).parents[2] / "configs/llamafactory/llama3.jinja").read_text(encoding="utf-8")
    messages = [
        {"role": m.role, "content": m.text, "tool_calls": [{"function": c.model_dump()} for c in m.calls]}
        for m in t.messages
    ]
    assert template.from_string(source).render(messages=messages, bos_token="<s>") == written


def test_calls_alone_beside_text_and_in_parallel() -> None:
    one, two = '{"name": "f", "arguments": {"x": 1}}', '{"name": "f", "arguments": {}}'
    parallel = [call({"x": 1}, 1), call({}, 2)]
    assert values(talk(user(), agent(None, call({"x": 1}))))[1] == ("function_call", one)
    assert values(talk(user(), agent("", call({"x": 1}))))[1] == ("function_call", one)
    assert values(talk(user(), agent("t", call({}))))[1] == ("function_call", f"t\n<tool_call>{two}</tool_call>")
    assert values(talk(user(), agent(None, *parallel)))[1] == ("function_call", f"[{one}, {two}]")
    assert values(talk(user(), agent("t", *parallel)))[1] == (
        "function_call",
        f"t\n<tool_call>[{one}, {two}]</tool_call>",
    )


def test_thinking_stands_before_words_and_calls() -> None:
    t = talk(user(), agent("t", call({}), reasoning="why"), tool(), agent("done", reasoning="so"))
    assert values(t, reasoning=True)[1][1].startswith("<think>\nwhy\n</think>\n\nt\n<tool_call>{")
    assert values(t, reasoning=True)[3] == ("gpt", "<think>\nso\n</think>\n\ndone")
    assert "<think>" not in str(values(t))
    blank = talk(user(), agent("t", reasoning=" \n"))
    assert values(blank, reasoning=True)[1] == ("gpt", "t")


def test_markers_in_arguments_are_escaped_and_come_back() -> None:
    hostile = {"x": "<tool_call> <think>\n \\< \\u003c", "<k>": ["<b>"]}
    value = values(talk(user(), agent("t", call(hostile))))[1][1]
    assert value.count("<") == 2  # the frame's own
    assert json.loads(value.removeprefix("t\n<tool_call>").removesuffix("</tool_call>"))["arguments"] == hostile


def test_results_follow_the_order_of_the_calls() -> None:
    calls = [call({}, 1), call({}, 2)]
    joint = "\n</tool_response>\n<tool_response>\n"
    assert (
        values(talk(user(), agent(None, *calls), tool("two", 2), tool("one", 1), agent("x")))[2][1] == f"one{joint}two"
    )
    unnamed = talk(user(), agent(None, *calls), tool("one", None), tool("two", None), agent("x"))
    assert values(unnamed)[2][1] == f"one{joint}two"


def test_what_the_agent_never_saw_is_left_out() -> None:
    hidden = Message(role="tool", content="the user's own tool", visible_to=["user"])
    assert values(talk(user("a"), hidden, agent("b"))) == [("human", "a"), ("gpt", "b")]


def test_a_turn_that_must_not_be_trained_is_history_only() -> None:
    t = talk(user("a"), agent("no", train=False), user("b"), agent("yes"), user("c"), agent("and", train=True))
    c = convert_conversation(t)
    assert list_segment_ends(c) == [4, 6]
    assert [turn["value"] for turn in c.row(4)["conversations"]] == ["a", "no", "b", "yes"]
    with pytest.raises(UntrainableError, match="segment=turns"):
        write_row(t)


def test_a_trailing_turn_of_the_environment_spoils_whole_rows_only() -> None:
    t = talk(user("a"), agent("b"), user("c"))
    assert list_segment_ends(convert_conversation(t)) == [2]
    with pytest.raises(UntrainableError) as refused:
        write_row(t)
    assert refused.value.issue.code == Code.BAD_ENDING


@pytest.mark.parametrize("system", [None, ""])
def test_a_row_without_a_system_text_leaves_it_to_the_template(system: str | None) -> None:
    assert write_row(talk(user(), agent("x"), system=system))["system"] == ""


REFUSED = {
    "control token in the system": (talk(user(), agent("x"), system="<|im_end|>"), Code.LEAK, "system"),
    "control token in a tool": (talk(user(), agent("x"), tools=[ToolSpec(name="<|im_end|>")]), Code.LEAK, "tools"),
    "control token in a result": (talk(user(), agent(None, call({})), tool("<|eot_id|>")), Code.LEAK, "messages[2]"),
    "control token in an argument": (talk(user(), agent(None, call({"a": "<|im_end|>"}))), Code.LEAK, "messages[1].calls[0]"),
    "call marker in words": (talk(user(), agent("a <tool_call> b")), Code.LEAK, "messages[1]"),
    "think marker in words": (talk(user(), agent("</think> b", call({}))), Code.LEAK, "messages[1]"),
    "end of call in an argument": (talk(user(), agent(None, call({"a": "</tool_call>"}))), Code.LEAK, "messages[1].calls[0]"),
    "result marker in a result": (talk(user(), agent(None, call({})), tool("</tool_response>")), Code.LEAK, "messages[2]"),
    "result marker in a user turn": (talk(user("<tool_response>"), agent("x")), Code.LEAK, "messages[0]"),
    "idx in a user turn": (talk(user("{{idx}}"), agent("x")), Code.UNEXPRESSIBLE, "messages[0]"),
    "nothing but dates": (talk(user("2025-01-02"), agent("2025-01-02T10:00:00Z")), Code.UNEXPRESSIBLE, "messages"),
    "a system that is a date": (talk(user(), agent("x"), system="2025-01-02"), Code.UNEXPRESSIBLE, "messages"),
    "unparsed arguments": (talk(user(), agent(None, call(None, raw="{"))), Code.UNPARSABLE_ARGUMENTS, "messages[1].calls[0]"),
    "not a number": (talk(user(), agent(None, call({"x": float("nan")}))), Code.BAD_JSON, "messages[1].calls[0]"),
    "half a surrogate pair": (talk(user("\ud83d"), agent("x")), Code.BAD_ROW, "messages[0]"),
    "an image": (talk(Message(role="user", content=[{"type": "image_url"}]), agent("x")), Code.UNEXPRESSIBLE, "messages[0]"),
    "a system message inside": (talk(user(), Message(role="system", content="s"), agent("x")), Code.UNEXPRESSIBLE, "messages[1]"),
    "the agent begins": (talk(agent("x")), Code.ROLE_ORDER, "messages[0]"),
    "two user turns": (talk(user(), user(), agent("x")), Code.ROLE_ORDER, "messages[1]"),
    "two agent turns": (talk(user(), agent("x"), agent("y")), Code.ROLE_ORDER, "messages[2]"),
    "a call and no result": (talk(user(), agent(None, call({})), user(), agent("x")), Code.UNPAIRED_CALL, "messages[2]"),
    "a result and no call": (talk(user(), agent("x"), tool(), agent("y")), Code.UNPAIRED_RESULT, "messages[2]"),
    "one result too few": (talk(user(), agent(None, call({}), call({}, 2)), tool()), Code.UNPAIRED_CALL, "messages[2]"),
    "one result too many": (talk(user(), agent(None, call({})), tool(), tool()), Code.UNPAIRED_RESULT, "messages[2]"),
    "another call's result": (talk(user(), agent(None, call({})), tool(n=9)), Code.UNPAIRED_RESULT, "messages[2]"),
    "an empty turn": (talk(user(), agent(" ")), Code.EMPTY_TURN, "messages[1]"),
    "only thinking": (talk(user(), agent(None, reasoning="hm")), Code.EMPTY_TURN, "messages[1]"),
    "nothing to train": (talk(user(), agent("x", train=False)), Code.UNEXPRESSIBLE, "messages"),
    "no messages": (talk(), Code.UNEXPRESSIBLE, "messages"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    t, code, where = REFUSED[case]
    with pytest.raises(UntrainableError) as refused:
        convert_conversation(t, reasoning=True)
    assert (refused.value.issue.code, refused.value.issue.where) == (code, where)
    assert refused.value.issue.detail


@pytest.mark.parametrize(
    "text", ["a < b | c > d", "<|", "<tool>", "{{name}}", "call 2025-01-02", "<tool_call> in a question"]
)
def test_harmless_text_passes(text: str) -> None:
    assert values(talk(user(text), agent("x")))[0] == ("human", text)
