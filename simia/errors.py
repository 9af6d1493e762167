"""The error model of simia: one taxonomy of reason codes, and one exception for the user's own mistakes.

Errors are data (law 1 of docs/architecture.md): a bad reply, a failed call or a rejected trajectory becomes an
`Issue` with a `Code`, stored in the record that it concerns. Only a problem that the user must fix (a config,
a file, a key) raises an exception: `UserError`, with one line that says what to do.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class MeaningfulCode(StrEnum):
    """A reason code with its meaning: the base of `Code` and of a package's own codes."""

    meaning: str
    """One line for reports: the meaning of the reason."""

    def __new__(cls, value: str, meaning: str = "") -> Self:
        code = str.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code


class Code(MeaningfulCode):
    """Why something was refused or failed. Values are stable: ledgers and data sets hold them."""

    # reading rows and packs
    BAD_JSON = "bad_json", "the line is not JSON"
    BAD_ROW = "bad_row", "the row does not have the dialect's shape"
    BAD_TOOLS = "bad_tools", "the tool list cannot be read"
    UNKNOWN_ROLE = "unknown_role", "a message has a role that the dialect does not know"
    UNKNOWN_PART = "unknown_part", "a message has a part that is not text, such as an image, or of an unknown type"
    TOO_LARGE = "too_large", "the row or the reply is larger than the reader accepts"
    NO_TOOL_USE = "no_tool_use", "the trajectory calls no tool"
    # talking to a model
    RATE_LIMITED = "rate_limited", "the endpoint said: too many requests"
    TIMEOUT = "timeout", "the endpoint did not answer in time"
    CONNECTION = "connection", "the endpoint could not be reached, or the connection broke"
    SERVER_ERROR = "server_error", "the endpoint failed (5xx)"
    BAD_REQUEST = "bad_request", "the endpoint refused the request (4xx)"
    AUTH = "auth", "the endpoint refused the key"
    NOT_FOUND = "not_found", "the endpoint knows no such model or path"
    BAD_REPLY_BODY = "bad_reply_body", "the endpoint's body is not a chat completion"
    REPLAY_MISS = "replay_miss", "no recorded completion for this prompt"
    CONTENT_FILTER = "content_filter", "the endpoint's content filter stopped the reply"
    PENDING = "pending", "the question is written down and waits for its answer"
    # reading a model's reply
    EMPTY_REPLY = "empty_reply", "the reply is empty"
    UNPARSABLE = "unparsable", "the reply has no trajectory that can be read"
    TRUNCATED = "truncated", "the reply was cut at its token limit"
    # checking a trajectory
    REFUSAL = "refusal", "the model refused to write a trajectory"
    UNKNOWN_TOOL = "unknown_tool", "a call names a tool that is not in the list"
    BAD_ARGUMENTS = "bad_arguments", "a call's arguments break the tool's schema"
    UNPARSABLE_ARGUMENTS = "unparsable_arguments", "a call's arguments are not JSON and could not be repaired"
    ROLE_ORDER = "role_order", "messages do not follow the order user, assistant, tool"
    UNPAIRED_CALL = "unpaired_call", "a call has no result"
    UNPAIRED_RESULT = "unpaired_result", "a result has no call"
    BAD_ENDING = "bad_ending", "the trajectory does not end with an answer of the assistant"
    EMPTY_TURN = "empty_turn", "a turn has neither text nor calls"
    LEAK = "leak", "a turn shows the prompt's or the format's own markers"
    OVER_BUDGET = "over_budget", "the trajectory is longer than the training context"
    UNGROUNDED_ID = "ungrounded_id", "a call uses an identifier that nobody gave"
    LANGUAGE = "language", "its texts are in another language than its seed's"
    GOAL_MISSED = "goal_missed", "a goal that was planned for the conversation is not addressed"
    WRONG_AMOUNT = (
        "wrong_amount",
        "an answer names an amount of money that does not follow from results, user or policy",
    )
    WRONG_DATE = (
        "wrong_date",
        "an answer names a date, weekday or time that does not follow from results, user or policy",
    )
    WRONG_COUNT = "wrong_count", "an answer counts the rows of a result wrongly"
    WRONG_IDENTIFIER = "wrong_identifier", "an answer names an identifier or address that was not given before"
    CLAIMED_ACTION = "claimed_action", "the assistant says that it did something, and no successful call did it"
    WRONG_ENTITY = "wrong_entity", "a result is about another entity than its call named"
    CONTRADICTING_RESULTS = "contradicting_results", "a result contradicts an earlier one, and no call changed it"
    NO_CONSENT = "no_consent", "a call changes something before the user agreed, although the policy wants consent"
    NO_LOOKUP = (
        "no_lookup",
        "a call changes something that was not looked up before, although the policy or the seed does so",
    )
    WRONG_WRITTEN_VALUE = (
        "wrong_written_value",
        "a call, its result or the answer has another value than the user gave or the call wrote",
    )
    # selecting
    DUPLICATE = "duplicate", "the same trajectory was accepted before"
    SEED_COPY = "seed_copy", "the trajectory is its seed again"
    NEAR_DUPLICATE = "near_duplicate", "nearly the same trajectory was accepted before, or is a seed"
    CONTAMINATED = "contaminated", "it repeats a named benchmark's words or calls"
    BREAKS_SUITE = "breaks_suite", "it breaks a rule of its suite's environment"
    JUDGED_BAD = "judged_bad", "the judging model found a fault"
    NO_VERDICT = "no_verdict", "the judging model gave no verdict that can be read"
    LOW_REWARD = "low_reward", "its reward is lower than asked for"
    IMPOSSIBLE = "impossible", "the teacher says that the task cannot be done, or no sample of the task earned a reward"
    TOO_LONG = "too_long", "the episode has more turns or tokens than asked for, or a limit cut it"
    BAD_FORMAT = "bad_format", "the episode has a malformed call, an empty turn or a marker of a prompt or template"
    SUPERSEDED = "superseded", "the training was resumed from an earlier step and played this one again"
    # exporting
    UNEXPRESSIBLE = "unexpressible", "the target format or its trainer cannot carry this without loss"
    # a tool's own error, as an observation the agent can act on
    TOOL_ERROR = "tool_error", "the tool answered with an error"
    TOOL_FAILED = "tool_failed", "the tool itself failed; nothing was changed"
    TOOL_TIMEOUT = "tool_timeout", "the tool took too long and was stopped; nothing was changed"
    TOOL_CRASHED = "tool_crashed", "the tool's process ended; nothing was changed"
    RESOURCE_LIMIT = (
        "resource_limit",
        "the sandbox used more memory or files than it may and was ended, and the episode with it",
    )
    # how an episode ended
    USER_STOP = "user_stop", "the user ended the conversation"
    ANSWERED = "answered", "the agent gave its answer"
    FINISHED = "finished", "a call ended the episode"
    MAX_TURNS = "max_turns", "the episode reached its limit of turns"
    MAX_ERRORS = "max_errors", "too many calls failed in a row"
    MAX_CALLS = "max_calls", "the agent reached its limit of calls"
    MAX_TOKENS = "max_tokens", "the agent reached its limit of tokens"
    USER_FAILED = "user_failed", "whoever plays the user failed"
    AGENT_FAILED = "agent_failed", "the agent's model or function gave no message"
    # infrastructure of an episode
    NO_START = "no_start", "the task could not be set up"
    WORKER_LOST = "worker_lost", "the process that runs the world was lost"
    REPLAY_DIVERGED = (
        "replay_diverged",
        "a call repeated after a crash gave another result: the world is not deterministic",
    )
    CONTRADICTION = (
        "contradiction",
        "a simulated answer contradicts what was said before, also when it was asked for anew",
    )
    UNSCORED = "unscored", "the reward could not be judged"
    CHECK_TIMEOUT = "check_timeout", "a check took too long and was stopped, so the reward could not be judged"
    REWARD_FUNCTION = "reward_function", "the config's own reward function failed or gave no reward"
    BUDGET = "budget", "the budget was reached before this could be asked: raise it and resume"
    # the code failed, not the data
    INTERNAL = "internal", "simia itself failed on this record; please report it"


