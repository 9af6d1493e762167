"""Calls, answers, checklists, and how parts make one value."""

from __future__ import annotations

from typing import Any

import pytest

from simia.envs.rewards import score_trajectory
from simia.errors import Code
from simia.reward_spec import AnswerSpec, ChecklistSpec, PenaltySpec, RewardSpec, StateSpec, TraceSpec
from simia.task import Action
from simia.trajectory import End, Message, ToolCall, Trajectory

REFERENCE = [
    Action(name="look", arguments={"id": "A", "n": 1}),
    Action(name="buy", arguments={"id": "A", "price": 9.99}),
]


def made(*calls: tuple[str, dict[str, Any]], failed: str | None = None, by: str = "assistant") -> Trajectory:
    messages = []
    for i, (name, arguments) in enumerate(calls):
        messages.append(Message(role=by, calls=[ToolCall(id=str(i), name=name, arguments=arguments)]))
        messages.append(
            Message(role="tool", call_id=str(i), content="", error=Code.TOOL_ERROR if name == failed else None)
        )
    return Trajectory(messages=messages)


def value(trajectory: Trajectory, part: Any, reference: list[Action] | None = None) -> float | None:
    return score_trajectory(trajectory, RewardSpec(parts=[part]), reference=reference or []).value


LOOK, BUY = ("look", {"id": "A", "n": 1}), ("buy", {"price": 9.990000001, "id": "A"})


@pytest.mark.parametrize(
    ("calls", "spec", "expected"),
    [
        ([LOOK, BUY], {}, 1.0),
        ([BUY, LOOK], {}, 1.0),
        ([BUY, LOOK], {"ordered": True}, 0.0),
        ([("other", {}), LOOK, ("other", {}), BUY], {"ordered": True}, 1.0),
        ([LOOK], {}, 0.0),
        ([LOOK], {"partial": True}, 0.5),
        ([LOOK, LOOK], {"partial": True}, 0.5),
        ([("look", {"id": "A", "n": 2}), BUY], {}, 0.0),
        ([("look", {"id": "A", "n": 2}), BUY], {"mask": {"look": ["n"]}}, 1.0),
        ([("look", {"id": "A", "n": True}), BUY], {}, 0.0),
        ([BUY], {"only": ["buy"]}, 1.0),
        ([LOOK, BUY, ("other", {}), ("other", {})], {"extra": 0.05}, 0.9),
        ([LOOK, BUY, *[("other", {})] * 40], {"extra": 0.05}, 0.5),
        ([], {}, 0.0),
    ],
)
def test_the_trace(calls: list[tuple[str, dict[str, Any]]], spec: dict[str, Any], expected: float) -> None:
    assert value(made(*calls), TraceSpec(**spec), REFERENCE) == pytest.approx(expected)


def test_a_call_that_failed_or_was_the_users_matches_nothing_of_the_agents() -> None:
    assert value(made(LOOK, BUY, failed="buy"), TraceSpec(), REFERENCE) == 0
    assert value(made(LOOK, BUY, by="user"), TraceSpec(), REFERENCE) == 0
    users = [action.model_copy(update={"by": "user"}) for action in REFERENCE]
    assert value(made(LOOK, BUY, by="user"), TraceSpec(), users) == 1


def test_a_repeat_of_a_matched_call_changes_nothing_if_the_state_is_right() -> None:
    change = [{"path": ["orders", "A"], "new": 1}]
    repeat, other = ("buy", dict(BUY[1])), ("buy", {"id": "B", "price": 9.99})

    def judge(*calls: tuple[str, dict[str, Any]], changes: list[Any] = change, extra: float = 0.0) -> float | None:
        evidence = {"writes": ["buy"], "changes": changes, "expected": change}
        played = made(*calls).model_copy(update={"evidence": evidence})
        return value(played, TraceSpec(extra=extra), REFERENCE)

    assert judge(LOOK, BUY, repeat) == 1
    assert judge(LOOK, BUY, repeat, extra=0.1) == pytest.approx(0.9)
    assert judge(LOOK, BUY, other) == 0
    assert judge(LOOK, BUY, repeat, changes=[{"path": ["orders", "A"], "new": 2}]) == 0


