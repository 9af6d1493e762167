"""The environment of a worker: opened once in a process, by whichever episode comes first, and used by all of them.

verl makes an agent loop for each sample, so the environment cannot be the loop's. It belongs to the event loop that it was
opened in, and is closed with the process (its children die with it) or by `close_all`. So are the places for its episodes.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from weakref import WeakKeyDictionary

from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.trainers.verl.settings import VerlSettings

log = logging.getLogger(__name__)
Opening = asyncio.Task[Environment]
_opened: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Opening]] = WeakKeyDictionary()
_places: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, asyncio.Semaphore]] = WeakKeyDictionary()


async def get_environment(settings: VerlSettings) -> Environment:
    """The process's environment of these settings. Raises `UserError` for what must be changed."""
    loop = asyncio.get_running_loop()
    mine = _opened.setdefault(loop, {})
    key = settings.model_dump_json(include={"stage", "store"})
    if key not in mine:
        store = Path(settings.store) if settings.store else None
        mine[key] = loop.create_task(open_environment(settings.stage, store=store, say=log.info))
    opening = mine[key]
    try:
        return await asyncio.shield(opening)  # one episode that is cancelled must not take it from the others
    finally:
        if opening.done() and (opening.cancelled() or opening.exception() is not None):
            mine.pop(key, None)  # the next one tries again, and says it again


def take_place(settings: VerlSettings) -> AbstractAsyncContextManager[None]:
    """One of the places for episodes under way on the process's environment of these settings (`play.at_once`)."""
    most = settings.play.at_once
    if most is None:
        return nullcontext()
    mine = _places.setdefault(asyncio.get_running_loop(), {})
    return mine.setdefault(settings.model_dump_json(include={"stage", "store"}), asyncio.Semaphore(most))


async def close_all() -> None:
    """Close what this event loop opened; for tests and for who ends a worker in an orderly way."""
    for opening in list(_opened.pop(asyncio.get_running_loop(), {}).values()):
        environment = await opening
        await environment.close()
