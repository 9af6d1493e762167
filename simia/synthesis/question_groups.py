"""Ask several independent questions of one item together, such as the samples of a vote."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def ask_together(*questions: Awaitable[T]) -> list[T]:
    """Await all questions, even if one fails, and return their results in order. If some failed, raise the first failure in order.

    In a batch run, a session writes the questions of a group to the batch file, and each raises an exception then. `asyncio.TaskGroup` would
    cancel the others at the first exception, so each session would write only one question.
    """
    found = await asyncio.gather(*questions, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if not isinstance(each, BaseException)]
