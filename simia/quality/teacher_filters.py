"""Filters of a teacher's episodes before they are training data: impossible, too long, malformed (EnvScaler §4, SFT data).

They read finished episodes, so changed limits need no new rollout. Each dropped episode has one reason: the first that applies.
"""

from __future__ import annotations

import re

from pydantic import Field

from simia.config import Config
from simia.errors import Code, Issue
from simia.quality.check import Checks, check_calls, check_structure, estimate_trajectory_tokens
from simia.quality.leaks import LEAK_MARKERS, find_leaks
from simia.quality.trajectory_view import TrajectoryView
from simia.statistics import SUCCESS
from simia.trajectory import Trajectory

MALFORMED = frozenset(
    (Code.UNKNOWN_TOOL, Code.BAD_ARGUMENTS, Code.UNPARSABLE_ARGUMENTS, Code.UNPAIRED_CALL, Code.UNPAIRED_RESULT, Code.EMPTY_TURN, Code.LEAK)
)  # fmt: skip
NOT = r"(?:can['’]?t|cannot|can not|could not|couldn['’]?t|(?:am|was|are|is|be) (?:unable|not able) to|unable to)"
IMPOSSIBLE = re.compile(
    rf"\b{NOT}\s+(?:\w+\s+){{0,2}}(?:complete|do|fulfil+|perform|finish|proceed|continue|help|assist|process|carry|find|access|be)\b|"
    r"(?:\bnot|n['’]t) possible\b|\bimpossible\b|"
    r"\b(?:there (?:is|are)|i have|we have|i have been given) no (?:\w+ ){0,2}(?:tools?|functions?|way|access|means|record)\b|"
    r"\b(?:do not|don['’]t|does not|doesn['’]t) (?:have (?:\w+ ){0,3}(?:tools?|functions?|access|ability|way|means)|exist)\b|"
    r"\bno such \w+|\bnot (?:available|supported)\b|\blacks? (?:a|an|the|any) (?:\w+ ){0,2}(?:tool|function)\b",
    re.IGNORECASE,
)
REQUEST = re.compile(
    r"\b(?:please|could you|can you|would you)\b[^.!?]*\b(?:provide|give|tell|share|send|specify|supply|clarify|confirm)\b",
    re.IGNORECASE,
)


class TeacherFilters(Config):
    """Which finished episodes of a teacher model are exported. Their reward must also be at least `accept`."""

    impossible: bool = Field(
        True,
        description="Drop episodes whose last answer says that the task cannot be done or asks the user for something, and all "
        "episodes of tasks for which no sample earned a reward above 0. An episode with reward 1 is kept, because there "
        "declining was right.",
    )
    most_turns: int | None = Field(
        60,
        ge=1,
        description="Maximum number of messages of the teacher. null: no limit. Truncated episodes are dropped too, unless this and "
        "`most_tokens` are null.",
    )
    most_tokens: int | None = Field(
        12_000,
        ge=1,
        description="Maximum number of tokens (estimated) of the episode with its tools and system text. null: no limit.",
    )
    format: bool = Field(
        True,
        description="Drop episodes with malformed calls, unknown tools, empty turns, or markers of prompts and chat templates.",
    )


def find_teacher_fault(t: Trajectory, filters: TeacherFilters, *, best: float | None, accept: float) -> Issue | None:
    """Return why an episode is no training data; None for one that is kept.

    Args:
        t: a finished episode.
        filters: the filters that it must pass.
        best: the highest reward of the samples of its task; None: none was scored.
        accept: least reward of an episode that is kept.
    """
    reward = t.reward.value if t.reward else None
    if reward is None or t.end.kind == "aborted":
        why = (t.reward.error if t.reward else None) or t.end.code or Code.UNSCORED
        return Issue(code=why, detail="the episode has no reward")
    if filters.impossible and reward < SUCCESS:
        if not best:
            return Issue(code=Code.IMPOSSIBLE, detail="no sample of the task earned a reward")
        if words := find_surrender(t):
            return Issue(
                code=Code.IMPOSSIBLE, where=f"messages[{len(t.messages) - 1}]", detail=f"it ends with {words!r}"
            )
    return find_excess(t, filters) or find_malformed(t, filters) or find_low_reward(reward, accept)


def find_surrender(t: Trajectory) -> str:
    """Words of the last answer that say that the task cannot be done, or ask for something; empty if there are none."""
    last = next((message.text for message in reversed(t.messages) if message.role == "assistant" and message.text), "")
    found = IMPOSSIBLE.search(last) or REQUEST.search(last)
    return " ".join(found[0].split())[:120] if found else ""


def find_excess(t: Trajectory, filters: TeacherFilters) -> Issue | None:
    """Return the first limit of length that is exceeded. An episode that was cut by a limit is too long."""
    turns = sum(message.role == "assistant" for message in t.messages)
    if filters.most_turns is not None and turns > filters.most_turns:
        return Issue(code=Code.TOO_LONG, detail=f"{turns} turns, at most {filters.most_turns}")
    if t.end.kind == "truncated" and (filters.most_turns is not None or filters.most_tokens is not None):
        return Issue(code=Code.TOO_LONG, detail=f"the episode was cut: {t.end.code or 'by a limit'}")
    if filters.most_tokens is not None and (tokens := estimate_trajectory_tokens(t)) > filters.most_tokens:
        return Issue(code=Code.TOO_LONG, detail=f"{tokens} tokens, at most {filters.most_tokens}")
    return None


def find_malformed(t: Trajectory, filters: TeacherFilters) -> Issue | None:
    """The first malformed call, turn or leak."""
    if not filters.format:
        return None
    shown = t.model_copy(update={"tools": t.all_tools})
    checks = Checks(require_calls=False)
    for issue in (
        *check_structure(shown),
        *check_calls(shown, checks),
        *find_leaks(TrajectoryView(shown), LEAK_MARKERS),
    ):
        if issue.code in MALFORMED:
            return Issue(code=Code.BAD_FORMAT, where=issue.where, detail=f"{issue.code}: {issue.detail}".rstrip(": "))
    return None


def find_low_reward(reward: float, accept: float) -> Issue | None:
    return None if reward >= accept - 1e-9 else Issue(code=Code.LOW_REWARD, detail=f"{reward:g}, at least {accept:g}")
