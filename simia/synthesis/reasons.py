"""Why an item of a synthesis stage has no output: reason codes with one line each."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Reason(StrEnum):
    """Why a stage refused an item. Values are stable: ledgers and reports hold them."""

    meaning: str
    """One line for reports: the meaning of the reason."""

    def __new__(cls, value: str, meaning: str = "") -> Self:
        reason = str.__new__(cls, value)
        reason._value_, reason.meaning = value, meaning
        return reason

    UNREADABLE_REPLY = (
        "unreadable_reply",
        "no reply had the form that was asked for, in as many tries as the config allows",
    )

    # verification of gyms
    TOO_FEW_INPUTS = "too_few_inputs", "too few test inputs are valid, or too small a share of them"
    NOT_SOLVED = "not_solved", "no solution function passes all test inputs through the tools alone"
    OBSERVE_SUFFICES = (
        "observe_suffices",
        "a solver that calls only `observe` and `done` finds the answers of hard inputs",
    )
    TOO_FEW_TOOLS = "too_few_tools", "the oracle solution uses fewer different tools than a gym must need"
    CALLS_OUT_OF_BOUNDS = "calls_out_of_bounds", "on every input the oracle solution makes too few or too many calls"
    REPLAY_FAILS = "replay_fails", "the oracle's calls earn no reward when they are replayed in the pack"
    TOO_EASY = "too_easy", "the agent that measures difficulty solves every input too often"


class Refused(Exception):  # noqa: N818 - a verdict, not a mistake
    """The item of a stage has no output: a stage raises this with the reason, and a line of detail."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Unreadable(ValueError):  # noqa: N818 - a verdict on a reply
    """A reply does not have the form that was asked for: a parser raises this with what is wrong, which the model is shown."""
