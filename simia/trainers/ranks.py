"""Ranks of one training: what one of them must stop for, all stop for, and one of them says so.

A rank that raises alone leaves the others waiting for it in the trainer's next exchange, under some launchers for half an hour.
`agreed` stands where every rank is sure to come: at the end of a batch of episodes. Without ranks it costs nothing; torch is not imported
here, for a process that has ranks has it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from simia.errors import UserError

T = TypeVar("T")


class Stopped(UserError):  # noqa: N818 - of all ranks, by one's mistake
    """Raised by all ranks alike; the first one says it."""


def find_process_group() -> Any:
    """torch.distributed where there are ranks that can talk; else None."""
    torch = sys.modules.get("torch")
    found = getattr(torch, "distributed", None)
    return found if found is not None and found.is_available() and found.is_initialized() else None


def find_rank() -> int:
    """This rank's number; before ranks can talk, as the launcher gave it."""
    found = find_process_group()
    return int(found.get_rank() if found is not None else os.environ.get("RANK", "0"))


def gather_values(value: T) -> list[T]:
    """Every rank's value, in their order. All ranks must call it."""
    found = find_process_group()
    if found is None:
        return [value]
    values: list[Any] = [None] * found.get_world_size()
    found.all_gather_object(values, value)
    return values


def run_on_all_ranks(work: Callable[[], T]) -> T:
    """What this rank's work returns. Where it raises on any rank, all raise: `Stopped`, with the first such rank's words, or what is
    no `UserError` as it is. All ranks must call it, and the work must not wait for other ranks."""
    if find_process_group() is None:
        return work()
    fault: Exception | None = None
    try:
        found = work()
    except Exception as error:
        fault = error
    words = (
        None if fault is None else str(fault) if isinstance(fault, UserError) else f"{type(fault).__name__}: {fault}"
    )
    said = gather_values(words)
    if fault is not None and not isinstance(fault, UserError):
        raise fault
    for number, each in enumerate(said):
        if each is not None:
            raise Stopped(each if len(set(said)) == 1 else f"rank {number}: {each}")
    return found
