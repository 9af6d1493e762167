"""What only a suite knows: right episodes pass, each wrong one is named; hints are the item's own; tau by its tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simia import formats
from simia.amplification.prompt import Form, render_exemplar
from simia.errors import Code, Issue, UserError
from simia.formats.agentinstruct import STYLES
from simia.formats.reply.reply_parser import parse_reply
from simia.pack import Pack
from simia.quality import suites
from simia.quality.check import Checks, check_trajectory
from simia.quality.suites import officebench
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

DATA = Path(__file__).parent.parent / "formats" / "data"
SEEDS = {
    name: [formats.get(name).read(row) for row in json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))]
    for name in formats.SUITE_DIALECTS
}
ALL = [seed for seeds in SEEDS.values() for seed in seeds]


def seed(name: str) -> Trajectory:
    return next(s for s in ALL if suites.detect_suite(s).name == name).model_copy(deep=True)


def found(t: Trajectory, of: Trajectory | None = None) -> list[Issue]:
    return list(suites.detect_suite(t).check(t, of))


@pytest.mark.parametrize("t", ALL, ids=lambda t: str(t.task_id))
def test_seeds_belong_to_their_suite_and_keep_its_rules(t: Trajectory) -> None:
    assert suites.detect_suite(t).name != "generic"
    assert found(t) == []
    assert check_trajectory(t, Checks()) == []
    assert formats.get(suites.detect_suite(t).dialect).write(t)


@pytest.mark.parametrize("form", ["json", "tagged"])
@pytest.mark.parametrize("t", ALL, ids=lambda t: str(t.task_id))
def test_a_reply_in_the_exemplars_form_becomes_a_row(t: Trajectory, form: Form) -> None:
    """The whole way: the seed as the prompt shows it, read as a model's reply, is training data of the suite again."""
    parsed = parse_reply(render_exemplar(t, form), None, form="auto")
    assert parsed.issues == []
    reply = Trajectory(pack="x", system=t.system, tools=t.tools, messages=parsed.messages)
    assert found(reply) == []
    assert check_trajectory(reply, Checks()) == []
    assert formats.get(suites.detect_suite(t).dialect).write(reply)


def test_every_suite_has_rules_and_a_dialect() -> None:
    assert {"generic", "tau_airline", "tau_retail", "tau_telecom", "os", "webshop", "mind2web", "officebench"} == set(
        suites.SUITES
    )
    for name, suite in suites.SUITES.items():
        assert suite.name == name
        assert len(suite.rules_text) > 200
        assert formats.get(suite.dialect).name == suite.dialect


def test_a_wrong_name_is_corrected() -> None:
    assert suites.get_suite("os").name == "os"
    with pytest.raises(UserError, match="did you mean 'webshop'"):
        suites.get_suite("webshp")
    with pytest.raises(UserError, match="officebench"):
        suites.get_suite("zzz")


def test_other_worlds_are_generic() -> None:
    for name in ("office", "customer_service"):
        for t in Pack.load(name).seeds:
            assert suites.detect_suite(t).name == "generic"
            assert found(t) == []
    assert suites.detect_suite(Trajectory(pack="tau2-retail")).name == "tau_retail"
    assert suites.detect_suite(Trajectory(pack="tau_telecom")).name == "tau_telecom"
    assert suites.detect_suite(Trajectory(pack="statue_retail")).name == "generic"
    assert suites.detect_suite(Trajectory(tools=[ToolSpec(name="bash"), ToolSpec(name="browse")])).name == "generic"


def test_hints_are_the_items_own() -> None:
    for name in ("os", "webshop", "mind2web", "officebench"):
        s, hint = seed(name), suites.get_suite(name).hint
        lines = [hint(s, 1_000_003 * 7 + n) for n in range(12)]
        assert lines == [hint(s, 1_000_003 * 7 + n) for n in range(12)]
        assert len(set(lines)) > 6
        assert all(line.startswith("Target: ") and "\n" not in line for line in lines)
    assert suites.get_suite("generic").hint(seed("os"), 1) == ""


def test_office_hints_ask_for_what_the_check_asks() -> None:
    s = SEEDS["officebench"][1]
    own = 0
    for number in range(200):
        named = [app for app in officebench.APPS if app in officebench.choose_apps(s, number).partition(": a task")[2]]
        assert officebench.MIN_APPS <= len(named) <= officebench.MAX_APPS
        own += "excel" in named
    assert own > 120, "most offspring stay near their seed"
    one, two = SEEDS["officebench"][1], SEEDS["officebench"][2]
    assert officebench.list_used_apps(two) == ["calendar", "email"]
    assert [i.detail for i in found(one, s)] == ["it uses 1 app (excel), at least 2 were asked for"]
    assert found(two, s) == []


