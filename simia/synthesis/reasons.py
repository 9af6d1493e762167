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
    # coding problems and gyms
    BAD_PROBLEM = "bad_problem", "the row of a problem cannot be read, or has no statement or no solution"
    SOLUTION_FAILS = (
        "solution_fails",
        "the unified solution fails on its examples, or returns two answers for the same inputs",
    )
    SOLUTION_DIFFERS = "solution_differs", "the unified solution and the original return different answers"
    GYM_MALFORMED = (
        "gym_malformed",
        "the code of a gym has not the form of one: class, tools, types, docstrings, example calls",
    )
    GYM_UNSAFE = "gym_unsafe", "the code of a gym uses the network, the clock, randomness, files, processes or globals"
    GYM_FAILS = "gym_fails", "the code of a gym does not load, or a tool fails when it is executed"
    OBSERVE_REVEALS = (
        "observe_reveals",
        "`observe` returns inputs that must be hidden, or one call returns a whole input",
    )
    ANSWER_REVEALED = "answer_revealed", "a result or an error of a tool reveals the answer"


class Refused(Exception):  # noqa: N818 - a verdict, not a mistake
    """The item of a stage has no output: a stage raises this with the reason, and a line of detail."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Unreadable(ValueError):  # noqa: N818 - a verdict on a reply
    """A reply does not have the form that was asked for: a parser raises this with what is wrong, which the model is shown."""