def many(calls: list[tuple[str, str]], results: list[tuple[str | None, Code | None]]) -> Trajectory:
    """One message with several calls (id, tool) and their results (id, error)."""
    made = [ToolCall(id=key, name=name, arguments={}) for key, name in calls]
    answers = [Message(role="tool", call_id=key, content="", error=error) for key, error in results]
    return Trajectory(messages=[Message(role="assistant", calls=made), *answers])


BAD = Code.TOOL_ERROR


@pytest.mark.parametrize(
    ("calls", "results", "made"),
    [
        ([("1", "look")], [], []),
        ([("1", "look"), ("2", "buy")], [("1", None)], ["look"]),
        ([("1", "look"), ("2", "buy")], [("2", None)], ["buy"]),
        ([("1", "look"), ("1", "buy")], [("1", None), ("1", BAD)], ["look"]),
        ([("1", "look"), ("1", "buy")], [("1", BAD), ("1", None)], ["buy"]),
        ([("1", "look"), ("2", "buy")], [("2", BAD), ("1", None)], ["look"]),
        ([("1", "look"), ("2", "buy")], [(None, BAD), (None, None)], ["buy"]),
    ],
)
def test_a_call_is_made_only_if_its_own_result_is_there_without_an_error(
    calls: list[tuple[str, str]], results: list[tuple[str | None, Code | None]], made: list[str]
) -> None:
    trajectory = many(calls, results)
    reference = [Action(name="look"), Action(name="buy")]
    assert value(trajectory, TraceSpec(partial=True), reference) == len(made) / 2
    for action in reference:
        assert value(trajectory, TraceSpec(only=[action.name]), reference) == (action.name in made)


def test_penalties_count_each_call_by_its_own_result() -> None:
    trajectory = many([("1", "look"), ("1", "buy"), ("2", "buy")], [("1", BAD), ("1", None)])

    def left(**penalty: Any) -> float | None:
        spec = RewardSpec(parts=[TraceSpec(only=["buy"])], penalties=[PenaltySpec(**penalty)])
        return score_trajectory(trajectory, spec, reference=[Action(name="buy")]).value

    assert left(kind="errors", each=0.2) == pytest.approx(0.8)
    assert left(kind="calls", each=0.2) == pytest.approx(0.6), "the third call was not run"


def test_long_identifiers_differ_in_their_last_digit() -> None:
    reference = [Action(name="call", arguments={"phone": 4829384756, "rate": 0.5})]
    assert value(made(("call", {"phone": 4829384756, "rate": 0.5000001})), TraceSpec(), reference) == 1
    assert value(made(("call", {"phone": 4829384757, "rate": 0.5})), TraceSpec(), reference) == 0
    assert value(made(("call", {"phone": 4829384756, "rate": 0.50001})), TraceSpec(), reference) == 0


def test_the_missing_call_is_the_one_that_is_named() -> None:
    reward = score_trajectory(made(BUY), RewardSpec(parts=[TraceSpec(ordered=True)]), reference=REFERENCE)
    assert "missing: look(" in reward.rationale


def test_other_calls_cost_the_agent_also_where_they_fail_and_never_for_the_users() -> None:
    tries = made(LOOK, BUY, ("other", {}), ("other", {}), failed="other")
    assert value(tries, TraceSpec(extra=0.05), REFERENCE) == pytest.approx(0.9)
    both = Trajectory(messages=[*made(LOOK, BUY).messages, *made(("toggle", {}), by="user").messages])
    assert value(both, TraceSpec(extra=0.05), REFERENCE) == 1


def test_one_call_matches_one_reference_call_the_best_way() -> None:
    """The first reference call fits both calls, the second only the first: a greedy match would lose one."""
    reference = [Action(name="set", arguments={"a": 1, "b": 1}), Action(name="set", arguments={"a": 1, "b": 2})]
    calls = [("set", {"a": 1, "b": 2}), ("set", {"a": 1, "b": 3})]
    assert value(made(*calls), TraceSpec(mask={"set": ["b"]}), reference) == 1
    assert value(made(calls[0]), TraceSpec(mask={"set": ["b"]}), reference) == 0