Edit = Callable[[Trajectory], None]


def call(t: Trajectory, number: int) -> ToolCall:
    return [c for _, _, c in t.calls()][number]


def set_arguments(number: int, **arguments: Any) -> Edit:
    def edit(t: Trajectory) -> None:
        call(t, number).arguments = arguments

    return edit


def set_text(at: int, text: str) -> Edit:
    def edit(t: Trajectory) -> None:
        t.messages[at].content = text

    return edit


def one_more(t: Trajectory) -> None:
    t.messages[1].calls.append(call(t, 0).model_copy(update={"id": "z"}))


def search_on_results(t: Trajectory) -> None:
    call(t, 1).name, call(t, 1).arguments = "search", {"query": "mug"}


WRONG: list[tuple[str, Edit, str]] = [
    ("os", one_more, "2 calls in one turn"),
    ("os", set_arguments(0, script="vim /etc/hosts"), "waits for input"),
    ("os", set_arguments(0, script="read -p 'sure? ' yes"), "waits for input"),
    ("os", set_text(-1, "There are\n17"), "one line"),
    ("os", set_text(1, "I look."), "text beside a call"),
    ("webshop", set_arguments(1, element="B000000000"), "does not offer"),
    ("webshop", search_on_results, "without a search box"),
    ("webshop", set_text(-1, "click[purple]"), "does not offer"),
    ("webshop", set_text(-1, "click[red]"), "does not end"),
    ("webshop", set_text(-1, "Bought."), "not an action"),
    ("mind2web", set_arguments(0, choice="K", value="2 adults"), "not one of B, C, D"),
    ("mind2web", set_text(0, "a page without choices"), "no choices"),
    ("mind2web", set_text(2, "2 adults are selected"), "whose result is 'recorded'"),
    ("officebench", set_arguments(0, target_app="excel"), "while excel is open"),
]


@pytest.mark.parametrize(("name", "edit", "said"), WRONG)
def test_what_breaks_a_suites_world_is_named(name: str, edit: Edit, said: str) -> None:
    t = seed(name)
    edit(t)
    issues = found(t)
    assert {issue.code for issue in issues} == {Code.BREAKS_SUITE}
    assert any(said in issue.detail for issue in issues)


@pytest.mark.parametrize("script", ["while read -r line; do echo $line; done < a.txt", "cat a | while read l; do :; done", "ls vim", "echo read -p"])  # fmt: skip
def test_scripts_that_wait_for_nobody_pass(script: str) -> None:
    t = seed("os")
    call(t, 0).arguments = {"script": script}
    assert found(t) == []


def test_pages_without_a_list_are_read_by_their_separators() -> None:
    t = next(s for s in ALL if s.task_id == "webshop_12").model_copy(deep=True)
    call(t, 2).arguments = {"element": "brown"}
    assert [i.detail for i in found(t)] == ["a click on 'brown', which the page does not offer"]


def test_apps_must_be_open_and_list_their_actions() -> None:
    s = seed("officebench")
    first = s.model_copy(deep=True)
    del first.messages[1:3]
    assert [i.detail for i in found(first)] == ["calendar.create_event before any app is opened"]
    two = SEEDS["officebench"][2].model_copy(deep=True)
    two.messages[2].content = "Successfully switched."
    assert found(two) == []
    assert [i.where for i in found(two, s)] == ["messages[1].calls[0]"], "the seed's replies list the actions"


POLICY = (
    "Make only one tool call at a time, and if you make a call, do not respond to the user simultaneously. "
    "Before any change, list it and obtain explicit user confirmation (yes)."
)
RETAIL = ["get_order_details", "cancel_pending_order", "modify_pending_order_items", "exchange_delivered_order_items"]
AIRLINE = ["get_reservation_details", "book_reservation", "update_reservation_flights"]


def dialogue(tools: list[str], *turns: Any, policy: str = POLICY) -> Trajectory:
    """Text: user and assistant in turn; (name, arguments, result): a call and what it gave."""
    messages: list[Message] = []
    speaker = "user"
    for n, turn in enumerate(turns):
        if isinstance(turn, str):
            messages.append(Message.model_validate({"role": speaker, "content": turn}))
            speaker = "assistant" if speaker == "user" else "user"
            continue
        name, arguments, result = turn
        body = result if isinstance(result, str) else json.dumps(result)
        messages.append(Message(role="assistant", calls=[ToolCall(id=f"c{n}", name=name, arguments=arguments)]))
        messages.append(Message(role="tool", content=body, call_id=f"c{n}"))
    return Trajectory(system=policy, tools=[ToolSpec(name=name) for name in tools], messages=messages)


