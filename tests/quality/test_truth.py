"""Truth checks: for each code a right trajectory that passes and a wrong one that is named; and the measured sets."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from simia.errors import Code
from simia.quality.check import Checks, check_trajectory
from simia.quality.seed_filter import filter_seeds, find_doubtful_seeds
from simia.quality.truth.truth_checks import TruthChecks
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

DATA = Path(__file__).parent / "data" / "truth" / "seen"
POLICY = "Today is Wednesday 2025-05-14. Look an order up before you change it. Before any change, get an explicit yes. Returns cost a fee of €4.50."
TEXT = {"type": "string"}


def make_tool(name: str, **properties: Any) -> ToolSpec:
    return ToolSpec(name=name, parameters={"type": "object", "properties": properties})


TOOLS = [
    make_tool("get_order", order_id=TEXT),
    make_tool("list_orders", customer_id=TEXT),
    make_tool("cancel_order", order_id=TEXT),
    make_tool("change_address", order_id=TEXT, address=TEXT),
    make_tool("send_mail", to=TEXT, body=TEXT),
    make_tool("get_trip", trip=TEXT),
    make_tool("get_device", asset_tag=TEXT),
    make_tool("find_slots", room={"enum": ["hall", "kitchen"]}),
    make_tool("create_ticket", subject=TEXT),
]
ORDER = {
    "order_id": "ORD-20417",
    "status": "pending",
    "expected_on": "2025-05-16",
    "price": 32.95,
    "shipping": 4.95,
    "total": 37.9,
}
LOOK = ("get_order", {"order_id": "ORD-20417"}, ORDER)
CANCEL = ("cancel_order", {"order_id": "ORD-20417"}, {"order_id": "ORD-20417", "status": "cancelled", "refund": 37.9})
LIST = ("list_orders", {"customer_id": "CUS-1042"}, {"orders": [{"order_id": "ORD-20318"}, {"order_id": "ORD-20395"}]})
MOVE = (
    "change_address",
    {"order_id": "ORD-20417", "address": "7 Quay Lane"},
    {"order_id": "ORD-20417", "address": "7 Quay Lane"},
)


def make_dialogue(*turns: Any, system: str = POLICY) -> Trajectory:
    """Make a trajectory of texts, which take turns from the user on, and calls (name, arguments, result)."""
    messages: list[Message] = []
    speaker = "user"
    for n, turn in enumerate(turns):
        if isinstance(turn, str):
            messages.append(Message.model_validate({"role": speaker, "content": turn}))
            speaker = "assistant" if speaker == "user" else "user"
        else:
            name, arguments, result = turn
            messages.append(Message(role="assistant", calls=[ToolCall(id=f"c{n}", name=name, arguments=arguments)]))
            messages.append(Message(role="tool", content=json.dumps(result, ensure_ascii=False), call_id=f"c{n}"))
    return Trajectory(system=system, tools=TOOLS, messages=messages)


def find_codes(t: Trajectory, **switches: bool) -> list[str]:
    every = dict.fromkeys(TruthChecks.model_fields, True)  # also those that are off by default
    checks = Checks(**{**every, **switches, "identifiers": False})  # calls are the matter of test_grounding.py
    return [issue.code.value for issue in check_trajectory(t, checks)]


STATES = (
    *LIST[:2],
    {
        "orders": [
            {"status": "shipped", "for": "Jo"},
            {"status": "shipped", "for": "Li"},
            {"status": "open", "for": "Jo"},
        ]
    },
)
TRAIN = ("get_trip", {"trip": "A"}, {"train": "G1562", "from": "A", "day": "2025-05-16", "depart": "09:12"})
TAG = ("get_device", {"asset_tag": "OL-2291"}, {"asset_tag": "OL-2291", "memory_gb": 16})
ASK = ("Where is ORD-20417?", LOOK)
AGREED = ("Cancel ORD-20417.", LOOK, "I would cancel it and refund €37.90. Shall I?", "Yes.")
MOVED = ("Send ORD-20417 to 7 Quay Lane.", LOOK, "I would change the address to 7 Quay Lane. OK?", "ok")
RIGHT: list[tuple[Any, ...]] = [
    (*ASK, "It costs €32.95 and €4.95 for shipping, €37.90 in all, and comes on Friday, May 16."),
    (*ASK, "ORD-20417は合計37.90ユーロで、5月16日(金)に届きます。"),
    (*ASK, "订单ORD-20417共37.90欧元,5月16日(星期五)送到。"),
    (*ASK, "Two of them would be €65.90, less the fee of €4.50 that is €61.40."),
    (*ASK, "It is still pending. I have not cancelled it. Shall I cancel it?"),
    (*AGREED, CANCEL, "Done: I have cancelled ORD-20417, and €37.90 is on its way."),
    (*MOVED, MOVE, "Your order goes to 7 Quay Lane."),
    ("List the orders of CUS-1042.", LIST, "You have two orders: ORD-20318 and ORD-20395."),
    (*ASK, "It is pending.", "And now?", LOOK, "Still pending."),
    (*ASK, "It comes on Friday, May 16. Shall I move it to 9 June, or keep it until 30 June?"),
    ("ORD-20417 by half past three?", LOOK, "It comes on Friday, May 16, so 15:30 suits."),
    ("取消ORD-20417?", LOOK, "抱歉,这单已经发货,不能取消了。"),
    ("取消ORD-20417?", LOOK, "已发货的订单取消不了。"),
    ("キャンセルできますか。ORD-20417", LOOK, "すでに発送したので、キャンセルはできなくなりました。"),
    (*AGREED[:-1], "Might as well.", CANCEL, "It is cancelled."),
    (*AGREED[:-1], "Could you do that?", CANCEL, "It is cancelled."),
    ("取消ORD-20417", LOOK, "撤掉这单,退37.90欧元,行吗?", "撤撤撤", CANCEL, "撤掉了。"),
    (
        "ORD-20417をキャンセルしたい",
        LOOK,
        "取り消して37.90ユーロを返金します。よろしいですか。",
        "じゃあそれだけで。",
        CANCEL,
        "取り消しました。",
    ),
    (*ASK, "Three would be €98.85, less 8% that is €90.94, and cut to whole euros €90."),
    ("List the orders of CUS-1042.", STATES, "One is open and two are shipped."),
    ("List the orders of CUS-1042.", STATES, "Of Jo's orders one is shipped."),
    (*MOVED[:-1], "yes, but number 5", (*MOVE[:1], {"order_id": "ORD-20417", "address": "5 Quay Lane"}, {}), "Done."),
]
WRONG: list[tuple[Code, str, tuple[Any, ...]]] = [
    (Code.WRONG_AMOUNT, "amounts", (*ASK, "It costs €38.90 in all.")),
    (Code.WRONG_AMOUNT, "amounts", (*ASK, "合計73.90ユーロです。")),
    (Code.WRONG_AMOUNT, "amounts", (*ASK, "一共73.90欧元。")),
    (Code.WRONG_DATE, "dates", (*ASK, "It comes on Thursday, May 16.")),
    (Code.WRONG_DATE, "dates", (*ASK, "It comes on 26 June 2025.")),
    (Code.WRONG_DATE, "dates", (*ASK, "5月16日(土)に届きます。")),
    (Code.WRONG_DATE, "dates", (*ASK, "6月26日送到。")),
    (Code.WRONG_COUNT, "counts", ("List the orders of CUS-1042.", LIST, "You have three orders: ORD-20318 and ORD-20395.")),
    (Code.WRONG_COUNT, "counts", ("List the orders of CUS-1042.", LIST, "您有3个订单:ORD-20318和ORD-20395。")),
    (Code.WRONG_COUNT, "counts", ("List the orders of CUS-1042.", LIST, "ご注文は3件あります。")),
    (Code.WRONG_IDENTIFIER, "answer_identifiers", (*ASK, "ORD-20471 is pending.")),
    (Code.WRONG_IDENTIFIER, "answer_identifiers", (*ASK, "Write to help@pebble.example.")),
    (Code.WRONG_IDENTIFIER, "answer_identifiers", (*ASK, "订单ORD-20471待发货。")),
    (Code.CLAIMED_ACTION, "claimed_actions", (*ASK, "It is pending. I have cancelled it for you.")),
    (Code.CLAIMED_ACTION, "claimed_actions", (*ASK, "已为您取消该订单。")),
    (Code.CLAIMED_ACTION, "claimed_actions", (*ASK, "ご注文をキャンセルしました。")),
    (Code.CLAIMED_ACTION, "claimed_actions", (*AGREED, "Done. Is there anything else?")),
    (Code.WRONG_ENTITY, "result_entities", ("ORD-20417?", ("get_order", {"order_id": "ORD-20417"}, ORDER | {"order_id": "ORD-20471"}), "Pending.")),
    (Code.CONTRADICTING_RESULTS, "consistent_results", (*ASK, "Pending.", "Sure?", ("get_order", {"order_id": "ORD-20417"}, ORDER | {"status": "delivered"}), "Yes.")),
    (Code.WRONG_ENTITY, "result_entities", ("OL-2291?", (*TAG[:2], {"asset_tag": "OL-2219", "memory_gb": 16}), "16 GB.")),
    (Code.WRONG_ENTITY, "result_entities", ("Kitchen?", ("find_slots", {"room": "kitchen"}, {"room": "hall", "free": ["a.m."]}), "Free.")),
    (Code.CONTRADICTING_RESULTS, "consistent_results", ("G1562?", TRAIN, "At 09:12.", "From A?", ("get_trip", {"trip": "B"}, TRAIN[2] | {"depart": "09:42"}), "Yes.")),
    (Code.CONTRADICTING_RESULTS, "consistent_results", ("OL-2291?", TAG, "Shall I open a ticket for more?", "yes", ("create_ticket", {"subject": "OL-2291"}, {"ticket": "T-1"}), "It is open.", "How much has it?", (*TAG[:2], TAG[2] | {"memory_gb": 32}), "Enough.")),
    (Code.WRONG_COUNT, "counts", ("List the orders of CUS-1042.", STATES, "One is shipped.")),
    (Code.WRONG_WRITTEN_VALUE, "written_values", ("Send ORD-20417 to 7 Quay Lane 502.", LOOK, "Change the address to 7 Quay Lane 502?", "ok", (*MOVE[:1], {"order_id": "ORD-20417", "address": "502 Quay Lane 7"}, {"address": "7 Quay Lane"}), "Done.")),
    (Code.NO_CONSENT, "consent", (*AGREED[:-1], "Then I'd better ask my wife. What time do you close?", CANCEL, "It is cancelled.")),
    (Code.NO_CONSENT, "consent", ("取消ORD-20417", LOOK, "取消后退37.90欧元,要取消吗?", "我先打个电话问问", CANCEL, "取消了。")),
    (Code.NO_CONSENT, "consent", ("キャンセルしたい。ORD-20417", LOOK, "取り消して返金します。よろしいですか。", "家族に聞いてみます", CANCEL, "取り消しました。")),
    (Code.NO_CONSENT, "consent", ("Cancel ORD-20417.", LOOK, CANCEL, "It is cancelled.")),
    (Code.NO_CONSENT, "consent", (*AGREED[:-1], "No, wait.", CANCEL, "It is cancelled.")),
    (Code.NO_CONSENT, "consent", ("Cancel ORD-20417.", LOOK, "What is your postcode?", "H91", CANCEL, "It is cancelled.")),
    (Code.NO_LOOKUP, "lookups", ("Cancel ORD-20417.", "I would cancel it. Shall I?", "Yes.", CANCEL, "It is cancelled.")),
    (Code.WRONG_WRITTEN_VALUE, "written_values", (*MOVED, ("change_address", {"order_id": "ORD-20417", "address": "9 Quay Lane"}, {}), "Done.")),
    (Code.WRONG_WRITTEN_VALUE, "written_values", (*MOVED, MOVE, "Your order goes to 9 Quay Lane.")),
    (Code.WRONG_WRITTEN_VALUE, "written_values", (*MOVED, (*MOVE[:2], {"address": "12 Mill Road"}), "Done.")),
]  # fmt: skip


@pytest.mark.parametrize("turns", RIGHT)
def test_what_follows_passes(turns: tuple[Any, ...]) -> None:
    assert find_codes(make_dialogue(*turns)) == []


@pytest.mark.parametrize(("code", "switch", "turns"), WRONG)
def test_each_untruth_has_its_code_and_switch(code: Code, switch: str, turns: tuple[Any, ...]) -> None:
    t = make_dialogue(*turns)
    assert code.value in find_codes(t)
    assert code.value not in find_codes(t, **{switch: False})


@pytest.mark.parametrize(
    ("said", "written", "is_given"),
    [
        ("(415) 555-0132", "+1 (415) 555-0132", True),
        ("0170 1234567", "+491701234567", True),
        ("06 1234 5678", "+39 06 1234 5678", True),
        ("138 0013 8000", "+8613800138000", True),
        ("0170 1234567", "+491701234576", False),
        ("0170 1234567", "+4900491701234567", False),
        ("0170 1234567", "491701234567", False),
        ("34567", "+1 34567", False),
    ],
)
def test_a_phone_number_may_gain_its_country_code(said: str, written: str, is_given: bool) -> None:
    t = make_dialogue(f"Change my number to {said}, please.", ("change_phone", {"phone": written}, {}), "Done.")
    t.tools = [make_tool("change_phone", phone=TEXT)]
    t.system = "Be kind."
    assert ("wrong_written_value" in find_codes(t)) is not is_given


@pytest.mark.parametrize(
    ("name", "argument", "result", "passes"),
    [
        ("redeem_points", {"points": 500}, {"points": 1500}, True),
        ("redeemPoints", {"points": 500}, {"points": 1500}, True),
        ("addStock", {"quantity": 5}, {"quantity": 25}, True),
        ("refund_order", {"amount": 500}, {"amount": 1500}, False),
        ("update_points", {"points": 500}, {"points": 1500}, False),
        ("redeem_points", {"voucher": "half off"}, {"voucher": "free coffee"}, False),
    ],
)
def test_a_call_of_a_difference_may_return_the_new_total(
    name: str, argument: dict[str, Any], result: dict[str, Any], passes: bool
) -> None:
    t = make_dialogue(f"Do it: {argument}", (name, argument, result), "It is done.", system="Be kind.")
    t.tools = [make_tool(name, **{key: {} for key in argument})]
    assert ("wrong_written_value" not in find_codes(t)) is passes


def test_a_policy_without_the_rule_asks_for_neither_consent_nor_lookups() -> None:
    turns = ("Cancel ORD-20417.", CANCEL, "It is cancelled.")
    assert find_codes(make_dialogue(*turns, system="Be kind.")) == []
    assert "no_consent" in find_codes(make_dialogue(*turns))


def test_a_seed_that_looks_up_first_makes_it_the_rule() -> None:
    hasty = make_dialogue("Cancel ORD-20417.", CANCEL, "It is cancelled.", system="Be kind.")
    careful = make_dialogue(*AGREED, CANCEL, "It is cancelled.", system="Be kind.")
    found = check_trajectory(hasty, Checks(lookups=True), seed=careful)
    assert [issue.code for issue in found] == [Code.NO_LOOKUP]


def test_what_a_call_may_have_changed_is_no_contradiction() -> None:
    later = ("get_order", {"order_id": "ORD-20417"}, ORDER | {"status": "cancelled"})
    assert find_codes(make_dialogue(*AGREED, CANCEL, "It is cancelled.", "Is it?", later, "It is.")) == []


JOB = {"job_id": "J-17", "name": "export", "status": "queued"}
QUOTE = {"symbol": "ACME", "currency": "USD", "price": 101.2}


@pytest.mark.parametrize(
    ("first", "later", "passes"),
    [
        (("start_job", JOB), ("get_job", JOB | {"status": "running", "progress": 40}), True),
        (("get_job", JOB | {"status": "In progress"}), ("get_job", JOB | {"status": "done"}), True),
        (("get_job", JOB), ("get_job", JOB | {"status": "running", "name": "import"}), False),
        (("get_job", JOB | {"status": "paused"}), ("get_job", JOB | {"status": "done"}), False),
        (("get_quote", QUOTE), ("get_quote", QUOTE | {"price": 101.5}), True),
        (("get_quote", QUOTE), ("get_quote", QUOTE | {"currency": "EUR"}), False),
        (("get_product", QUOTE), ("get_product", QUOTE | {"price": 101.5}), False),
        (("get_stock_price", QUOTE), ("get_stock_price", QUOTE | {"price": 101.5}), True),
        (("get_stock_price", QUOTE), ("get_stock_price", QUOTE | {"currency": "EUR"}), False),
        (("getCurrentPrice", QUOTE), ("getCurrentPrice", QUOTE | {"price": 101.5}), True),
        (("get_exchange_rate", {"rate": 1.08}), ("get_exchange_rate", {"rate": 1.09}), True),
        (("get_traffic", {"delay": 4}), ("get_traffic", {"delay": 9}), True),
        (("get_price", QUOTE), ("get_price", QUOTE | {"price": 101.5}), False),
        (("get_stock", QUOTE), ("get_stock", QUOTE | {"price": 101.5}), False),
        (("get_room_rate", {"rate": 80}), ("get_room_rate", {"rate": 95}), False),
        (("get_current_order", {"total": 80}), ("get_current_order", {"total": 95}), False),
        (("generate_password", {"password": "kT7-pQ2m"}), ("generate_password", {"password": "Xw4!rN8s"}), True),
        (("get_random_joke", {"joke": "Cats sit?"}), ("get_random_joke", {"joke": "A bar."}), True),
        (("roll_dice", {"dice": 3}), ("roll_dice", {"dice": 5}), True),
        (("get_dice_roll", {"dice": 3}), ("get_dice_roll", {"dice": 5}), True),
        (("get_recommendations", {"film": "Heat"}), ("get_recommendations", {"film": "Alien"}), True),
        (("recommend_job", JOB), ("recommend_job", JOB | {"name": "import"}), False),
        (("get_roll_number", {"pupil": "Heat"}), ("get_roll_number", {"pupil": "Alien"}), False),
        (("get_room", {"room": "hall", "celsius": 21.5}), ("get_room", {"room": "hall", "celsius": 19.8}), True),
    ],
)
@pytest.mark.parametrize("said", [(), ("It is.", "And now?")])
def test_processes_and_live_readings_go_on_by_themselves(
    first: tuple[str, dict[str, Any]], later: tuple[str, dict[str, Any]], passes: bool, said: tuple[str, ...]
) -> None:
    called = {key: value for key, value in later[1].items() if key in ("job_id", "symbol", "room")}
    asked = [
        (name, {"job_name": "export"} if name == "start_job" else called, result) for name, result in (first, later)
    ]
    t = make_dialogue("How is it?", asked[0], *said, asked[1], "It is so.")
    t.tools = [make_tool(name, **dict.fromkeys(arguments, TEXT)) for name, arguments, _ in asked]
    assert ("contradicting_results" not in find_codes(t)) is passes


def test_seeds_are_kept_and_named() -> None:
    seed = make_dialogue("Cancel ORD-20417.", LOOK, CANCEL, "It is cancelled.")
    kept, refused = filter_seeds([seed], Checks())
    assert (kept, refused) == ([seed], [])
    ((doubtful, issues),) = find_doubtful_seeds(kept, Checks(consent=True))
    assert doubtful is seed
    assert [issue.code for issue in issues] == [Code.NO_CONSENT]


RENTAL_POLICY = (
    "延長は最長30日までです。返却日の変更は承諾をいただいてから行ってください。本日は2026年3月9日（月）です。"
)
RENTAL_TOOLS = [
    ToolSpec(
        name=name,
        description=description,
        parameters={"type": "object", "properties": {"rental_id": TEXT, "day": TEXT}},
    )
    for name, description in (
        ("get_rental", "契約を照会します。"),
        ("extend_rental", "レンタル期間を延長します。"),
        ("report_trouble", "故障の受付票を作成します。"),
    )
]
RENTAL_ASK = (
    "BI-7890-140925を3月29日まで延長できますか。",
    (
        "get_rental",
        {"rental_id": "BI-7890-140925"},
        {"rental_id": "BI-7890-140925", "end_date": "2026-03-25", "daily": 2750},
    ),
    "返却日を3月25日から3月29日へ変更いたします。1日あたり2,750円ですが、よろしいでしょうか。",
    "はい、お願いします。",
)
EXTEND = (
    "extend_rental",
    {"rental_id": "BI-7890-140925", "day": "2026-03-29"},
    {"rental_id": "BI-7890-140925", "end_date": "2026-03-29", "fee": 11000},
)


def find_rental_codes(*turns: Any) -> list[str]:
    t = make_dialogue(*RENTAL_ASK, *turns, system=RENTAL_POLICY).model_copy(update={"tools": RENTAL_TOOLS})
    return [issue.code.value for issue in check_trajectory(t, Checks(identifiers=False))]


@pytest.mark.parametrize("day", ["2026年4月2日（木）", "2026年3月30日（月）", "３月３０日"])
def test_a_done_change_has_the_date_of_its_call_also_beside_a_polite_request(day: str) -> None:
    polite = "追加料金は11,000円でございます。どうぞお気をつけて作業なさってください。"
    assert find_rental_codes(EXTEND, f"返却日を{day}に変更いたしました。{polite}") == ["wrong_date"]
    assert find_rental_codes(EXTEND, f"返却日を2026年3月29日（日）に変更いたしました。{polite}") == []
    assert find_rental_codes(EXTEND, f"返却日を3月29日に変更いたしました。次は{day}以降にご連絡ください。") == []


@pytest.mark.parametrize(
    "claim",
    [
        "返却日を3月29日に変更いたしました。",
        "ご契約をキャンセルいたしました。",
        "故障の受付票を作成いたしました。",
        "レンタル期間を3月29日まで延長いたしました。",
    ],
)
def test_the_humble_form_claims_an_action_of_the_speaker(claim: str) -> None:
    assert find_rental_codes(claim) == ["claimed_action"]


@pytest.mark.parametrize(
    "text",
    [
        "返却日を変更いたしましたら、ご連絡いたします。",
        "先日ご案内を変更いたしましたとおり、1日あたり2,750円です。",
        "ご確認用の文面を作成いたしました。",
        "返却日の変更はまだ行っておりません。",
        "次の予約があるため、変更はいたしませんでした。",
    ],
)
def test_what_claims_no_action_of_a_call_passes(text: str) -> None:
    assert find_rental_codes(text) == []
    assert (
        find_rental_codes(EXTEND, "変更いたしました。", "ありがとう。", "こちらこそ、返却日を変更いたしました。") == []
    )


SALE = ("get_trip", {"trip": "A"}, {"start": "2026-03-09", "end": "2026-03-14"})


@pytest.mark.parametrize(
    ("answer", "passes"),
    [
        ("It runs from Monday until 14 March 2026.", True),
        ("It is on Monday and 14 March 2026.", True),
        ("It is on Monday and on Saturday, 14 March 2026.", True),
        ("It ends on Saturday, March 14, 2026.", True),
        ("It ends on Saturday the 14th of March 2026.", True),
        ("It ends on Monday, March 14, 2026.", False),
        ("It ends on Monday, 14 March 2026.", False),
        ("It ends on Monday, March the 14th.", False),
        ("It ends on Monday the 14th of March 2026.", False),
    ],
)
def test_a_weekday_belongs_to_the_date_right_after_it(answer: str, passes: bool) -> None:
    t = make_dialogue("When is it?", SALE, answer, system="Be kind.")
    assert find_codes(t) == [] if passes else find_codes(t) == ["wrong_date"]


@pytest.mark.parametrize(
    ("asked", "start", "answer", "passes"),
    [
        ("I am in Berlin.", "15:00:00Z", "It starts at 17:00 Berlin time.", True),
        ("I am in Berlin.", "15:00:00Z", "It starts at 17:00.", True),
        ("I am in Delhi.", "15:00:00+02:00", "It starts at 18:30.", True),
        ("I am in Delhi.", "15:00:00-05:00", "It starts at 01:30.", True),
        ("In New York time?", "18:00", "It starts at 2:00 PM in New York.", True),
        ("I am in Berlin.", "15:00", "It starts at 17:00 Berlin time.", True),
        ("I am in Berlin.", "15:00", "It starts at 5 pm your time.", True),
        ("I am in Berlin.", "15:00", "It starts at 17:00. Thank you for your time.", False),
        ("I am in Berlin.", "15:00", "It starts at 17:00.", False),
        ("I am in Berlin.", "15:00:00Z", "It starts at 17:10 Berlin time.", False),
        ("I am in Berlin.", "15:10:00Z", "It starts at 17:00.", False),
        ("I am in Berlin.", "15:10:00Z", "It starts at 17:10.", True),
        ("I am in Berlin.", "15:00+02:00", "It starts at 17:30.", True),
        ("I am in Berlin.", '15:00", "desk": "10:00-11:00', "It starts at 17:30.", False),
        ("I am in Berlin.", '15:00", "updated_at": "2026-05-01T08:00:00Z', "It starts at 17:30.", False),
        ("I am in Berlin.", '15:00", "timezone": "Europe/Paris', "It starts at 17:30.", False),
    ],
)
def test_a_time_may_be_in_another_time_zone(asked: str, start: str, answer: str, passes: bool) -> None:
    event = ("get_trip", {"trip": "A"}, json.loads(f'{{"start": "2026-05-04T{start}"}}'))
    t = make_dialogue(f"When is it? {asked}", event, answer, system="Be kind.")
    assert ("wrong_date" not in find_codes(t)) is passes


DESK = (
    "get_order",
    "cancel_order",
    "return_order",
    "refund_order",
    "book_flight",
    "create_booking",
    "change_booking",
    "register_guest",
)


def find_desk_codes(answer: str, **result: str) -> list[str]:
    """Check an answer right after a look-up, where tools for many actions exist and none was called."""
    look = ("get_order", {"order_id": "ORD-20417"}, {"order_id": "ORD-20417", **result})
    t = make_dialogue("How is ORD-20417?", look, answer, system="Be kind.")
    t.tools = [make_tool(name, order_id=TEXT) for name in DESK]
    return [issue.code.value for issue in check_trajectory(t, Checks(identifiers=False, dates=False))]


@pytest.mark.parametrize(
    "answer",
    [
        "Here it is:\n- Ordered on: soon\n- Booked by: Ann Lee\n- Created: in May\n- Changed: never",
        "Here it is:\nOrdered: in May\nScheduled departure: 10:40\nReserved seat: the first\nRegistered e-mail: none yet",
        "Returned items are refunded within a few days after we receive them.",
        "Cancelled orders are refunded to your card.",
        "Opened, changed or returned items have no refund.",
        "Returned orders from A1 are free.",
        "Scheduled maintenance for your order is due.",
        "Booked changes for you: none.",
        "The flight is delayed and is now scheduled for 12:10.",
        "The flight is now scheduled to leave at 12:10.",
        "Here it is:\n- Status: cancelled",
        "Here it is:\n- ORD-20417\n- Cancelled",
    ],
)
def test_labels_adjectives_and_states_claim_no_action(answer: str) -> None:
    assert find_desk_codes(answer, status="cancelled") == []


@pytest.mark.parametrize(
    "answer",
    [
        "Done, cancelled your order.",
        "All done: cancelled.",
        "Cancelled. Is there more that I can do for you? No? Then have a good day.",
        "Cancelled ORD-20417 for you.",
        "Cancelled and refunded, as you asked.",
        "Successfully cancelled order ORD-20417.",
        "Cancelled order ORD-20417 as you asked.",
        "Cancelled successfully! Have a good day.",
        "Booked a later flight for you.",
        "Booked seat 12A for you.",
        "Your order is now cancelled.",
        "Your flight is now booked.",
        "Your booking is now scheduled.",
        "Here it is:\n- Status: cancelled",
    ],
)
def test_a_claim_at_the_start_of_a_sentence_needs_its_call(answer: str) -> None:
    assert find_desk_codes(answer, status="pending") == ["claimed_action"]


def read_rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def test_no_right_trajectory_of_the_seen_half_is_rejected() -> None:
    rows = read_rows("right.jsonl")
    assert Counter(row["language"] for row in rows) == {"en": 20, "zh": 20, "ja": 20}
    rejected = {row["id"]: found for row in rows if (found := find_codes(Trajectory.model_validate(row["trajectory"])))}
    assert rejected == {}


def test_most_corrupted_trajectories_of_the_seen_half_are_rejected() -> None:
    rows = [row for row in read_rows("corrupted.jsonl") if row["kind"] not in ("unaddressed_goal", "other_language")]
    found = sum(bool(find_codes(Trajectory.model_validate(row["trajectory"]))) for row in rows)
    assert found >= 0.85 * len(rows) >= 40


def test_no_right_trajectory_of_a_set_that_was_opened_last_is_rejected_by_default() -> None:
    path = DATA.parent / "third" / "right.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rejected = {
        row["id"]: found
        for row in rows
        if (found := check_trajectory(Trajectory.model_validate(row["trajectory"]), Checks()))
    }
    assert rejected == {}
