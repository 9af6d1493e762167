"""Which arguments are identifiers, and whether somebody had said them."""

from __future__ import annotations

from typing import Any

import pytest

from simia.errors import Code
from simia.pack import Pack
from simia.quality.grounding import Identifiers, find_ungrounded, infer_identifiers
from simia.quality.trajectory_view import TrajectoryView
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory


def tool(name: str = "f", identifiers: list[str] | None = None, **properties: Any) -> ToolSpec:
    return ToolSpec(name=name, identifiers=identifiers, parameters={"type": "object", "properties": properties})


def inferred(*tools: ToolSpec, seeds: list[Trajectory] | None = None) -> dict[str, list[str]]:
    return {name: [".".join(p) for p in paths] for name, paths in infer_identifiers(tools, seeds or []).paths.items()}


STRING = {"type": "string"}
IDENTIFIERS = {
    "order_id": STRING,
    "id": {"type": "integer"},
    "orderId": STRING,
    "item_ids": {"type": "array", "items": STRING},
    "tracking_number": STRING,
    "phone_number": STRING,
    "to": {"type": "string", "format": "email"},
    "key": {"type": "string", "format": "uuid"},
    "guests": {"type": "array", "items": {"type": "string", "format": "email"}},
    "order": {"type": "string", "pattern": "^ORD-[0-9]{5}$"},
    "file": {"type": "string", "pattern": r"^(DOC|SHT)-\d{3}$"},
    "booking": {"type": "string", "pattern": "^#W[0-9]{7}$"},
    "account": {"type": "string", "pattern": "^[0-9]{10}$"},
    "maybe_id": {"anyOf": [STRING, {"type": "null"}]},
    "also_id": {"type": ["string", "null"]},
}
OTHERS = {
    "query": STRING,
    "paid": {"type": "boolean"},
    "is_paid_id": {"type": "boolean"},
    "kind_id": {"type": "string", "enum": ["a", "b"]},
    "date": {"type": "string", "format": "date"},
    "start": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}$"},
    "cell": {"type": "string", "pattern": "^[A-Z][0-9]+$"},
    "page_number": {"type": "integer"},
    "amount": {"type": "number"},
    "grid": STRING,
    "valid": STRING,
    "text": STRING,
}


@pytest.mark.parametrize("name", IDENTIFIERS)
def test_the_schema_shows_an_identifier(name: str) -> None:
    assert inferred(tool(**{name: IDENTIFIERS[name]})) == {"f": [name]}


@pytest.mark.parametrize("name", OTHERS)
def test_the_schema_shows_none(name: str) -> None:
    assert inferred(tool(**{name: OTHERS[name]})) == {}


def test_nested_ones_and_references_are_found() -> None:
    nested = {"type": "object", "properties": {"order_id": STRING, "note": STRING}}
    spec = tool(where=nested, many={"type": "array", "items": nested}, other={"$ref": "#/$defs/x"})
    spec.parameters["$defs"] = {"x": nested}
    assert inferred(spec) == {"f": ["where.order_id", "many.order_id", "other.order_id"]}


def test_a_declaration_has_the_last_word() -> None:
    assert inferred(tool(identifiers=[], order_id=STRING)) == {}
    assert inferred(tool(identifiers=["city.code"], order_id=STRING)) == {"f": ["city.code"]}


def story(*parts: tuple[str, Any], system: str | None = None) -> Trajectory:
    """("user" | "tool" | "assistant", text) or ("call", arguments) or ("calls", [arguments, …])."""
    messages = []
    for kind, value in parts:
        if kind in ("call", "calls"):
            many = value if kind == "calls" else [value]
            calls = [ToolCall(id=f"c{len(messages)}{j}", name="f", arguments=a) for j, a in enumerate(many)]
            messages.append(Message(role="assistant", calls=calls))
        else:
            messages.append(Message.model_validate({"role": kind, "content": value}))
    return Trajectory(system=system, messages=messages)


def test_seeds_show_that_a_field_is_free_text() -> None:
    """`reference_number` is made up by the agent in every seed: no identifier that must have been said."""
    spec = tool(reference_number=STRING)
    free = [story(("user", "go"), ("call", {"reference_number": f"my-{n}00{n}"})) for n in range(4)]
    said = [story(("user", "it is my-1001"), ("call", {"reference_number": "my-1001"}))]
    assert inferred(spec, seeds=free) == {}
    assert inferred(spec, seeds=free[:2]) == {"f": ["reference_number"]}
    assert inferred(spec, seeds=free + said) == {"f": ["reference_number"]}


