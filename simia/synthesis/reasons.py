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
    # discovery and assessment of environments
    STATELESS_TASK = "stateless_task", "the task needs no persistent state of a domain"
    LOW_USEFULNESS = "low_usefulness", "the environment is less useful than the config asks for"
    LOW_MODELABILITY = "low_modelability", "the environment is harder to model than the config allows"
    DUPLICATE_THEME = "duplicate_theme", "another task led to nearly the same environment, which is kept"
    ASSESSMENT_FAILED = "assessment_failed", "too small a share of the test calls behaved as they should"
    ASSESSMENT_UNREADABLE = "assessment_unreadable", "too many rounds of the assessment had no reply that could be read"
    ASSESSMENT_UNTESTED = "assessment_untested", "too few test calls reached the code of a tool"
    CHECKER_BLIND = "checker_blind", "the check agent passed calls whose record was falsified on purpose"
    # building an environment
    INVALID_DESIGN = "invalid_design", "the tables or operations of the design contradict each other or the form"
    INVALID_STATE = "invalid_state", "no state satisfied the schema and its references"
    INVALID_TESTS = "invalid_tests", "no set of tests had calls that the schema allows, and expectations that can fail"
    WRONG_METHOD = (
        "wrong_method",
        "the code is not one method with the decorator, annotations and docstring that were asked for",
    )
    SIGNATURE_DIFFERS = "signature_differs", "the method's signature is not that of the designed operation"
    USES_NETWORK = "uses_network", "the code reaches for the network"
    USES_CLOCK = "uses_clock", "the code reads the clock of the machine"
    USES_RANDOMNESS = "uses_randomness", "the code draws randomness of its own"
    USES_FILES = "uses_files", "the code reads or writes files, or prints"
    USES_PROCESSES = "uses_processes", "the code starts processes or threads, or reaches for the operating system"
    USES_DYNAMIC_CODE = "uses_dynamic_code", "the code executes text or names attributes by text"
    USES_GLOBALS = "uses_globals", "the code keeps values outside of the state, or uses names that do not exist"
    USES_PRIVATE_NAMES = "uses_private_names", "the code uses names that begin with an underscore"
    READ_TOOL_WRITES = "read_tool_writes", "an operation that reads changes the state"
    UNDECLARED_TABLE = "undeclared_table", "an operation changes a table that its design does not name"
    TESTS_FAIL = "tests_fail", "a test still fails after the rounds of the debug loop"
    UNEXPECTED_FAILURE = "unexpected_failure", "a call ends in an exception that is no refusal, a crash or a limit"
    TOO_FEW_TESTS = "too_few_tests", "no success, or no designed refusal, is among the tests that pass"
    DANGLING_KEY = "dangling_key", "a call leaves a state that the schema does not allow"
    TOO_FEW_TOOLS = "too_few_tools", "fewer operations were kept than the config asks for"
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
