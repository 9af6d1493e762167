"""Worlds that give way on purpose: of code, and of a model behind the fake endpoint. Probes in trainers' environments import it too,
so it needs no pytest."""

from __future__ import annotations

import itertools
import json
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from simia.envs import opening
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Aborted, Code
from simia.pack import Pack

if TYPE_CHECKING:
    from tests.trainers.conformance import Case


@contextmanager
def losing(case: Case, after: int) -> Iterator[dict[str, Any]]:
    """A stage whose world gives way after so many calls; of a simulated one it is the endpoint that does."""
    if case.kind == "simulated":
        if after:
            plan_endpoint(case, script=["ok"], rate=1.0, mix=["500"])
        yield case.stage()
        return
    opening.BACKENDS["losing"] = Losing
    try:
        yield case.stage(backend="losing", backend_settings={"after": after})
    finally:
        del opening.BACKENDS["losing"]


class Losing(ExecutableBackend):
    """Worlds of code that are lost: at once, or after some messages with calls."""

    def __init__(self, pack: Pack, *, after: int = 0, **settings: Any) -> None:
        super().__init__(pack, **settings)
        self._after = after

    async def open(self, task: Any, **how: Any) -> Any:
        if not self._after:
            raise Aborted(Code.WORKER_LOST, "on purpose")
        return Lost(await super().open(task, **how), self._after)


class Unsteady:
    """A back end of which these worlds, counted from 1 as they are asked for, cannot be had, and those are lost at their first call.
    `most`: how many are lost; the first ones that are called."""

    def __init__(
        self, backend: Any, *, refused: Collection[int] = (), lost: Collection[int] = (), most: int | None = None
    ) -> None:
        self._backend, self._refused, self._abort_unstarted, self._numbers = backend, refused, lost, itertools.count(1)
        self._left = len(lost) if most is None else most

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def open(self, task: Any, **how: Any) -> Any:
        number = next(self._numbers)
        if number in self._refused:
            raise Aborted(Code.WORKER_LOST, "on purpose")
        world = await self._backend.open(task, **how)
        return Lost(world, may=self._take) if number in self._abort_unstarted else world

    def _take(self) -> bool:
        self._left -= 1
        return self._left >= 0


class Lost:
    """A world that is lost after so many messages with calls, if it may be."""

    def __init__(self, world: Any, left: int = 0, may: Callable[[], bool] = lambda: True) -> None:
        self._world, self._left, self._may = world, left, may

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    async def call(self, *args: Any, **kwargs: Any) -> Any:
        if not self._left and self._may():
            raise Aborted(Code.WORKER_LOST, "on purpose")
        self._left = max(0, self._left - 1)
        return await self._world.call(*args, **kwargs)


def plan_endpoint(case: Case, **plan: Any) -> None:
    url = str(case.more["llm"]["base_url"]).removesuffix("/v1")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.open(url + "/_plan", data=json.dumps({"log": False, **plan}).encode(), timeout=240).close()


def break_endpoint(case: Case) -> None:
    plan_endpoint(case, rate=1.0, mix=["500"])


def mend_endpoint(case: Case) -> None:
    if case.kind == "simulated":
        plan_endpoint(case)
