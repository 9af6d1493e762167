"""Decide from the text that the agent reads whether a perturbation happened.

A check reads the plan (a field's names, a code), the result or the message, and for stale data the earlier result. The same checks apply
whether code or a model made the perturbation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from simia.envs.perturbation.effects import list_records, read_value
from simia.envs.worlds.world import ToolResult

UNAVAILABLE = re.compile(r"unavailable|temporar|try .{0,30}again|retry|time[d-]? ?out|overload|50[0-4]\b", re.I)
LIMITED = re.compile(r"rate.?limit|too many requests|quota|\b429\b|throttl", re.I)
PROCESSING = re.compile(r"process|pending|not ready|in progress|running|queued|accepted", re.I)
CONFIRM = re.compile(r"confirm", re.I)
IMPATIENT = re.compile(
    r"hurry|impatien|patience|(i('ve| have) been|still|kept|keep me|keeps me|tired of|of) waiting|all day|too (long|slow)|so (long|slow)|how (much )?long(er)?\b|tak(es?|ing|en)( \w+)? (long|forever|ages)"
    r"|forever|for ages|asap|come on\b|(be|is|more) (quick|fast)|quicker|faster|speed (this|it|things) up|running out of time|(have|got) time for|waste|dragging",
    re.I,
)
UNSURE = re.compile(
    r"(not|n't)( \w+)? sure|unsure|maybe not|leave it|(might|may|could|about to) (have )?chang(e|ed) my mind|think (about|over|again|it over)|second (thoughts?|guess)|never ?mind"
    r"|(don't|do not|please not|without) (\w+ )?(do|mak|proceed|process|tak|chang|start|go)\w*( \w+)? ?(any|ahead|that|this|it|yet)|not yet\b"
    r"|nothing (yet|for now|right now)|hold o(n|ff)|no longer (want|sure)|reconsider|hesita|undecided|on the fence|having doubts|wait (a|until|with)",
    re.I,
)

ResultCheck = Callable[[ToolResult, Any, Mapping[str, Any]], bool]


def shows_event(kind: str, result: ToolResult, detail: Mapping[str, Any]) -> bool:
    """Check whether a result shows the effect of a tool event. `detail`: the planned values, and for stale data the `earlier` result."""
    return RESULT_CHECKS[kind](result, read_value(result), detail)


def message_shows_event(kind: str, text: str, detail: Mapping[str, Any]) -> bool:
    """Check whether a message of the user shows the effect of a user event."""
    if kind == "wrong_id":
        return str(detail["wrong"]) in text and not names_exactly(text, str(detail["right"]))
    if kind == "off_topic":
        return bool(text.strip()) and not any(str(each).casefold() in text.casefold() for each in detail["topic"])
    return bool({"impatience": IMPATIENT, "change_of_mind": UNSURE}[kind].search(text))


def names_exactly(text: str, identifier: str) -> bool:
    """Whether a text contains the identifier by itself, not as a part of a longer one."""
    return re.search(rf"(?<![\w-]){re.escape(identifier)}(?![\w-])", text) is not None


def is_refused(result: ToolResult, pattern: re.Pattern[str]) -> bool:
    return result.error is not None and pattern.search(result.content) is not None


def shows_pending(result: ToolResult, value: Any, detail: Mapping[str, Any]) -> bool:
    """Whether the result only says that it is not ready."""
    few = not isinstance(value, dict) or value.keys() <= {"status", "message", "note", "state", "detail"}
    return result.error is None and few and PROCESSING.search(result.content) is not None


def shows_part(result: ToolResult, value: Any, detail: Mapping[str, Any]) -> bool:
    return result.error is None and isinstance(value, dict) and value.get("partial") is True


def shows_new_name(result: ToolResult, value: Any, detail: Mapping[str, Any]) -> bool:
    rows = list_records(value)
    return any(detail["new"] in row for row in rows) and not any(detail["field"] in row for row in rows)


def lacks_field(result: ToolResult, value: Any, detail: Mapping[str, Any]) -> bool:
    whole = result.error is None and isinstance(value, dict | list)
    return whole and not any(detail["field"] in row for row in list_records(value))


def shows_earlier(result: ToolResult, value: Any, detail: Mapping[str, Any]) -> bool:
    """Whether the result is the earlier one and, if the true current one is known, differs from that."""
    return bool(value == detail["earlier"]) and ("true" not in detail or value != detail["true"])


def shows_matches(result: ToolResult, value: Any, detail: Mapping[str, Any]) -> bool:
    """Whether the result holds at least two records that differ."""
    found = value.get("matches") if isinstance(value, dict) else None
    return (
        isinstance(found, list)
        and len(found) > 1
        and all(isinstance(each, dict) for each in found)
        and found[0] != found[1]
    )


RESULT_CHECKS: dict[str, ResultCheck] = {
    "transient_error": lambda result, value, detail: is_refused(result, UNAVAILABLE),
    "rate_limit": lambda result, value, detail: is_refused(result, LIMITED),
    "changed_policy": lambda result, value, detail: is_refused(result, CONFIRM),
    "slow_result": shows_pending,
    "partial_result": shows_part,
    "renamed_field": shows_new_name,
    "missing_field": lacks_field,
    "stale_data": shows_earlier,
    "ambiguous_match": shows_matches,
    "injected_instruction": lambda result, value, detail: str(detail["code"]) in result.content,
}
