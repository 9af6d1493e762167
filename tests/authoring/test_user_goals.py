"""What a user simulator is given of a seed's user: every wish and every fact of the user's, nothing that the user was told."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from simia.authoring.goal_rewriting import GoalSettings, read_goal, rewrite_goal, rewrite_goals
from simia.authoring.user_goals import GAP, UserGoal, describe_user
from simia.errors import UserError
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.quality.mentions import Mentions
from simia.trajectory import Message, ToolCall, Trajectory
from tests.envs.worlds.test_simulated import Scripted
from tests.fake_endpoint import FakeEndpoint


def describe(*turns: tuple[str, str]) -> UserGoal:
    """`turns`: role and text; a text of `tool` is the result of a call before it."""
    messages = []
    for role, text in turns:
        if role == "tool":
            messages.append(Message(role="assistant", calls=[ToolCall(id="c", name="look", arguments={})]))
        messages.append(
            Message.model_validate({"role": role, "content": text, "call_id": "c" if role == "tool" else None})
        )
    goal = describe_user(Trajectory(messages=messages))
    assert goal is not None
    return goal


ASK = ("user", "Where is my parcel? I am Ana Ruiz.")
RESULT = ("tool", '{"order_id": "ORD-20417", "total": 62.85, "room": "Attic", "day": "2025-05-16", "pieces": 3}')


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("Yes, refund the €62.85 for ORD-20417.", f"Yes, refund the {GAP} for {GAP}."),
        ("Then on 2025-05-16.", f"Then on {GAP}."),
        ("Attic is fine.", f"{GAP} is fine."),
        ("Fine. The Attic, please.", f"Fine. The {GAP}, please."),
        ("My email is ana@example.com.", "My email is ana@example.com."),
        ("My other order is ORD-99.", "My other order is ORD-99."),
        ("I am Ana Ruiz, as I said.", "I am Ana Ruiz, as I said."),
        ("Send 3 of them.", "Send 3 of them."),  # a small number is a wish, and occurs by accident
        ("Please do. Thanks!", "Please do. Thanks!"),
        ("Send 41 and 250 of them.", "Send 41 and 250 of them."),
        ("ORD-20417, 62.85 and ORD-20417", f"{GAP} and {GAP}"),
    ],
)
def test_a_later_turn_keeps_what_the_user_knew(reply: str, shown: str) -> None:
    goal = describe(ASK, RESULT, ("assistant", "It comes soon. Please wait. The room is Attic."), ("user", reply))
    assert goal.later == (shown,)
    assert all(GAP not in fact for fact in goal.knows)
    assert (GAP in goal.instruction) is (GAP in shown)


@pytest.mark.parametrize(
    ("heard", "reply", "shown"),
    [
        ("有一班：CA1234，票价850元。", "就订CA1234那班，850元可以。", f"就订{GAP}那班，{GAP}元可以。"),
        ("NH1234便、12500円がございます。", "NH1234便を12500円でお願いします。", f"{GAP}便を{GAP}円でお願いします。"),
        ("推荐Hilton酒店。", "就订Hilton吧，订单号是ORD-7。", f"就订{GAP}吧，订单号是ORD-7。"),
        ("最早是2026年5月4日。", "那就2026年5月4日出发。", f"那就{GAP}出发。"),
        ("8월 5일 3시 30분 방이 있습니다.", "그럼 8월 5일로 해 주세요.", f"그럼 {GAP}로 해 주세요."),
        ("票价８５０元。", "８５０元可以。", f"{GAP}元可以。"),
        ("寄到ana@example.com？", "是的，寄到ana@example.com吧。", f"是的，寄到{GAP}吧。"),
        ("要几张？", "要3张，我是王芳，电话13800138000。", "要3张，我是王芳，电话13800138000。"),
    ],
)
def test_a_value_within_a_script_without_spaces_is_found(heard: str, reply: str, shown: str) -> None:
    goal = describe(("user", "你好"), ("assistant", heard), ("user", reply))
    assert goal.later == (shown,)
    assert all(GAP not in fact for fact in goal.knows)
    assert (GAP in shown) is not (reply in goal.knows)


def test_the_goal_holds_every_turn_in_order_and_the_facts_of_the_user() -> None:
    goal = describe(
        ASK, RESULT, ("assistant", "For 62.85?"), ("user", "Yes. Also cancel ORD-7.\nBye"), ("assistant", "Done.")
    )
    assert goal.opening == "Where is my parcel? I am Ana Ruiz."
    assert goal.instruction.splitlines()[1] == goal.opening
    assert goal.instruction.splitlines()[-1] == "- Yes. Also cancel ORD-7. Bye"
    assert goal.knows == ("I am Ana Ruiz.", "Also cancel ORD-7.")
    assert describe(ASK).later == ()
    assert describe(("assistant", "Hello Ana Ruiz!"), ASK).opening == goal.opening
    assert describe(ASK, ("user", "It is ORD-8.")).opening == f"{goal.opening}\nIt is ORD-8."
    assert describe_user(Trajectory(messages=[Message(role="assistant", content="Hello?")])) is None


def test_a_goal_in_a_script_without_spaces_is_compared_value_by_value() -> None:
    known = Mentions()
    known.add("我的订单ORD-20417有问题，想退款到alice@example.com。", by_user=True)
    good = "你想为订单ORD-20417申请退款/换货，款项退到alice@example.com。"
    assert read_goal(write(good, ["订单号是ORD-20417"]), known) == (good, ["订单号是ORD-20417"])
    assert read_goal(write("你想为订单ORD-99申请退款。"), known) == "no message of the user holds 'ORD-99'"


GOAL = UserGoal("Cancel ORD-7, please.", (f"Yes, the {GAP} are fine.",), ("Cancel ORD-7, please.",))


def write(goal: Any, knows: Any = ()) -> str:
    return json.dumps({"goal": goal, "knows": list(knows)})


async def ask(*replies: str) -> tuple[Any, Scripted]:
    left = list(replies)
    model = Scripted(lambda _: left.pop(0))
    async with Engine(model, MemoryJournal(), EngineLimits(retries=0)) as engine:
        return await rewrite_goal(GOAL, GoalSettings(), engine), model


async def test_a_model_writes_the_goal_from_the_users_turns_alone() -> None:
    found, model = await ask(write("You want ORD-7 cancelled.", ["The order is ORD-7."]))
    assert found == ("You want ORD-7 cancelled.", ["The order is ORD-7."])
    assert model.asked[0].messages[1]["content"] == f"# The user's messages\n1. {GOAL.opening}\n2. {GOAL.later[0]}"


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (write("You want ORD-8 cancelled."), "no message of the user holds 'ORD-8'"),
        (write("You want it cancelled.", ["I paid 62.85."]), "no message of the user holds '62.85'"),
        (write("You want it cancelled.", [7]), '"knows" is no list of texts'),
        (write(""), '"goal" is missing'),
        ("[]", '"goal" is missing'),
        ("You want it cancelled.", "it is no JSON object"),
    ],
)
async def test_a_reply_with_an_invention_is_asked_for_again(reply: str, why: str) -> None:
    good = write("You want ORD-7 cancelled.")
    found, model = await ask(reply, good)
    assert found == ("You want ORD-7 cancelled.", [])
    assert why in model.asked[1].messages[-1]["content"]
    found, model = await ask(reply, reply)
    assert found is None
    assert len(model.asked) == 2


def test_replies_are_kept_and_paid_for_once(tmp_path: Path) -> None:
    endpoint = FakeEndpoint("--respond", "tests.authoring.test_user_goals:respond")
    llm = {"kind": "openai", "model": "m", "base_url": endpoint.url, "api_key": None}
    settings = GoalSettings.model_validate({"llm": {k: v for k, v in llm.items() if v}})
    try:
        for _ in range(2):
            found = asyncio.run(rewrite_goals([GOAL, GOAL], settings, tmp_path / "replies"))
            assert found == [("You want ORD-7 cancelled.", [])] * 2
            assert len(endpoint.requests) == 1  # the same messages are one request
        capped = settings.model_copy(update={"limits": EngineLimits(max_tokens=1)})
        others = [UserGoal(text, (), ()) for text in ("Hello", "Good day")]
        with pytest.raises(UserError, match=r"replies are kept in .*: raise it and repeat"):
            asyncio.run(rewrite_goals(others, capped, tmp_path / "others"))
    finally:
        endpoint.stop()


def respond(body: dict[str, Any]) -> str:
    return write("You want ORD-7 cancelled.")
