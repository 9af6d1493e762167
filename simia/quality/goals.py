"""Check that a trajectory addresses every goal that was planned for it.

Only faults that the structure proves are reported: a planned call is missing or always failed, a change was made although a refusal
or withdrawal was planned, or there is no trace of a planned question or error. How well a goal was served is left to a judge.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from simia.errors import Code, Issue
from simia.quality.suites.base import is_failure, parse_object
from simia.quality.tool_effects import find_effect
from simia.terminal import write_count
from simia.trajectory import Message, Trajectory

GoalOutcome = Literal["done", "missing", "recovered", "refused", "withdrawn"]
OUTCOMES: tuple[GoalOutcome, ...] = get_args(GoalOutcome)
NOT_DONE = ("refused", "withdrawn")
CallAndResult = tuple[str, Message | None]
# Any sign of a failed or empty look-up, in the languages of results that were seen; generous, since only its absence is reported.
NO_SUCCESS = re.compile(
    r"error|fail|not |n['’]t |\bno |none|null|invalid|denied|refus|unknown|missing|unable|cannot|false|incorrect|wrong|mismatch|"
    r"expired|unavailable|timeout|timed out|reject|ambiguous|multiple|too many|already|40\d|50\d|\[\]|\{\}|错误|錯誤|失败|失敗|"
    r"不存在|未找到|无效|無效|没有|沒有|不能|无法|エラー|見つかり|ありません|できません|無効|存在しま|오류|실패|없",
    re.I,
)


@dataclass(frozen=True, slots=True)
class PlannedGoal:
    """One goal of a conversation's user.

    `before`: the calls that come first (authentication, look-ups), in order. `tool`: the main call of the goal; empty if the plan names
    none. `fails`: in a `recovered` goal, the call that fails once. `together`: look-ups made in one turn.
    """

    tool: str
    outcome: GoalOutcome = "done"
    before: tuple[str, ...] = ()
    fails: str = ""
    together: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[str, ...]:
        """The calls that the goal leads to, in order, the failed one included."""
        names = self.before if self.outcome in NOT_DONE or not self.tool else (*self.before, self.tool)
        if not self.fails and not self.together:
            return names
        if self.fails and self.fails in names:
            at = names.index(self.fails)
            names = (*names[:at], self.fails, *names[at:])
        if len(self.together) == 2 and self.together[0] == self.together[1] and self.together[0] in names:
            at = names.index(self.together[0])
            names = (*names[:at], self.together[0], *names[at:])
        return names

    def to_spec(self) -> dict[str, Any]:
        """Return the fields that are set, for an item's spec."""
        spec: dict[str, Any] = {"tool": self.tool, "outcome": self.outcome, "before": list(self.before)}
        return (
            spec
            | ({"fails": self.fails} if self.fails else {})
            | ({"together": list(self.together)} if self.together else {})
        )

    @classmethod
    def from_spec(cls, spec: dict[str, Any]) -> PlannedGoal:
        return cls(
            spec.get("tool", ""),
            spec.get("outcome", "done"),
            tuple(spec.get("before", ())),
            spec.get("fails", ""),
            tuple(spec.get("together", ())),
        )


def find_unaddressed_goals(t: Trajectory, goals: Sequence[PlannedGoal]) -> Iterator[Issue]:
    """Report each goal that the trajectory surely does not address."""
    if not goals:
        return
    results = {message.call_id: message for message in t.messages if message.role == "tool"}
    calls = [(call.name, results.get(call.id)) for _, _, call in t.calls()]
    called = Counter(name for name, _ in calls)
    wanted = Counter(goal.tool for goal in goals if goal.tool and goal.outcome not in NOT_DONE)
    for tool, count in wanted.items():
        if called[tool] < count:
            yield make_goal_issue(
                f"{tool} was planned {write_count(count, 'time')} and called {write_count(called[tool], 'time')}"
            )
        elif is_change(t, tool) and not count_successes(calls, tool):
            yield make_goal_issue(f"every call of {tool} failed, and it was planned to succeed")
    for goal in goals:
        if goal.outcome in NOT_DONE and called[goal.tool] and count_successes(calls, goal.tool) > wanted[goal.tool]:
            planned = "a refusal was planned" if goal.outcome == "refused" else "the user was to withdraw the wish"
            yield make_goal_issue(f"{goal.tool} was called and succeeded, where {planned}")
        elif goal.outcome == "recovered" and not shows_error(calls, called):
            yield make_goal_issue("an error with recovery was planned, and no call failed or was repeated")
        elif goal.outcome == "missing" and sum(message.role == "user" for message in t.messages) < 2:
            yield make_goal_issue("a question for a missing detail was planned, and the user writes only once")


def count_successes(calls: Sequence[CallAndResult], tool: str) -> int:
    return sum(name == tool and not has_failed(result) for name, result in calls)


def is_change(t: Trajectory, tool: str) -> bool:
    return any(each.name == tool and find_effect(each) == "change" for each in t.tools)


def shows_error(calls: Sequence[CallAndResult], called: Counter[str]) -> bool:
    """Return whether a call may have failed: a tool was called again, or a result shows any sign of failure."""
    if any(count > 1 for count in called.values()):
        return True
    return any(result is None or is_failure(result) or NO_SUCCESS.search(result.text) for _, result in calls)


def has_failed(result: Message | None) -> bool:
    """Return whether a result certainly is an error. `"error": null` is no error."""
    if result is None or result.error is not None:
        return True
    if not is_failure(result):
        return False
    found = parse_object(result)
    return not found or bool(found.get("error"))


def make_goal_issue(detail: str) -> Issue:
    return Issue(code=Code.GOAL_MISSED, detail=detail[:300])
