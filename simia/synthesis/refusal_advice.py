"""Advice for users about refused items, by reason."""

from __future__ import annotations

from simia.synthesis.reasons import Reason

STRONGER = "start again with a stronger model (llm.model)"
CHECKER = "name a stronger model for the check agent (roles.checker)"
ADVICE = {
    Reason.UNREADABLE_REPLY: f"{STRONGER}, or with a larger sampling.max_tokens if replies are cut off",
    Reason.INVALID_DESIGN: (
        "no design could be used in as many replies as sampling.tries allows, and nothing more is asked: "
        f"{STRONGER}, or with a smaller design (building.operations, building.kept)"
    ),
    Reason.TESTS_FAIL: f"raise building.debug_rounds, or {STRONGER}",
    Reason.UNEXPECTED_FAILURE: f"raise building.debug_rounds, or {STRONGER}",
    Reason.UNKNOWN_ID: STRONGER,
    Reason.TOO_FEW_TOOLS: "lower building.kept, or raise building.operations",
    Reason.CHECKER_BLIND: CHECKER,
    Reason.ASSESSMENT_UNREADABLE: CHECKER,
    Reason.SOLUTION_FAILS: "raise scenarios.repairs",
    Reason.SOLUTION_CHANGES_NOTHING: "raise scenarios.repairs",
    Reason.CHECK_ALWAYS_TRUE: f"lower scenarios.checks, or {STRONGER}",
    Reason.TOO_FEW_CHECKS: f"lower scenarios.checks, or {STRONGER}",
    Reason.TOO_FEW_VISIBLE: "lower expansion.least to the number of tools",
    Reason.DUPLICATE_TASK: "ask for more states (states.number)",
}


def advise(reason: str) -> str:
    """Return what to do about a reason; empty if there is no general advice."""
    return ADVICE[Reason(reason)] if reason in set(ADVICE) else ""