def look(status: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    return "get_order_details", {"order_id": "#W1"}, {"order_id": "#W1", "status": status}


CANCEL = ("cancel_pending_order", {"order_id": "#W1"}, {"order_id": "#W1", "status": "cancelled"})
REFUSED = ("cancel_pending_order", {"order_id": "#W1"}, "Error: non-pending order cannot be cancelled")
ASK = ("Cancel #W1.", look("pending"), "I would cancel #W1 and refund it. Shall I?")
CHECKS = Checks(identifiers=False, consent=True, lookups=True)


@pytest.mark.parametrize(
    ("turns", "said"),
    [
        ((*ASK, "Yes.", CANCEL, "Done."), None),
        (("Cancel #W1.", look("delivered"), "Shall I?", "Yes.", CANCEL, "Done."), "which is delivered"),
        (("Cancel #W1.", look("delivered"), "Shall I?", "Yes.", REFUSED, "It cannot be."), None),
        ((*ASK, "Yes.", CANCEL, CANCEL, "Done."), "which is cancelled"),
    ],
)
def test_retail(turns: tuple[Any, ...], said: str | None) -> None:
    t = dialogue(RETAIL, *turns)
    assert suites.detect_suite(t).name == "tau_retail"
    assert [said in i.detail if said else i for i in found(t)] == ([True] if said else [])


def flights(number: str, cabin: str) -> dict[str, Any]:
    return {"reservation_id": "R1", "cabin": cabin, "flights": [{"flight_number": number, "date": "2024-05-17"}]}


@pytest.mark.parametrize(
    ("old", "new", "broken"),
    [
        (flights("HAT1", "basic_economy"), flights("HAT2", "basic_economy"), True),
        (flights("HAT1", "economy"), flights("HAT2", "economy"), False),
        (flights("HAT1", "basic_economy"), flights("HAT1", "business"), False),
    ],
)
def test_airline(old: dict[str, Any], new: dict[str, Any], broken: bool) -> None:
    t = dialogue(
        AIRLINE,
        "Change R1.",
        ("get_reservation_details", {"reservation_id": "R1"}, old),
        "It costs 20 dollars. Yes?",
        "yes",
        ("update_reservation_flights", new, new),
        "Done.",
    )
    assert suites.detect_suite(t).name == "tau_airline"
    assert bool(found(t)) is broken


def test_telecom_phones_are_the_users() -> None:
    t = dialogue(["refuel_data", "resume_line"], "No signal.", ("toggle_airplane_mode", {}, "off"), "Try now.")
    assert found(t) == []
    t.user_tools = [ToolSpec(name="toggle_airplane_mode")]
    assert [i.where for i in found(t)] == ["messages[1].calls[0]"]


def test_rules_bind_only_where_the_policy_says_them() -> None:
    t = dialogue(RETAIL, "Cancel #W1.", look("pending"), CANCEL, "It is cancelled.", policy="Be kind.")
    t.messages[1].content = "I look."
    assert found(t) == check_trajectory(t, CHECKS) == []
    t.system = POLICY
    assert [i.where for i in found(t)] == ["messages[1]"]
    assert [i.code for i in check_trajectory(t, CHECKS)] == [Code.NO_CONSENT]


@pytest.mark.parametrize(
    ("turns", "agreed"),
    [
        ((*ASK, "Yes.", CANCEL, "It is cancelled."), True),
        ((*ASK, "No, thank you!", CANCEL, "It is cancelled."), False),
        (("Cancel #W1.", look("pending"), CANCEL, "It is cancelled."), False),
        (
            (
                "Cancel #W1.",
                "Your name and zip code?",
                "Noah Brown, 80279",
                look("pending"),
                CANCEL,
                "It is cancelled.",
            ),
            False,
        ),
    ],
)
def test_the_general_check_of_consent_reads_the_suites_policies(turns: tuple[Any, ...], agreed: bool) -> None:
    codes = [i.code for i in check_trajectory(dialogue(RETAIL, *turns), CHECKS)]
    assert codes == ([] if agreed else [Code.NO_CONSENT])


def test_styles_and_suites_name_the_same_environments() -> None:
    assert set(STYLES) <= set(suites.SUITES)
