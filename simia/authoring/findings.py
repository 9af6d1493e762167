"""Findings of the verifiers: each is one line that names the file, tool or task."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Fault(StrEnum):
    """What may be wrong with a pack. Values are stable."""

    # the code as it is written
    NETWORK = "network"
    CLOCK = "clock"
    RANDOMNESS = "randomness"
    FILES = "files"
    PROCESSES = "processes"
    DYNAMIC_CODE = "dynamic_code"
    GLOBAL_STATE = "global_state"
    NOT_PYTHON = "not_python"
    # code and description
    MISSING_TOOL = "missing_tool"
    UNLISTED_TOOL = "unlisted_tool"
    OTHER_ARGUMENTS = "other_arguments"
    # the tools' tests
    TEST_FAILED = "test_failed"
    TOOL_FAILED = "tool_failed"
    READ_WRITES = "read_writes"
    UNTESTED_TOOL = "untested_tool"
    # names and settings of pack.yaml and of the tasks
    UNKNOWN_NAME = "unknown_name"
    NO_USER = "no_user"
    TOO_FEW_CALLS = "too_few_calls"
    BAD_CALL = "bad_call"
    BAD_ANSWER = "bad_answer"
    NEVER_ASKED = "never_asked"
    INTEGRITY = "integrity"
    CONTRACT = "contract"
    # the tasks
    NO_START = "no_start"
    UNKNOWN_TOOL = "unknown_tool"
    NOT_REPEATABLE = "not_repeatable"
    STATE_NOT_ROUND = "state_not_round"
    NO_SOLUTION = "no_solution"
    REFERENCE_FAILS = "reference_fails"
    REFUSED_CALL = "refused_call"
    NOTHING_TO_VERIFY = "nothing_to_verify"
    STATE_UNSEEN = "state_unseen"
    NOTHING_SCORES = "nothing_scores"
    ECHO_SCORES = "echo_scores"
    CANNED_SCORES = "canned_scores"
    POLICY_SCORES = "policy_scores"
    RANDOM_SCORES = "random_scores"
    ALL_CALLS_SCORE = "all_calls_score"
    INCOMPLETE_SCORES = "incomplete_scores"
    OTHER_SCORES = "other_scores"
    MUTATED_SCORES = "mutated_scores"
    SIDE_EFFECT_SCORES = "side_effect_scores"
    IMPURE_CHECK = "impure_check"
    TRUE_AT_RESET = "true_at_reset"
    UNJUDGED = "unjudged"
    STALE_REFERENCE = "stale_reference"
    UNCOVERED = "uncovered"


REMARKS = {
    Fault.TRUE_AT_RESET,
    Fault.UNJUDGED,
    Fault.REFUSED_CALL,
    Fault.UNTESTED_TOOL,
    Fault.GLOBAL_STATE,
    Fault.SIDE_EFFECT_SCORES,
    Fault.STALE_REFERENCE,
    Fault.UNCOVERED,
}
"""Faults that are reported, but for which nothing is refused."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault, its place (a file and line, a tool, a task) and details."""

    fault: Fault
    where: str
    detail: str = ""

    @property
    def refuses(self) -> bool:
        return self.fault not in REMARKS

    def to_json(self) -> dict[str, str | bool]:
        return {"fault": str(self.fault), "where": self.where, "detail": self.detail, "refuses": self.refuses}

    def __str__(self) -> str:
        return f"{self.where}: {self.fault}" + (f": {self.detail}" if self.detail else "")