def test_seeds_show_that_a_field_is_an_identifier() -> None:
    """`booking` is always copied from a result and looks like a code."""
    spec = tool(booking=STRING, word=STRING, day=STRING)
    seeds = [
        story(
            ("user", "go"),
            ("tool", f'{{"b": "KX{n}7QZ", "word": "blue{n}", "day": "2025-01-0{n}"}}'),
            ("call", {"booking": f"KX{n}7QZ", "word": "bl" if n else "blue0", "day": f"2025-01-0{n}"}),
        )
        for n in range(4)
    ]
    assert inferred(spec, seeds=seeds) == {"f": ["booking"]}


IDS = Identifiers({"f": (("id",), ("list",), ("deep", "id"))})


def flagged(*parts: tuple[str, Any], system: str | None = None) -> list[str]:
    return [issue.detail.split(":")[0] for issue in find_ungrounded(TrajectoryView(story(*parts, system=system)), IDS)]


SAID = [
    ("as it is", "see ORD-20417 please", "ORD-20417"),
    ("letter-case", "see ord-20417", "ORD-20417"),
    ("space for hyphen", "see ORD 20417", "ORD-20417"),
    ("nothing for hyphen", "see ORD20417", "ORD-20417"),
    ("typographic hyphen", "see ORD‑20417", "ORD-20417"),
    ("the digits alone, from the user", "order 20417, thanks", "ORD-20417"),
    ("hash before it", "it's W1234567.", "#W1234567"),
    ("number for text", "customer 12345", 12345),
    ("text for number", "customer 12345", "12345"),
    ("float for number", "customer 12345", 12345.0),
    ("phone, spaced", "call 555 123-4567", "5551234567"),
    ("phone, bracketed", "call (555) 123-4567", "555-123-4567"),
    ("email, capitals", "Ann.Lee@Example.com.", "ann.lee@example.com"),
    ("email in brackets", "Ann <ann@example.com>", "ann@example.com"),
    ("in quotes", 'file "a_b-1"', "a_b-1"),
    ("at the end of a sentence", "It is ORD-1.", "ORD-1"),
    ("several in one text", "A-100 and B-200", "A-100, B-200"),
    ("underscores", "sara_doe_496", "sara_doe_496"),
]
NOT_SAID = [
    ("longer token", "see ORD-12", "ORD-1"),
    ("longer before", "see XORD-1", "ORD-1"),
    ("more digits", "see ORD-1-2", "ORD-1"),
    ("part of a number", "costs 123456", "12345"),
    ("part of a price", "costs 12.50", 12),
    ("part of a date", "on 2025-05-10", "05"),
    ("part of an address", "joann@example.com, jo.ann@example.com", "ann@example.com"),
    ("longer domain", "ann@example.com.au", "ann@example.com"),
    ("digits of another code", "customer CUS-1042", "ORD-1042"),
    ("digits of a date", "on 2025-05-10", "ORD-2025"),
    ("digits of a price", "for €1042", "ORD-1042"),
    ("another one", "see ORD-2", "ORD-1"),
    ("one of several", "A-100", "A-100, B-200"),
    ("underscore token", "sara_doe_4967", "sara_doe_496"),
    ("short digits are not spread", "5 5 5 1", "5551"),
]


@pytest.mark.parametrize(("text", "value"), [c[1:] for c in SAID], ids=[c[0] for c in SAID])
def test_said(text: str, value: object) -> None:
    assert flagged(("user", text), ("call", {"id": value})) == []


@pytest.mark.parametrize(("text", "value"), [c[1:] for c in NOT_SAID], ids=[c[0] for c in NOT_SAID])
def test_not_said(text: str, value: object) -> None:
    assert flagged(("user", text), ("call", {"id": value})) == ["id"]


@pytest.mark.parametrize(
    ("text", "value", "said"),
    [
        ("0171 2345678 in Germany", "+491712345678", True),
        ("(415) 555-0132", "+1 (415) 555-0132", True),
        ("06 1234 5678", "+39 06 1234 5678", True),
        ("0171 2345678", "+491712345687", False),
        ("0171 2345678", "491712345678", False),
        ("0171 2345678", "+4900491712345678", False),
        ("34567", "+1 34567", False),
        ("ORD-2345678", "+49 ORD-2345678", False),
    ],
)
def test_a_phone_number_may_gain_its_country_code(text: str, value: str, said: bool) -> None:
    assert flagged(("user", text), ("call", {"id": value})) == ([] if said else ["id"])
    assert flagged(("user", "go"), ("call", {"id": value}), ("user", text)) == ["id"]


