"""Ask several independent questions of one item together, such as the samples of a vote."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def ask_together(*questions: Awaitable[T]) -> list[T]:
    """Await all of these, also where one fails, and return their results in order; then raise the first failure in order.

    A batch writes down all questions of the group in one session. `asyncio.TaskGroup` cancels the others when the first one is
    written down, so each session would write one question.
    """
    found = await asyncio.gather(*questions, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return [each for each in found if not isinstance(each, BaseException)]