def said(*words: str) -> Trajectory:
    first = Message(role="user", content="It costs 512 euros, I was told.")
    return Trajectory(messages=[first, *(Message(role="assistant", content=each) for each in words)])


@pytest.mark.parametrize(
    ("match", "expect", "words", "expected"),
    [
        ("contains", ["8.75"], ["You have **€8.75** left."], 1),
        ("contains", ["12"], ["It is 512."], 0),
        ("contains", ["1234.50"], ["That is €1,234.50 in all"], 1),
        ("contains", ["1,234.5"], ["1 234.50"], 1),
        ("contains", ["32.00"], ["32"], 1),
        ("contains", ["5"], ["about 5.5 km"], 0),
        ("contains", ["16 May 2025"], ["on 16 may\u00a02025."], 1),
        ("contains", ["RET-1", "pending"], ["RET-1 is Pending"], 1),
        ("contains", ["RET-1", "pending"], ["RET-1 is paid"], 0),
        ("contains", ["512"], [], 0),
        ("exact", ["Paris", "paris, france"], ["I think so", " PARIS "], 1),
        ("exact", ["Paris"], ["Paris it is"], 0),
        ("number", ["3.14"], ["about 3.140000001"], 1),
        ("number", ["314"], ["3.14"], 0),
        ("number", ["-2"], ["it fell to -2 degrees"], 1),
        ("regex", ["^The total is [0-9]+$"], ["The total is 12"], 1),
        ("regex", ["(a+)+$"], ["a" * 40 + "b"], 0),
        ("regex", ["("], ["("], None),
        ("number", ["many"], ["many"], None),
        ("contains", ["€"], ["anything"], None),
        ("contains", ["100 watt"], ["I ordered 2 100 watt bulbs"], 1),
        ("number", ["-2"], ["it fell to \u22122 degrees"], 1),
        ("number", ["1000000"], ["It is 1,000,001."], 0),
        ("contains", ["10.0.0.10"], ["the host is 10.0.0.1"], 0),
        ("contains", ["10.0.0.10"], ["the host is 10.0.0.10."], 1),
        ("contains", ["16.10.2025"], ["on 16.1.2025"], 0),
        ("contains", ["32"], ["32.00."], 1),
        ("contains", ["5"], ["It is -5"], 0),
        ("contains", ["5"], ["-$5.00 are left"], 0),
        ("contains", ["5"], ["2-5 days"], 1),
        ("contains", ["-5"], ["2-5 days"], 0),
        ("contains", ["-5"], ["It is (−5)."], 1),
        ("contains", ["7"], ["room A-7"], 1),
        ("number", ["3"], ["rooms 2,3"], 1),
        ("number", ["10.5"], ["10.5,11.5"], 1),
        ("number", ["200"], ["1,200"], 0),
        ("number", ["3"], ["2-3 days"], 1),
        ("number", ["-3"], ["2-3 days"], 0),
        ("number", ["16"], ["on 2025-05-16"], 1),
        ("number", ["-7"], ["x=-7"], 1),
    ],
)
def test_the_answer(match: Any, expect: list[str], words: list[str], expected: float | None) -> None:
    assert value(said(*words), AnswerSpec(match=match, expect=expect)) == expected


def test_the_answer_is_what_the_agent_tells_the_user_not_what_anybody_else_says() -> None:
    hidden = Trajectory(
        messages=[
            Message(role="user", content="42?"),
            Message(
                role="assistant", content="thinking of 42", calls=[ToolCall(id="1", name="f", arguments={"x": 42})]
            ),
            Message(role="tool", call_id="1", content="42"),
            Message(role="assistant", content="I do not know", reasoning="42"),
        ]
    )
    assert value(hidden, AnswerSpec(expect=["42"])) == 0
    assert value(said("a", "b 1"), AnswerSpec(expect=["a", "1", "2"], partial=True)) == pytest.approx(2 / 3)


