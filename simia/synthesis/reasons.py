"""Reason codes for items of a synthesis stage that have no output, each with one line of explanation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from simia.errors import MeaningfulCode


class Reason(MeaningfulCode):
    """Why a stage refused an item. Values are stable: ledgers and reports hold them."""

    UNREADABLE_REPLY = (
        "unreadable_reply",
        "no reply had the form that was asked for, in as many tries as the config allows",
    )
    # scenarios
    SOLUTION_FAILS = "solution_fails", "a call of the solution still fails after the repairs"
    SOLUTION_CHANGES_NOTHING = "solution_changes_nothing", "the solution leaves the state as it was"
    CHECK_FAILS = "check_fails", "the check raises, returns no bool, changes the state, or takes too long"
    CHECK_IMPURE = "check_impure", "two runs of the check on one state differ"
    CHECK_ALWAYS_TRUE = "check_always_true", "the check holds before anything was done, and after the solution"
    CHECK_ALWAYS_FALSE = "check_always_false", "the check holds neither before nor after the solution"
    CHECK_BECOMES_FALSE = "check_becomes_false", "the check holds before anything was done, and not after the solution"
    CHECK_ANY_CHANGE = "check_any_change", "the check holds as soon as anything in the state has changed"
    TOO_FEW_CHECKS = (
        "too_few_checks",
        "fewer checks discriminate than the config asks for, or than half of the checklist",
    )
    DUPLICATE_TASK = "duplicate_task", "nearly the same task of the environment was accepted before"
    # variants of tasks, by the names of their faults
    NO_VALUE = "no_value", "the user's first words name no argument of the solution"
    VALUE_REPEATED = "value_repeated", "the user names the value again, so it cannot be withheld"
    VALUE_NOT_REMOVABLE = "value_not_removable", "the value cannot be taken out of the user's words"
    VALUE_FOUND_BY_TOOLS = "value_found_by_tools", "tools return the value to an agent that does not ask for it"
    NO_TOOL_NEEDED = "no_tool_needed", "the solution calls no tool"
    ALREADY_VARIED = "already_varied", "the user withholds something already, or a tool appears later"
    NOT_EXPRESSIBLE = "not_expressible", "the task has a form of which no variant can be made"
    SOLVED_WITHOUT_ASKING = "solved_without_asking", "an agent that guesses the withheld value earns the full reward"
    SOLVED_WITHOUT_WAITING = "solved_without_waiting", "an agent that does not wait for the tool earns the full reward"
    # faults of the verification gate, by their names there
    NO_START = "no_start", "the task's start cannot be set up"
    UNKNOWN_TOOL = "unknown_tool", "the solution calls a tool that does not exist"
    BAD_CALL = "bad_call", "the arguments of a call of the solution break the tool's schema"
    TOOL_FAILED = "tool_failed", "a tool fails in the solution"
    NOT_REPEATABLE = "not_repeatable", "two resets, or two replays of the solution, differ"
    STATE_NOT_ROUND = "state_not_round", "a state written out and read again is another state"
    NO_SOLUTION = "no_solution", "the task has no solution to verify it with"
    REFERENCE_FAILS = "reference_fails", "the solution does not earn the full reward"
    NOTHING_TO_VERIFY = "nothing_to_verify", "the solution changes nothing, and nothing else is judged"
    STATE_UNSEEN = "state_unseen", "tools that write were called, and the state never changed"
    NOTHING_SCORES = "nothing_scores", "doing nothing earns a reward"
    ECHO_SCORES = "echo_scores", "repeating the user's words earns a reward"
    CANNED_SCORES = "canned_scores", "a canned answer earns a reward"
    POLICY_SCORES = "policy_scores", "reciting the system text earns a reward"
    RANDOM_SCORES = "random_scores", "random calls earn the full reward"
    ALL_CALLS_SCORE = "all_calls_score", "making every call of all solutions earns the full reward"
    INCOMPLETE_SCORES = "incomplete_scores", "the solution without its last write earns the full reward"
    OTHER_SCORES = "other_scores", "the solution of another task earns the full reward"
    MUTATED_SCORES = "mutated_scores", "the reward does not see that the solution's final state was altered"
    IMPURE_CHECK = "impure_check", "two runs of the checks on one state differ"
    INTEGRITY = "integrity", "the schema refuses the state at the start or after the solution"
    CONTRACT = "contract", "a call of the solution changes a table that its tool does not declare"
    GATE_REFUSES = "gate_refuses", "the verification gate has another fault; the detail names it"
    # discovery and assessment of environments
    STATELESS_TASK = "stateless_task", "the task needs no persistent state of a domain"
    LOW_USEFULNESS = "low_usefulness", "the environment is less useful than the config asks for"
    LOW_MODELABILITY = "low_modelability", "the environment is harder to model than the config allows"
    DUPLICATE_THEME = "duplicate_theme", "another task led to nearly the same environment, which is kept"
    ASSESSMENT_FAILED = "assessment_failed", "too small a share of the test calls behaved as they should"
    ASSESSMENT_UNREADABLE = "assessment_unreadable", "too many rounds of the assessment had no reply that could be read"
    ASSESSMENT_UNTESTED = "assessment_untested", "too few test calls reached the code of a tool"
    CHECKER_BLIND = "checker_blind", "the check agent passed calls whose record was falsified on purpose"
    # coding problems and gyms
    BAD_PROBLEM = (
        "bad_problem",
        "the row of a problem cannot be read, has no statement or no solution, or its solution fails its own asserts",
    )
    UNIFIED_FAILS = (
        "unified_fails",
        "the unified solution fails on its examples, or returns two answers for the same inputs",
    )
    SOLUTION_DIFFERS = "solution_differs", "the unified solution and the original return different answers"
    GYM_MALFORMED = (
        "gym_malformed",
        "the code of a gym does not have the form of a gym: class, tools, types, docstrings, example calls",
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
    UNEXPECTED_FAILURE = (
        "unexpected_failure",
        "a call ends in an exception that is not a refusal, in a crash or at a limit",
    )
    DANGLING_KEY = "dangling_key", "a call leaves a state that the schema does not allow"
    UNKNOWN_ID = "unknown_id", "a call returns an id that no row has and no tool finds"
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

    # expansion of chains
    REPLAY_DIFFERS = (
        "replay_differs",
        "the chain does not execute in the state, or has another effect when it is repeated",
    )
    TOO_FEW_VISIBLE = "too_few_visible", "fewer tools around the chain can be executed than the config asks for"

    # conversations over composed environments
    NOT_COMPOSABLE = (
        "not_composable",
        "the environments cannot be joined: a test of one of them fails in the composition",
    )
    QUERY_UNUSABLE = (
        "query_unusable",
        "no reply has a usable query for each turn: none is missing, and none names a tool",
    )
    TURN_UNSOLVED = "turn_unsolved", "no solver has a right solution of the first turn"

    # variants of tasks that an agent always or never solves
    NOT_MEASURED = "not_measured", "no episode of the agent that measures difficulty has a reward"
    CHANGE_NOT_MADE = "change_not_made", "the variant does not differ from its task in the way that was asked for"

    # environments from sources
    SOURCE_UNREADABLE = "source_unreadable", "the source cannot be read, or its server does not list its tools"
    SEARCH_FAILS = "search_fails", "the search function fails, or does not return a list of documents"
    QUOTE_NOT_FOUND = "quote_not_found", "too few quotes of the proposal occur in the source that they name"
    POOL_HAS_IT = "pool_has_it", "a pack of the pool is nearly the same environment"
    DUPLICATE_PROPOSAL = "duplicate_proposal", "an earlier or better proposal is nearly the same environment"

    # tasks from chains
    NO_CHAIN = (
        "no_chain",
        "the graph of the tools gives no chain that differs from earlier ones and has a tool that writes",
    )
    CHAIN_IMPOSSIBLE = "chain_impossible", "the writer finds no request of a user that needs the sampled tools"
    CHAIN_FAILS = "chain_fails", "the chain does not execute in its initial state after the repairs"
    CHAIN_CHANGES_NOTHING = "chain_changes_nothing", "the chain executes, and leaves the state as it was"
    CHAIN_SKIPS_TOOL = "chain_skips_tool", "the code of the chain never calls a sampled tool when it is executed"
    CHAIN_UNGROUNDED = (
        "chain_ungrounded",
        "a call of the chain has a value that the user does not know and no earlier result gives",
    )
    CHAIN_BY_PLACE = "chain_by_place", "what the chain does depends on the order of the rows in results"
    TASK_UNGROUNDED = (
        "task_ungrounded",
        "the user's words lack a value that the chain needs, or name one that it does not use",
    )


def explain_reason(reason: str) -> str:
    """Return the meaning of a reason code; empty for one of another version."""
    return Reason(reason).meaning if reason in set(Reason) else ""


class Refused(Exception):  # noqa: N818 - a verdict, not a mistake
    """The item of a stage has no output: a stage raises this with the reason, and a line of detail."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class Unreadable(ValueError):  # noqa: N818 - a verdict on a reply
    """A reply does not have the requested form. A parser raises this with a message that the model sees before it is asked again."""


@contextlib.contextmanager
def name_refusal(reason: Reason | Callable[[], Reason]) -> Iterator[None]:
    """Replace the reason `unreadable_reply` of a refusal in this context by `reason`."""
    try:
        yield
    except Refused as refused:
        if refused.reason is not Reason.UNREADABLE_REPLY:
            raise
        raise Refused(reason if isinstance(reason, Reason) else reason(), refused.detail) from None
