"""Planned goals are checked only where the structure proves that one is not addressed."""

from __future__ import annotations

import pytest

from simia.errors import Code
from simia.quality.goals import PlannedGoal, find_unaddressed_goals
from simia.quality.tool_effects import find_effect
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

TOOLS = [ToolSpec(name=name) for name in ("get_order", "cancel_order", "find_user", "escalate")]


def story(*calls: tuple[str, str], users: int = 2) -> Trajectory:
    messages = [Message(role="user", content="Hello.")]
    for _ in range(users - 1):
        messages += [Message(role="assistant", content="Which one?"), Message(role="user", content="The first.")]
    for i, (name, result) in enumerate(calls):
        messages.append(Message(role="assistant", calls=[ToolCall(id=f"c{i}", name=name, arguments={})]))
        messages.append(Message(role="tool", call_id=f"c{i}", content=result))
    return Trajectory(tools=TOOLS, messages=[*messages, Message(role="assistant", content="Done.")])


OK, FAILED = '{"ok": true, "error": null}', '{"error": "not found"}'
ORDER, CANCEL = ("get_order", OK), ("cancel_order", OK)


@pytest.mark.parametrize(
    ("goal", "t", "said"),
    [
        (PlannedGoal("cancel_order", "done", ("get_order",)), story(ORDER, CANCEL), None),
        (PlannedGoal("cancel_order", "done", ("find_user",)), story(ORDER, CANCEL), None),  # another way to the same goal
        (PlannedGoal("cancel_order"), story(ORDER), "planned 1 time and called 0 times"),
        (PlannedGoal("cancel_order"), story(("cancel_order", FAILED)), "every call of cancel_order failed"),
        (PlannedGoal("get_order"), story(("get_order", FAILED)), None),  # an empty look-up may be the answer
        (PlannedGoal("cancel_order", "refused", ("get_order",)), story(ORDER), None),
        (PlannedGoal("cancel_order", "refused"), story(ORDER, ("cancel_order", FAILED)), None),
        (PlannedGoal("cancel_order", "refused"), story(ORDER, CANCEL), "a refusal was planned"),
        (PlannedGoal("cancel_order", "withdrawn"), story(ORDER, CANCEL), "the user was to withdraw"),
        (PlannedGoal("get_order", "recovered", (), "get_order"), story(("get_order", FAILED), ORDER), None),
        (PlannedGoal("get_order", "recovered", (), "get_order"), story(("get_order", "见不到：未找到")), None),
        (PlannedGoal("get_order", "recovered", (), "get_order"), story(("get_order", '{"id": 7}')), "an error with recovery was planned"),
        (PlannedGoal("", "recovered"), story(("get_order", '{"id": 7}')), "an error with recovery was planned"),
        (PlannedGoal("get_order", "missing"), story(ORDER), None),
        (PlannedGoal("get_order", "missing"), story(ORDER, users=1), "the user writes only once"),
    ],
)  # fmt: skip
def test_each_outcome(goal: PlannedGoal, t: Trajectory, said: str | None) -> None:
    found = list(find_unaddressed_goals(t, [goal]))
    assert bool(found) == (said is not None), found
    if said:
        assert found[0].code is Code.GOAL_MISSED
        assert said in found[0].detail


def test_two_goals_about_one_tool_need_two_calls() -> None:
    goals = [PlannedGoal("cancel_order"), PlannedGoal("cancel_order")]
    assert not list(find_unaddressed_goals(story(CANCEL, CANCEL), goals))
    assert list(find_unaddressed_goals(story(CANCEL), goals))


def test_effects_follow_from_the_contract_then_from_the_name() -> None:
    names = {
        "get_order": "look_up",
        "cancelOrder": "change",
        "excel.read_file": "look_up",
        "查询订单": "look_up",
        "取消订单": "change",
    }
    assert {name: find_effect(ToolSpec(name=name)) for name in names} == names
    assert find_effect(ToolSpec(name="escalate")) == ""
    assert find_effect(ToolSpec(name="get_and_lock", writes=["orders"])) == "change"
    assert find_effect(ToolSpec(name="book_club", writes=[])) == "look_up"
