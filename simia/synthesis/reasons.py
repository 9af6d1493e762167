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
    REFUSED_QUESTION = (
        "refused_question",
        "the endpoint refused the question: too long for the model, or its content filter",
    )
    UNVERIFIED = "unverified", "execution did not confirm what the model wrote"
    INTERNAL = "internal", "the stage itself failed on this item; please report it"


class Refused(Exception):  # noqa: N818 - a verdict, not a mistake
    """The item of a stage has no output: a stage raises this with the reason, and a line of detail."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Unreadable(ValueError):  # noqa: N818 - a verdict on a reply
    """A reply does not have the form that was asked for: a parser raises this with what is wrong, which the model is shown."""