def test_who_may_have_said_it() -> None:
    call = ("call", {"id": "ORD-1"})
    assert flagged(("user", "go"), call, system="Use ORD-1.") == []
    assert flagged(("user", "go"), ("tool", '{"order_id":"ORD-1"}'), call) == []
    assert flagged(("user", "go"), ("tool", '{"ORD-1":{"n":1}}'), call) == []
    assert flagged(("user", "go"), ("tool", "Found ORD-1"), call) == []
    assert flagged(("user", "go"), ("assistant", "Is it ORD-1?"), call) == ["id"]
    assert flagged(("user", "go"), call, ("tool", '{"id":"ORD-1"}'), ("user", "ORD-1")) == ["id"]


def test_a_result_of_the_same_batch_comes_too_late() -> None:
    parts = [("user", "see ORD-1"), ("calls", [{"id": "ORD-1"}, {"id": "ORD-2"}]), ("tool", "ORD-2"), ("tool", "x")]
    assert flagged(*parts) == ["id"]
    assert flagged(*parts, ("call", {"id": "ORD-2"})) == ["id"]


def test_a_call_cannot_take_what_another_call_of_its_message_returns() -> None:
    """The agent makes both at once: what the other result shows is not known yet."""
    tools = [tool("get_student", id={"type": "string"}), tool("get_course", id={"type": "string"})]
    calls = [ToolCall(id=f"c{n}", name=each.name, arguments={"id": f"X-{n}"}) for n, each in enumerate(tools)]
    results = ['{"id": "X-0", "course": "X-1"}', '{"id": "X-1"}']
    for told in (results, ["{}", results[1]]):
        messages = [Message(role="user", content="I am X-0"), Message(role="assistant", calls=calls)]
        messages += [
            Message(role="tool", call_id=call.id, content=text) for call, text in zip(calls, told, strict=True)
        ]
        t = Trajectory(tools=tools, messages=messages)
        found = [issue.detail for issue in find_ungrounded(TrajectoryView(t), infer_identifiers(tools))]
        assert found == ["id: 'X-1' was not said before"]


def test_digits_alone_do_not_count_in_a_result() -> None:
    assert flagged(("user", "go"), ("tool", '{"total": 20417}'), ("call", {"id": "ORD-20417"})) == ["id"]


def test_escapes_in_a_result_hide_nothing() -> None:
    for text in (r'{"path":"a\/b-7"}', r'{"path":"see\na\/b-7"}', r'{"path":"\u0061/b-7"}'):
        assert flagged(("user", "go"), ("tool", text), ("call", {"id": "a/b-7"})) == []


def test_lists_and_nesting_are_looked_at_element_by_element() -> None:
    call = {"list": ["A-1", "B-2", "C-3"], "deep": [{"id": "D-4"}, {"id": "E-5"}]}
    assert flagged(("user", "A-1, C-3 and D-4"), ("call", call)) == ["list[1]", "deep[1].id"]


def test_nothing_given_is_nothing_to_ground() -> None:
    assert flagged(("user", "go"), ("call", {"id": None, "list": [], "deep": {"id": ""}})) == []


def test_the_finding_says_where_and_what() -> None:
    (issue,) = find_ungrounded(TrajectoryView(story(("user", "go"), ("call", {"id": "ORD-9"}))), IDS)
    assert (issue.code, issue.where) == (Code.UNGROUNDED_ID, "messages[1].calls[0]")
    assert "ORD-9" in issue.detail


@pytest.mark.parametrize("name", ["customer_service", "office"])
def test_our_packs(name: str) -> None:
    """No seed is refused, and each identifier in them is one: changed by a digit, it is missed."""
    pack = Pack.load(name)
    ids = infer_identifiers(pack.tools, pack.seeds)
    changed = 0
    for seed in pack.seeds:
        assert find_ungrounded(TrajectoryView(seed), ids) == []
        for _, _, call in seed.calls():
            for where, value in ids.of(call.name, call.arguments or {}):
                if "." in where or "[" in where:
                    continue
                assert call.arguments is not None
                call.arguments[where] = f"{value}7" if "@" not in str(value) else f"x{value}"
                assert len(find_ungrounded(TrajectoryView(seed), ids)) == 1
                call.arguments[where] = value
                changed += 1
    assert changed > 20


def test_a_schema_with_a_field_named_type_where_a_type_belongs_is_no_identifier() -> None:
    """Such a tool is refused later by its schema; it must not end the reading of the other rows."""
    assert inferred(tool(filter={"type": {"type": "string"}, "value": STRING})) == {}
