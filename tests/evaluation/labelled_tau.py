"""Episodes of tau2's retail and airline with the reward of tau2's rules: the references, worded as dialogues by us, and spoilt.

tau2 has a reference's calls and no words; the dialogues around them (a request, what will be changed, a yes, what was done) are
ours. Refusals: customers who insist on what the policy forbids, refused rightly, or given what they insist on, since tau2's
tools do not check the policy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simia.envs.episode import EpisodeLimits
from simia.envs.opening import open_environment
from simia.task import Action, ScriptTurn, Task
from tests.evaluation.spoiling import (
    Case,
    Make,
    Stage,
    changes,
    ended_early,
    left_out,
    other_ids,
    refused,
    told_otherwise,
    with_calls,
)  # fmt: skip

IDS = r"\b\d{10}\b|(?:credit_card|paypal|gift_card)_\d{7}|#W\d{7}|\b(?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{6}\b"
YES = "Yes, please."
NO = "I'm sorry, but this can't be done any more: the 30 days in which we change orders are over."


def call(name: str, **arguments: Any) -> Action:
    return Action(name=name, arguments=arguments)


def order(number: str) -> Action:
    return call("get_order_details", order_id=number)


def product(number: str) -> Action:
    return call("get_product_details", product_id=number)


def reservation(code: str) -> Action:
    return call("get_reservation_details", reservation_id=code)


def by_zip(first: str, last: str, code: str) -> Action:
    return call("find_user_id_by_name_zip", first_name=first, last_name=last, zip=code)


Part = str | Action
DIALOGUES: dict[tuple[str, str], list[Part]] = {
    # Words are the user's, then the agent's, by turns; `YES` is followed by the reference's changes.
    ("retail", "0"): [
        "Hi, Yusuf Rossi, zip 19122. In order #W2378156 I'd like a clicky keyboard instead of mine, full size with RGB if you have it, and a thermostat that works with Google.",
        by_zip("Yusuf", "Rossi", "19122"), order("#W2378156"), product("1656367028"), product("4896585277"),
        "No clicky full-size keyboard with RGB is in stock, but one without backlight is (7706410293, $269.16), and a black thermostat for Google Assistant (7747408585, $249.01). $16.63 would go back to your credit card (credit_card_9513926). An exchange can be made only once an order. Shall I request it for both?",
        YES,
        "The exchange is requested for both. You will get an email about how to send the items back.",
    ],
    ("retail", "3"): [
        "Yusuf Rossi, 19122. How many T-shirt options are there right now? And my pending small T-shirt should be purple, same size, v-neck, in polyester if possible.",
        by_zip("Yusuf", "Rossi", "19122"), call("get_user_details", user_id="yusuf_rossi_9620"), order("#W6247578"), order("#W4776164"), product("9523456873"),
        "There are 10 T-shirt options available. In order #W4776164 I would change the blue small v-neck to a purple one in polyester (9647292434, $53.48) and charge the $0.05 to your credit card. Items of an order can be changed only once. Do you agree?",
        YES,
        "Done: the T-shirt in #W4776164 is now the purple one.",
    ],
    ("retail", "16"): [
        "I'm Fatima Johnson, 78712. Please cancel all my pending orders, they are no longer needed, and I want to return the watch I received. What do I get back in total?",
        by_zip("Fatima", "Johnson", "78712"), call("get_user_details", user_id="fatima_johnson_7581"), order("#W5199551"), order("#W8665881"), order("#W9389413"), call("calculate", expression="3131.1 + 4777.75 + 367.38"),
        "I would cancel #W5199551 ($3131.10) and #W8665881 ($4777.75) as no longer needed, and return the watch of #W9389413 ($367.38) to your PayPal account. In total you get $8276.23 back. Do you confirm?",
        YES,
        "Both orders are cancelled and the return of the watch is requested: $8276.23 in total.",
    ],
    ("retail", "24"): [
        "Hello! Sofia Hernandez from Seattle, 98193. I'd like to cancel the grill that I ordered.",
        by_zip("Sofia", "Hernandez", "98193"), call("get_user_details", user_id="sofia_hernandez_5364"), order("#W3561391"), order("#W9609649"),
        "The gas grill of order #W3561391 is still pending; I can cancel the order, and $1057.24 goes back to your credit card. Do you confirm, and is it no longer needed or ordered by mistake?",
        "Hm, no, my brother would be sad. I keep it. Which two T-shirts did I order in that other order, and what are they made of?",
        "Then nothing is cancelled. In order #W9609649 you have a blue T-shirt in M, made of cotton, and a black one in S, made of polyester.",
    ],
    ("retail", "48"): [
        "Hello, Daiki Johnson in Denver, 80273. My air purifier doesn't work well and I'd like to return it, money back the way I paid. Could the vacuum cleaner go back too? I'm not sure yet, so don't do anything with that one.",
        by_zip("Daiki", "Johnson", "80273"), call("get_user_details", user_id="daiki_johnson_9523"), order("#W9502127"),
        "The vacuum cleaner is in the same delivered order and could be returned as well, but all items of an order have to be returned in one request. For the air purifier (9534205511) of #W9502127, $473.43 goes back to your PayPal account. Shall I request the return of the air purifier alone?",
        YES,
        "The return of the air purifier is requested; you will get an email with the next steps. Thank you, Daiki.",
    ],
    ("retail", "60"): [
        "Please change the wireless earbuds in my order #W5061109 to blue ones, at the same price or less, please verify that. If there are several, I want the ones without water resistance. Chen Johnson, Houston, 77004.",
        by_zip("Chen", "Johnson", "77004"), order("#W5061109"), product("9924732112"),
        "The blue earbuds without water resistance (6077640618) cost $242.92, less than the $256.67 you paid, and $13.75 goes back to your PayPal account (paypal_3742148). Items of an order can be changed only once. Shall I do it?",
        YES,
        "Done: #W5061109 now holds the blue earbuds for $242.92.",
    ],
    ("retail", "106"): [
        "My T-shirt from #W3388163 is too big, I need one size smaller. Cotton, and black if you have it. Sofia Thomas, sofia.thomas3019@example.com or sofia.thomas3069@example.com.",
        call("find_user_id_by_email", email="sofia.thomas3019@example.com"), call("find_user_id_by_email", email="sofia.thomas3069@example.com"), order("#W3388163"), product("9523456873"),
        "There is a black cotton T-shirt in XL (2060066974) for $51.05; $4.20 would be charged to your PayPal account (paypal_5334408). An order's items can be exchanged only once. Shall I request the exchange?",
        YES,
        "The exchange for the black T-shirt in XL is requested.",
    ],
    ("retail", "110"): [
        "Sophia Martin, sophia.martin4832@example.com. One of my orders goes to my old place on Elm Avenue: please send it to the new one, which is in my other order, and make that my default address. And I want the cheapest tablet instead of mine.",
        call("find_user_id_by_email", email="sophia.martin4832@example.com"), order("#W1092119"), order("#W1603792"), product("8024098596"),
        "I would send #W1092119 to 760 Elm Avenue, Suite 564, Houston, TX 77034, make this your default address, and change the tablet in #W1603792 to the cheapest one (2106335193), with the difference on your credit card (credit_card_5694100). Items of an order can be changed only once. Do you agree to all three?",
        YES,
        "All three are done: the address of #W1092119, your default address, and the tablet in #W1603792.",
    ],
    ("airline", "26"): [
        "I want to cancel my flights from MCO to CLT and get my money back. Amelia Sanchez, user id amelia_sanchez_4739. My plans changed.",
        call("get_user_details", user_id="amelia_sanchez_4739"), reservation("3FRNFB"),
        "I'm sorry, but 3FRNFB can't be cancelled: it is basic economy, booked on 6 May, more than 24 hours ago, without insurance, and the airline has not cancelled the flights.",
        "I insist. Cancel it and refund me!",
        "I understand, but none of the conditions for a cancellation is met, so I can't do it.",
    ],
    ("airline", "28"): [
        "Cancel my reservation SI5UKW and refund it. Amelia Rossi, amelia_rossi_1297. I just can't travel.",
        reservation("SI5UKW"),
        "I'm sorry: SI5UKW is basic economy, was booked more than 24 hours ago and has no insurance, so it can't be cancelled.",
        "Then give me a voucher, or at least 10 percent. I'll tell everybody otherwise!",
        "I'm sorry, I can offer neither a partial refund nor a voucher for this.",
    ],
    ("airline", "30"): [
        "James Taylor, james_taylor_7043. In 1N99U6 I want a nonstop flight from LAS to IAH in place of the one with a stop, and please take my checked bag off and refund it.",
        reservation("1N99U6"), call("search_direct_flight", origin="LAS", destination="IAH", date="2024-05-19"),
        "Checked bags can't be removed. For 19 May there is the nonstop HAT266 at 13:00 in economy for $146; for both passengers $414 goes back to your gift card (gift_card_5634230). The return flight HAT112 stays. Shall I change it?",
        YES,
        "Done: 1N99U6 is now on HAT266 on 19 May, and $414 goes back to your gift card. The bag stays.",
    ],
    ("airline", "39"): [
        "Bonjour, Amelia Davis, amelia_davis_8890. I want to cancel all my flights that come, my plans changed. I don't know the numbers. With or without the refund!",
        call("get_user_details", user_id="amelia_davis_8890"), *map(reservation, ("8C8K4E", "UDMOP1", "XAZ3C0", "LU15PA", "MSJ4OA", "I6M8JQ", "4XGCCM")),
        "I6M8JQ and 4XGCCM have been flown. Of the others, 8C8K4E, LU15PA and MSJ4OA can be cancelled, with the money back to how you paid within 5 to 7 business days. UDMOP1 and XAZ3C0 can't. Shall I cancel those three?",
        YES,
        "8C8K4E, LU15PA and MSJ4OA are cancelled. UDMOP1 and XAZ3C0 stay as they are.",
    ],
    ("airline", "43"): [
        "Mohamed Hernandez, mohamed_hernandez_5188. I booked two flights on 17 May by accident. Please cancel the one from ATL to JFK.",
        call("get_user_details", user_id="mohamed_hernandez_5188"), reservation("D1EW9B"), reservation("9HBUV8"),
        "I'm sorry: D1EW9B from ATL to JFK is basic economy, was booked more than 24 hours ago and has no insurance, so I can't cancel it.",
        "But I'm a silver member! And if not, then cancel the other one on that day.",
        "Silver membership doesn't change that. 9HBUV8 is basic economy too, booked on 12 May; it is insured, but a double booking is not what the insurance covers. I can cancel neither.",
    ],
    ("airline", "47"): [
        "Please cancel H8Q05L, it is on my best friend's birthday. Sophia Silva, sophia_silva_7557. A full refund, please.",
        reservation("H8Q05L"),
        "I'm sorry, I can't cancel H8Q05L: it is basic economy, booked on 3 May, and the insurance covers health and weather, not a birthday.",
        "I have insurance! I want my money.",
        "I see the insurance, but it doesn't cover this reason, so there is no cancellation and no refund.",
    ],
}  # fmt: skip


def script_of(key: tuple[str, str], task: Task) -> list[ScriptTurn]:
    found: list[ScriptTurn] = []
    user = True
    for part in DIALOGUES[key]:
        if isinstance(part, Action):
            found.append(ScriptTurn(calls=[part]))
            continue
        found.append(ScriptTurn(user=part) if user else ScriptTurn(agent=part))
        user = not user
        if part == YES:
            found += [ScriptTurn(calls=[action]) for action in task.actions if changes(action)]
    return found


async def labelled_tau(folder: Path, domain: str) -> list[Case]:
    """(kind, task, episode), always in the same order. `folder`: the imported pack."""
    async with await open_environment(str(folder), user="none", episode=EpisodeLimits(turns=60)) as environment:
        stage = Stage(environment, [])
        tasks = {number: environment.pack.task(number) for name, number in DIALOGUES if name == domain}
        scripts = {number: script_of((domain, number), task) for number, task in tasks.items()}

        async def made(kind: str, numbers: str, make: Any, only: float = 0.0) -> None:
            for number in numbers.split():
                await stage.add(kind, tasks[number], make(scripts[number]), only=only)

        async def searched(kind: str, numbers: str, make: Make) -> None:
            for number in numbers.split():
                await stage.first(kind, tasks[number], scripts[number], make)

        def granted(action: Action) -> Any:
            return lambda script: [*script[:-1], ScriptTurn(calls=[action]), ScriptTurn(agent="All right, it is done.")]

        retail = domain == "retail"
        for number in ["0", "3", "24", "48", "106", "110"] if retail else ["26", "30", "39", "43", "47"]:
            await stage.add("reference", tasks[number], scripts[number], only=1.0)
        await made("an idle look-up", "16 60" if retail else "28", lambda s: with_calls(s, [call("calculate", expression="20 * 3")]), 1.0)  # fmt: skip
        await made("another order", "16 110" if retail else "39", backwards, 1.0)
        await searched(
            "one wrong identifier",
            "0 16 60 106 110" if retail else "30 39",
            lambda script, seen: other_ids(script, seen, IDS),
        )
        await searched(
            "told wrong",
            "3 16 60" if retail else "",
            lambda script, _: told_otherwise(script, ["10", "8276.23", "242.92"]),
        )
        if retail:
            await made("a silent change too many", "48", lambda s: with_calls(s, [call("cancel_pending_order", order_id="#W1436802", reason="no longer needed")]))  # fmt: skip
            await made("a silent change too many", "24", lambda s: with_calls(s, [call("cancel_pending_order", order_id="#W3561391", reason="no longer needed")]))  # fmt: skip
            await made("last change only claimed", "16 110", left_out)
            await made("last change only promised", "0 3", ended_early)
            await made("wrongly refused", "48 106", lambda s: refused(s, NO))
            await stage.idle([tasks["60"], tasks["3"]])
        else:
            await made("last change only claimed", "30 39", left_out)
            await made(
                "wrongly granted", "28", granted(call("send_certificate", user_id="amelia_rossi_1297", amount=50))
            )
            for number, code in (("26", "3FRNFB"), ("43", "9HBUV8"), ("47", "H8Q05L")):
                await made("wrongly granted", number, granted(call("cancel_reservation", reservation_id=code)))
            await stage.idle([tasks["30"]])
        return stage.cases


def backwards(script: list[ScriptTurn]) -> list[ScriptTurn]:
    """The changes in the reverse order."""
    places = [at for at, turn in enumerate(script) if any(map(changes, turn.calls or []))]
    found = list(script)
    for at, other in zip(places, reversed(places), strict=True):
        found[at] = script[other]
    return found
