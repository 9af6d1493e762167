"""What a job and its workers on other nodes send each other: batches of messages, and errors as values.

A message is (kind, number, value). A job sends `complete`, `produce`, `open`, `keys`, `fetch` and `cancel`, and a worker answers each but the
last with `done` and the same number. A worker sends `ask`, `drop` and `note`, and the job answers `ask` with `answer`. Batches are
pickled: all members of a Ray cluster trust one another, and run the same version of simia.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

from simia.errors import Code, UserError
from simia.llm.engine import BudgetReached
from simia.llm.types import LLMFault

Message = tuple[str, int, Any]
WireError = tuple[str, dict[str, Any]]
BUDGET_FIELDS = ("cap", "limit", "spent", "held")
FAULT_FIELDS = ("detail", "retry", "retry_after", "status")


def pack_batch(messages: Sequence[Message]) -> bytes:
    return pickle.dumps(list(messages), protocol=5)


def unpack_batch(batch: bytes) -> list[Message]:
    found: list[Message] = pickle.loads(batch)
    return found


def encode_error(error: BaseException) -> WireError:
    """Return an error as plain values, since exceptions with arguments of their own cannot be pickled."""
    if isinstance(error, LLMFault):
        fields = {name: getattr(error, name) for name in FAULT_FIELDS}
        return "fault", {"code": str(error.code), "elsewhere": error.elsewhere, **fields}
    if isinstance(error, BudgetReached):
        return "budget", {"text": str(error), **{name: getattr(error, name) for name in BUDGET_FIELDS}}
    if isinstance(error, UserError):
        return "user", {"text": str(error)}
    if isinstance(error, asyncio.CancelledError):
        return "cancelled", {}
    return "bug", {"text": f"{type(error).__name__}: {error}"}


def decode_error(error: WireError) -> BaseException:
    """Return the exception of `encode_error`; a `RuntimeError` for a bug."""
    kind, fields = error
    if kind == "fault":
        fault = LLMFault(Code(fields["code"]), **{name: fields[name] for name in FAULT_FIELDS})
        fault.elsewhere = fields["elsewhere"]
        return fault
    if kind == "budget":
        reached = BudgetReached(*(fields[name] for name in BUDGET_FIELDS))
        reached.args = (fields["text"],)
        return reached
    if kind == "user":
        return UserError(fields["text"])
    return asyncio.CancelledError() if kind == "cancelled" else RuntimeError(fields["text"])
