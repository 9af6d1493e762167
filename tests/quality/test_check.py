"""One right and one wrong case a rule: the right one must pass every check, the wrong one must be named as it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from simia.errors import Code
from simia.pack import Pack
from simia.quality.check import Checks, check_trajectory, estimate_trajectory_tokens
from simia.quality.fast_tokens import estimate_text_tokens
from simia.tool import ToolSpec
from simia.trajectory import End, Message, ToolCall, Trajectory

GET = ToolSpec(
    name="get_order",
    parameters={
        "type": "object",
        "properties": {
            "order_id": {"type": "string"},
            "kind": {"type": "string", "enum": ["full", "short"]},
            "limit": {"type": "integer"},
            "filter": {
                "type": "object",
                "properties": {"tags": {"type": "array", "items": {"type": "string"}}},
                "required": ["tags"],
            },
        },
        "required": ["order_id"],
        "additionalProperties": False,
    },
)


def user(text: str = "Where is ORD-1?") -> Message:
    return Message(role="user", content=text)


def says(text: str = "It is on its way.", **more: Any) -> Message:
    return Message(role="assistant", content=text, **more)


def asks(*ids: str, name: str = "get_order", arguments: dict[str, Any] | None = None, **more: Any) -> Message:
    calls = [ToolCall(id=i, name=name, arguments=arguments or {"order_id": "ORD-1"}) for i in ids or ("c1",)]
    return Message(role="assistant", calls=calls, **more)


def result(call_id: str | None = "c1", text: str = '{"status":"sent"}') -> Message:
    return Message(role="tool", call_id=call_id, content=text)


def trajectory(*messages: Message, **more: Any) -> Trajectory:
    return Trajectory(system="You serve the shop.", tools=[GET], messages=list(messages), **more)


GOOD = trajectory(user(), asks(), result(), says())


def codes(t: Trajectory, **more: Any) -> list[Code]:
    return [issue.code for issue in check_trajectory(t, Checks(**more.pop("checks", {})), **more)]


RIGHT = [
    ("the plain case", GOOD),
    ("text with a call", trajectory(user(), asks(content="One moment."), result(), says())),
    ("two rounds", trajectory(user(), asks(), result(), says(), user("Thanks!"), says("My pleasure."))),
    ("calls one after the other", trajectory(user(), asks("a"), result("a"), asks("b"), result("b"), says())),
    ("parallel calls", trajectory(user(), asks("a", "b"), result("a"), result("b"), says())),
    ("parallel results in another order", trajectory(user(), asks("a", "b"), result("b"), result("a"), says())),
    ("a system turn at the start", trajectory(Message(role="system", content="Hi"), user(), asks(), result(), says())),
    ("a tool's error", trajectory(user(), asks(), result(text='{"error":"no order"}'), says("No such order."))),
    ("an empty result", trajectory(user(), asks(), result(text=""), says())),
    ("enum and nesting kept", trajectory(user(), asks(arguments={"order_id": "ORD-1", "kind": "full", "limit": 2,
     "filter": {"tags": ["a"]}}), result(), says())),
    ("declined by policy", trajectory(user(), asks(), result(), says("I'm sorry, I can't cancel it: it was sent."))),
    ("an AI that helps", trajectory(user("Are you an AI?"), asks(arguments={"order_id": "are"}), result(),
     says("Yes, I am an AI assistant of the shop, and I can help you with orders."))),
    ("html, links and lists", trajectory(user("Where is ORD-1? <b>Now</b> [see](http://x.example) a[name] x < y > z"),
     asks(), result(), says("Your [order details](http://x.example) hold <br> std::vector<size_t>, an exemplary one."))),
    ("a result that quotes", trajectory(user(), asks(), result(text="Dear [Your Name], <order_id> lorem ipsum"),
     says())),
]  # fmt: skip


@pytest.mark.parametrize("t", [c[1] for c in RIGHT], ids=[c[0] for c in RIGHT])
def test_a_right_trajectory_passes(t: Trajectory) -> None:
    assert check_trajectory(t, Checks(), seed=trajectory(user("Another story"), asks(), result(), says())) == []


def with_arguments(**arguments: Any) -> Trajectory:
    return trajectory(user(), asks(arguments={"order_id": "ORD-1", **arguments}), result(), says())


WRONG = [
    ("nothing at all", trajectory(), Code.EMPTY_TURN),
    ("cut", GOOD.model_copy(update={"end": End(kind="truncated")}), Code.TRUNCATED),
    ("starts with the assistant", trajectory(says("Hello"), user(), asks(), result(), says()), Code.ROLE_ORDER),
    ("two users", trajectory(user(), user(), asks(), result(), says()), Code.ROLE_ORDER),
    ("two assistants", trajectory(user(), asks(), result(), says(), says("More.")), Code.ROLE_ORDER),
    ("text then calls as two turns", trajectory(user(), says(), asks(), result(), says()), Code.ROLE_ORDER),
    ("user after a result", trajectory(user(), asks(), result(), user("Well?"), says()), Code.ROLE_ORDER),
    ("system in the middle", trajectory(user(), asks(), result(), Message(role="system", content="x"), says()),
     Code.ROLE_ORDER),
    ("a call of the user's", trajectory(user().model_copy(update={"calls": asks().calls}), result(), says()),
     Code.ROLE_ORDER),
    ("call without result", trajectory(user(), asks(), says()), Code.UNPAIRED_CALL),
    ("one of two results", trajectory(user(), asks("a", "b"), result("a"), says()), Code.UNPAIRED_CALL),
    ("call id twice", trajectory(user(), asks("a"), result("a"), asks("a"), result("a"), says()), Code.UNPAIRED_CALL),
    ("result without call", trajectory(user(), asks(), result(), result(None), says()), Code.UNPAIRED_RESULT),
    ("result of another call", trajectory(user(), asks("a"), result("b"), says()), Code.UNPAIRED_RESULT),
    ("result twice", trajectory(user(), asks(), result(), result(), says()), Code.UNPAIRED_RESULT),
    ("ends with a result", trajectory(user(), asks(), result()), Code.BAD_ENDING),
    ("ends with the user", trajectory(user(), asks(), result(), says(), user("Bye")), Code.BAD_ENDING),
    ("empty user turn", trajectory(user(" \n"), asks(), result(), says()), Code.EMPTY_TURN),
    ("empty answer", trajectory(user(), asks(), result(), says("")), Code.EMPTY_TURN),
    ("unknown tool", trajectory(user(), asks(name="get_it"), result(), says()), Code.UNKNOWN_TOOL),
    ("not in the enum", with_arguments(kind="long"), Code.BAD_ARGUMENTS),
    ("nested required field", with_arguments(filter={}), Code.BAD_ARGUMENTS),
    ("nested type", with_arguments(filter={"tags": [1]}), Code.BAD_ARGUMENTS),
    ("a boolean is no integer", with_arguments(limit=True), Code.BAD_ARGUMENTS),
    ("digits as text are no integer", with_arguments(limit="3"), Code.BAD_ARGUMENTS),
    ("an argument too many", with_arguments(colour="red"), Code.BAD_ARGUMENTS),
    ("a required one missing", trajectory(user(), asks(arguments={"limit": 1}), result(), says()), Code.BAD_ARGUMENTS),
    ("arguments that are no JSON", trajectory(user(), Message(role="assistant", calls=[
        ToolCall(id="c1", name="get_order", raw="{order")]), result(), says()), Code.UNPARSABLE_ARGUMENTS),
    ("no tool used", trajectory(user("Hi"), says()), Code.NO_TOOL_USE),
    ("an AI that cannot", trajectory(user(), asks(), result(), says("Sorry, but as an AI, I cannot book flights.")),
     Code.REFUSAL),
    ("a language model", trajectory(user(), asks(), result(), says("I'm just a language model, so I can't do that.")),
     Code.REFUSAL),
    ("ungrounded", trajectory(user("Where is it?"), asks(arguments={"order_id": "ORD-1"}), result(), says()),
     Code.UNGROUNDED_ID),
]  # fmt: skip


@pytest.mark.parametrize(("t", "code"), [c[1:] for c in WRONG], ids=[c[0] for c in WRONG])
def test_a_wrong_trajectory_is_named(t: Trajectory, code: Code) -> None:
    assert codes(t)[:1] == [code]


LEAKED = [
    "<tool_call>{}", "</user>", "ok <|im_end|>", "[INST] hi", "like the seed trajectory", "in this exemplar",
    "As an AI language model I help", "It is <order_id>.", "It is <ORDER_ID>", "Dear [Your Name],", "Dear [NAME]",
    "Hi {{customer_name}}!", "Lorem ipsum dolor", "example_value", "<your name>", "<think>hm</think>",
]  # fmt: skip


@pytest.mark.parametrize("text", LEAKED)
def test_leaks_are_seen_wherever_the_model_writes(text: str) -> None:
    places = {
        "messages[0]": trajectory(user(f"Where is ORD-1? {text}"), asks(), result(), says()),
        "messages[1]": trajectory(user(f"{text} ORD-1"), asks(reasoning=text), result(), says()),
        "messages[3]": trajectory(user(), asks(), result(), says(f"Here: {text}")),
    }
    for where, t in places.items():
        assert (Code.LEAK, where) in [(i.code, i.where) for i in check_trajectory(t, Checks())]
    in_arguments = trajectory(user(), asks(arguments={"order_id": text}), result(), says())
    assert Code.LEAK in codes(in_arguments)


def test_a_call_written_as_text_is_a_leak() -> None:
    written = '{"name": "get_order", "arguments": {"order_id": "ORD-20417"}}'
    codes = [
        issue.code
        for issue in check_trajectory(trajectory(user("Where is ORD-20417?"), says(written)), Checks(), ids=None)
    ]
    assert Code.LEAK in codes


def test_chat_markup_leaks_from_a_result_too() -> None:
    assert codes(trajectory(user(), asks(), result(text="a <|im_end|> b"), says())) == [Code.LEAK]


def test_own_markers_replace_ours() -> None:
    t = trajectory(user(), asks(), result(), says("Forged by Tolvane."))
    assert codes(t, checks={"leak_markers": ["forged BY"]}) == [Code.LEAK]
    assert codes(t, checks={"leak_markers": []}) == []


def test_findings_name_the_place_and_the_path() -> None:
    issue = check_trajectory(with_arguments(filter={"tags": ["a", 1]}), Checks())[0]
    assert issue.where == "messages[1].calls[0]"
    assert "filter.tags[1]" in issue.detail


def test_all_findings_come_in_a_stable_order_structure_first() -> None:
    t = trajectory(user("Hi <order_id>"), asks(name="nope"), says("As an AI, I can't."), user("Bye"))
    found = codes(t)
    assert found == [Code.UNPAIRED_CALL, Code.BAD_ENDING, Code.UNKNOWN_TOOL, Code.LEAK]
    assert found == codes(t.model_copy(deep=True))


def test_rules_can_be_switched_off() -> None:
    no_calls = trajectory(user("Hi"), says("As an AI, I cannot."))
    assert codes(no_calls, checks={"require_calls": False, "refusals": False}) == []
    assert codes(trajectory(user("Hi"), asks(), result(), says()), checks={"identifiers": False}) == []


def test_budgets() -> None:
    assert codes(GOOD, checks={"max_tokens": 50}) == [Code.OVER_BUDGET]
    assert codes(GOOD, checks={"max_messages": 3}) == [Code.OVER_BUDGET]


def test_a_copy_of_the_seed() -> None:
    other_words = trajectory(user(" where is ord-1?"), asks("x"), result("x", '{"status":"lost"}'), says("Lost."))
    other_call = trajectory(user(), asks(arguments={"order_id": "ORD-1", "limit": 1}), result(), says())
    other_user = trajectory(user("Where's ORD-1?"), asks(), result(), says())
    assert codes(other_words, seed=GOOD) == [Code.SEED_COPY]
    assert codes(other_call, seed=GOOD) == []
    assert codes(other_user, seed=GOOD) == []


def test_a_schema_that_cannot_be_used_is_a_finding() -> None:
    bad = ToolSpec(name="get_order", parameters={"type": "object", "properties": {"order_id": {"$ref": "http://x/y"}}})
    assert codes(GOOD.model_copy(update={"tools": [bad]})) == [Code.BAD_TOOLS]


# Counted with the tokenizer of Qwen2.5 (chat markup left out).
COUNTED = [
    ("Where is my order? I would like to know when the parcel arrives, because I am away next week.", 21),
    ('{"order_id":"ORD-20417","status":"shipped","ordered_on":"2025-05-10","total":62.85}', 39),
    ("Ich möchte meine Bestellung stornieren, weil die Lieferung zu spät kommt. ", 19),
    ("你好，我想取消我的订单。", 7),
]


@pytest.mark.parametrize(("text", "tokens"), COUNTED)
def test_the_estimate_is_on_the_safe_side_and_near(text: str, tokens: int) -> None:
    many = 50
    grown = trajectory(user(text * many), says()), trajectory(user(""), says())
    estimate = (estimate_trajectory_tokens(grown[0]) - estimate_trajectory_tokens(grown[1])) / many
    assert 0.95 * tokens <= estimate <= 1.7 * tokens


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValidationError):
        Checks(min_tokens=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("pack", ["customer_service", "office"])
def test_no_seed_of_ours_is_refused(pack: str) -> None:
    for seed in Pack.load(pack).seeds:
        assert check_trajectory(seed, Checks()) == []


@pytest.mark.parametrize("text", ["", "Where is my order?", "Zoë 🎉"])
def test_one_text_is_counted_as_within_a_trajectory(text: str) -> None:
    difference = estimate_trajectory_tokens(trajectory(user(text), says())) - estimate_trajectory_tokens(
        trajectory(user(""), says())
    )
    assert abs(estimate_text_tokens(text) - 1 - difference) <= 1