WAITING = (Code.PENDING, Code.BUDGET)
"""Requests with these codes are sent again when the run is resumed: they wait for a batch's answer, or for a larger budget."""


class Issue(BaseModel):
    """One finding on a record: a reason code, where it is (`messages[3].calls[0]`), and a line a person can read."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    code: Code
    """The reason."""
    where: str = ""
    """The place in the record, such as `messages[3].calls[0]`; empty: the whole record."""
    detail: str = ""
    """A line for people; empty: the code's meaning says enough."""

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return f"{self.code}{at}: {self.detail or self.code.meaning}"


class UserError(Exception):
    """Something the user must change. The message is one line: what is wrong, and what to do about it."""


class MissingKeyError(UserError):
    """The environment holds no key for an endpoint. A dry run, which sends nothing, continues without it."""


class SandboxStartError(UserError):
    """A sandbox ended, or took too long, before the pack's code was loaded. Either the code or the machine may be the cause."""


def explain_json_error(error: json.JSONDecodeError) -> str:
    """Say what is wrong with a JSON text, and where. A text that ends too early is reported as such. Also for errors of orjson."""
    place = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
    problem = "it ends too early" if error.pos >= len(error.doc.rstrip()) else error.msg
    return f"not JSON: {problem} ({place})"


def require_type(name: str, value: object, *types: type) -> None:
    """Raise `TypeError` in one line unless an argument of a public function is of one of these types."""
    if not isinstance(value, types):
        expected = " or ".join(each.__name__ for each in types)
        raise TypeError(f"{name}: expected {expected}, got {value!r:.60}")


class Aborted(Exception):  # noqa: N818 - an ending, not a mistake
    """Infrastructure failed (endpoint, disk, process). The run stops or tries again; no data is judged.

    `facts["own"]`: whether the episode's own calls caused it; the episode then counts as truncated and is scored as it stands.
    """

    def __init__(self, code: Code, detail: str = "", **facts: Any) -> None:
        super().__init__(f"{code}: {detail or code.meaning}")
        self.code = code
        self.detail = detail
        self.facts = facts
