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
    DANGLING_KEY = "dangling_key", "a call leaves a state that the schema does not allow"
    TOO_FEW_TOOLS = "too_few_tools", "fewer operations were kept than the config asks for"
    REFUSED_QUESTION = (
        "refused_question",
        "the endpoint refused the question: too long for the model, or its content filter",
    )
    UNVERIFIED = "unverified", "execution did not confirm what the model wrote"
    INTERNAL = "internal", "the stage itself failed on this item; please report it"

    # verification of gyms
    TOO_FEW_INPUTS = "too_few_inputs", "too few test inputs are valid, or too small a share of them"
    NOT_SOLVED = "not_solved", "no solution function passes all test inputs through the tools alone"
    OBSERVE_SUFFICES = (
        "observe_suffices",
        "a solver that calls only `observe` and `done` finds the answers of hard inputs",
    )
    FEW_TOOLS_USED = "few_tools_used", "the oracle solution uses fewer different tools than a gym must need"
    CALLS_OUT_OF_BOUNDS = "calls_out_of_bounds", "on every input the oracle solution makes too few or too many calls"
    GYM_GATE_REFUSES = (
        "gym_gate_refuses",
        "the oracle's replayed calls earn no reward on any input, or agents that do not read the task earn one",
    )
    TOO_EASY = "too_easy", "the agent that measures difficulty solves every input too often"


class Refused(Exception):  # noqa: N818 - a verdict, not a mistake
    """The item of a stage has no output: a stage raises this with the reason, and a line of detail."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Unreadable(ValueError):  # noqa: N818 - a verdict on a reply
    """A reply does not have the form that was asked for: a parser raises this with what is wrong, which the model is shown."""
