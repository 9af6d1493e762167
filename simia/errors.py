"""The error model of simia: one taxonomy of reason codes, and one exception for the user's own mistakes.

Errors are data (law 1 of docs/house.md): a bad reply, a failed call or a rejected trajectory becomes an
`Issue` with a `Code` and travels in the record that it concerns. Only what the user must change (a config,
a file, a key) raises, as `UserError`, with one line that says what to do.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class Code(StrEnum):
    """Why something was refused or failed. Values are stable: they stand in ledgers and data sets."""

    # reading rows and packs
    BAD_JSON = "bad_json"
    BAD_ROW = "bad_row"
    BAD_TOOLS = "bad_tools"
    UNKNOWN_ROLE = "unknown_role"
    TOO_LARGE = "too_large"
    NO_TOOL_USE = "no_tool_use"
    # talking to a model
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    SERVER_ERROR = "server_error"
    BAD_REQUEST = "bad_request"
    AUTH = "auth"
    NOT_FOUND = "not_found"
    BAD_REPLY_BODY = "bad_reply_body"
    REPLAY_MISS = "replay_miss"
    CONTENT_FILTER = "content_filter"
    PENDING = "pending"
    # reading a model's reply
    EMPTY_REPLY = "empty_reply"
    UNPARSABLE = "unparsable"
    TRUNCATED = "truncated"
    # checking a trajectory
    REFUSAL = "refusal"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    UNPARSABLE_ARGUMENTS = "unparsable_arguments"
    ROLE_ORDER = "role_order"
    UNPAIRED_CALL = "unpaired_call"
    UNPAIRED_RESULT = "unpaired_result"
    BAD_ENDING = "bad_ending"
    EMPTY_TURN = "empty_turn"
    LEAK = "leak"
    OVER_BUDGET = "over_budget"
    UNGROUNDED_ID = "ungrounded_id"
    # selecting
    DUPLICATE = "duplicate"
    SEED_COPY = "seed_copy"
    NEAR_DUPLICATE = "near_duplicate"
    CONTAMINATED = "contaminated"
    BREAKS_SUITE = "breaks_suite"
    JUDGED_BAD = "judged_bad"
    LOW_REWARD = "low_reward"
    # exporting
    UNEXPRESSIBLE = "unexpressible"
    # a tool's own error, as an observation the agent can act on
    TOOL_ERROR = "tool_error"
    TOOL_FAILED = "tool_failed"
    TOOL_TIMEOUT = "tool_timeout"
    TOOL_CRASHED = "tool_crashed"
    RESOURCE_LIMIT = "resource_limit"
    # how an episode ended
    USER_STOP = "user_stop"
    ANSWERED = "answered"
    FINISHED = "finished"
    MAX_TURNS = "max_turns"
    MAX_ERRORS = "max_errors"
    MAX_TOKENS = "max_tokens"
    USER_FAILED = "user_failed"
    AGENT_FAILED = "agent_failed"
    # infrastructure of an episode
    NO_START = "no_start"
    WORKER_LOST = "worker_lost"
    REPLAY_DIVERGED = "replay_diverged"
    CONTRADICTION = "contradiction"
    UNSCORED = "unscored"
    BUDGET = "budget"
    # the code failed, not the data
    INTERNAL = "internal"

    @property
    def meaning(self) -> str:
        """One line for reports: what this reason says of the record."""
        return MEANING[self]


MEANING: dict[Code, str] = {
    Code.BAD_JSON: "the line is not JSON",
    Code.BAD_ROW: "the row does not have the dialect's shape",
    Code.BAD_TOOLS: "the tool list cannot be read",
    Code.UNKNOWN_ROLE: "a message has a role that the dialect does not know",
    Code.TOO_LARGE: "the row or the reply is larger than the reader accepts",
    Code.NO_TOOL_USE: "the trajectory calls no tool",
    Code.RATE_LIMITED: "the endpoint said: too many requests",
    Code.TIMEOUT: "the endpoint did not answer in time",
    Code.CONNECTION: "the endpoint could not be reached, or the connection broke",
    Code.SERVER_ERROR: "the endpoint failed (5xx)",
    Code.BAD_REQUEST: "the endpoint refused the request (4xx)",
    Code.AUTH: "the endpoint refused the key",
    Code.NOT_FOUND: "the endpoint knows no such model or path",
    Code.BAD_REPLY_BODY: "the endpoint's body is not a chat completion",
    Code.REPLAY_MISS: "no recorded completion for this prompt",
    Code.PENDING: "the question is written down and waits for its answer",
    Code.CONTENT_FILTER: "the endpoint's content filter stopped the reply",
    Code.EMPTY_REPLY: "the reply is empty",
    Code.UNPARSABLE: "the reply has no trajectory that can be read",
    Code.TRUNCATED: "the reply was cut at its token limit",
    Code.REFUSAL: "the model refused to write a trajectory",
    Code.UNKNOWN_TOOL: "a call names a tool that is not in the list",
    Code.BAD_ARGUMENTS: "a call's arguments break the tool's schema",
    Code.UNPARSABLE_ARGUMENTS: "a call's arguments are not JSON and could not be repaired",
    Code.ROLE_ORDER: "messages do not follow the order user, assistant, tool",
    Code.UNPAIRED_CALL: "a call has no result",
    Code.UNPAIRED_RESULT: "a result has no call",
    Code.BAD_ENDING: "the trajectory does not end with an answer of the assistant",
    Code.EMPTY_TURN: "a turn has neither text nor calls",
    Code.LEAK: "a turn shows the prompt's or the format's own markers",
    Code.OVER_BUDGET: "the trajectory is longer than the training context",
    Code.UNGROUNDED_ID: "a call uses an identifier that nobody gave",
    Code.DUPLICATE: "the same trajectory was accepted before",
    Code.SEED_COPY: "the trajectory is its seed again",
    Code.NEAR_DUPLICATE: "nearly the same trajectory was accepted before, or is a seed",
    Code.CONTAMINATED: "it repeats a named benchmark's words or calls",
    Code.BREAKS_SUITE: "it breaks a rule of its suite's environment",
    Code.JUDGED_BAD: "the judging model found a fault",
    Code.LOW_REWARD: "its reward is lower than asked for",
    Code.UNEXPRESSIBLE: "the target format or its trainer cannot carry this without loss",
    Code.TOOL_ERROR: "the tool answered with an error",
    Code.TOOL_FAILED: "the tool itself failed; nothing was changed",
    Code.TOOL_TIMEOUT: "the tool took too long and was stopped; nothing was changed",
    Code.TOOL_CRASHED: "the tool's process ended; nothing was changed",
    Code.RESOURCE_LIMIT: "the sandbox used more memory or files than it may and was ended, and the episode with it",
    Code.USER_STOP: "the user ended the conversation",
    Code.ANSWERED: "the agent gave its answer",
    Code.FINISHED: "a call ended the episode",
    Code.MAX_TURNS: "the episode reached its limit of turns",
    Code.MAX_ERRORS: "too many calls failed in a row",
    Code.MAX_TOKENS: "the agent reached its limit of tokens",
    Code.USER_FAILED: "whoever plays the user failed",
    Code.AGENT_FAILED: "the agent's model could not be asked",
    Code.NO_START: "the task could not be set up",
    Code.WORKER_LOST: "the process that runs the world was lost",
    Code.REPLAY_DIVERGED: "a call repeated after a crash gave another result: the world is not deterministic",
    Code.CONTRADICTION: "a simulated answer contradicts what was said before, also when it was asked for anew",
    Code.UNSCORED: "the reward could not be judged",
    Code.BUDGET: "the budget was reached before this could be asked: raise it and resume",
    Code.INTERNAL: "simia itself failed on this record; please report it",
}


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


class Aborted(Exception):  # noqa: N818 - an ending, not a mistake
    """Infrastructure gave way (endpoint, disk, process). Carries a code; the run stops or tries again, no data is judged.

    `facts["own"]`: whether the episode's own calls brought it about; then it is scored with what there is.
    """

    def __init__(self, code: Code, detail: str = "", **facts: Any) -> None:
        super().__init__(f"{code}: {detail or code.meaning}")
        self.code = code
        self.detail = detail
        self.facts = facts