def test_a_message_that_the_token_limit_cut_is_no_answer() -> None:
    end = End(kind="truncated", code=Code.MAX_TOKENS)
    cut = said("It is 7.", "Or maybe 42").model_copy(update={"end": end})
    assert value(cut, AnswerSpec(expect=["42"])) == 0
    assert value(cut, AnswerSpec(expect=["7"])) == 1
    answered = cut.model_copy(update={"messages": [*cut.messages, Message(role="user", content="Thanks.")]})
    assert value(answered, AnswerSpec(expect=["42"])) == 1


def checked(checks: dict[str, Any], at_reset: dict[str, Any] | None = None) -> Trajectory:
    return Trajectory(evidence={"changes": [], "checks": checks, "at_reset": at_reset or {}})


def test_the_checklist() -> None:
    spec = ChecklistSpec(functions=["a", "b"])
    share = ChecklistSpec(functions=["a", "b"], partial=True)
    assert value(checked({"a": True, "b": True}), spec) == 1
    assert value(checked({"a": True, "b": False}), spec) == 0
    assert value(checked({"a": True, "b": False}), share) == 0.5
    assert value(checked({"a": True, "b": False}, {"a": True}), share) == 0, "what held at reset earns nothing"
    assert value(checked({"a": False, "b": True}, {"a": True}), share) == 0.5, "and costs when it is undone"
    assert value(checked({"a": True, "b": True}, {"a": True, "b": True}), share) == 1


def test_the_worlds_own_checks_are_told_apart_by_their_number() -> None:
    call = {"name": "is_on", "by": "user", "arguments": {}, "expect": True}
    parts = [ChecklistSpec(calls=[call, call], partial=True), ChecklistSpec(calls=[call], partial=True)]
    reward = score_trajectory(checked({"0.is_on": True, "1.is_on": False, "2.is_on": True}), RewardSpec(parts=parts))
    assert reward.parts == {"checklist": 0.5, "checklist.2": 1}
    reward = score_trajectory(checked({"0.is_on": True, "1.is_on": True}), RewardSpec(parts=parts))
    assert (reward.value, reward.error) == (None, Code.UNSCORED), "a check without a result is no check that holds"


def test_a_checklist_names_what_held_from_the_start_and_needs_to_know_it() -> None:
    spec = ChecklistSpec(functions=["a", "b"], partial=True)
    reward = score_trajectory(checked({"a": True, "b": True}, {"a": True}), RewardSpec(parts=[spec]))
    assert "from the start: a" in reward.rationale
    assert value(Trajectory(evidence={"checks": {"a": True, "b": True}}), spec) is None


@pytest.mark.parametrize("checks", [{"a": True}, {"a": True, "b": "error: KeyError"}, {"a": True, "b": None}, {}])
def test_a_check_that_did_not_run_is_no_zero(checks: dict[str, Any]) -> None:
    reward = score_trajectory(checked(checks), RewardSpec(parts=[ChecklistSpec(functions=["a", "b"])]))
    assert (reward.value, reward.error) == (None, Code.UNSCORED)


def test_parts_are_named_weighted_and_combined() -> None:
    change = [{"path": ["a"], "new": 1}]
    trajectory = Trajectory(
        messages=[Message(role="assistant", content="yes")], evidence={"changes": change, "expected": change}
    )
    parts = [StateSpec(weight=3), AnswerSpec(expect=["yes"]), AnswerSpec(expect=["no"])]
    mean = score_trajectory(trajectory, RewardSpec(parts=parts, combine="mean"))
    assert mean.parts == {"state": 1, "answer": 1, "answer.2": 0}
    assert mean.value == pytest.approx(4 / 5)
    assert score_trajectory(trajectory, RewardSpec(parts=parts, combine="min")).value == 0
    assert score_trajectory(trajectory, RewardSpec(parts=parts)).value == 0
    assert score_trajectory(trajectory, RewardSpec(parts=parts[:2])).value == 1
    assert mean.rationale.count("\n") == 2
