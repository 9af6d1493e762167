"""Environment: a pack opened by a back end, shared by all its episodes.

    async with await open_environment("customer_service", backend="executable") as environment:
        episode = await environment.reset("cs-001")
        step = await episode.step(Message(role="assistant", calls=[...]))
        reward = await episode.score()

A back end opens worlds (tools, calls, state). Users, turns, limits and rewards are here and in `simia.envs.episode`, once, whatever
the world.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from simia.envs.episode import Episode, EpisodeLimits, Sample, Step
from simia.envs.users import LLMUser, NoUser, ScriptedUser, User
from simia.envs.worlds.world import Backend
from simia.errors import Aborted, UserError
from simia.pack import Pack
from simia.scorer import Scorer
from simia.task import Task

if TYPE_CHECKING:
    from simia.llm.engine import Engine

__all__ = ["USERS", "Environment", "Episode", "EpisodeLimits", "Sample", "Step", "backends", "open_environment"]

UserMaker = Callable[[Task], User]
USERS: dict[str, UserMaker] = {"none": NoUser, "scripted": ScriptedUser}


class Environment:
    """Use `open_environment`. `reset` any number of episodes at once."""

    def __init__(
        self,
        pack: Pack,
        backend: Backend,
        *,
        backend_name: str,
        user: UserMaker,
        limits: EpisodeLimits | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        self.pack, self.backend, self.backend_name = pack, backend, backend_name
        self.limits = limits or EpisodeLimits()
        self.user = user
        self.scorer = scorer
        """Who judges in place of the tasks' rules; None: the back end's own judge, if it has one."""
        self.rules_only = False
        """No judge at all: what cannot be judged by rules stays without a reward."""
        self.tasks = pack.tasks
        """The tasks to play: the pack's, or those that whoever opened it chose."""
        self.closing: AsyncExitStack | None = None
        """What is closed with it: the back end and whatever was opened for it; None: the back end alone."""

    @property
    def judge(self) -> Scorer | None:
        """Who judges: the one given, or the back end's own (a simulated world has no state to compare); None: the rules."""
        return None if self.rules_only else self.scorer or getattr(self.backend, "scorer", None)

    async def reset(
        self, task: Task | str, *, seed: int = 0, group: str | None = None, name: str | None = None
    ) -> Episode:
        """A new episode, with the user's first words in it. Episodes of one `group` share a task and what is drawn by simulation;
        `name` tells the draws of a model that plays the user from those of other episodes.

        Raises `UserError` for a task that does not exist or cannot be set up; lost infrastructure is an aborted episode.
        """
        task = self.pack.task(task) if isinstance(task, str) else task
        try:
            world = await self.backend.open(task, seed=seed, group=group)
        except Aborted as error:
            return Episode.aborted(self, task, seed, error)
        episode: Episode | None = None
        try:
            user = self.user(task)
            if name is not None and isinstance(user, LLMUser):
                user.name = name
            episode = Episode(self, task, world, user, seed=seed, group=group)
            await episode.begin()
        except BaseException:  # cancelled too: nobody gets the episode, so nobody else closes its world
            await asyncio.shield(world.close() if episode is None else episode.close())
            raise
        return episode

    async def close(self) -> None:
        closing, self.closing = self.closing, None
        await (self.backend.close() if closing is None else closing.aclose())

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def open_environment(
    pack: Pack | str,
    *,
    backend: str | Mapping[str, str] = "executable",
    user: str | UserMaker | None = None,
    limits: EpisodeLimits | None = None,
    scorer: Scorer | None = None,
    player: Engine | None = None,
    **settings: Any,
) -> Environment:
    """Open a pack (or the name or path of one) by a back end. `settings` go to the back end: `isolation`, `unsafe`, `knowledge`, …

    `backend`: `executable`, `simulated`, `shadow` (both, compared), one of an entry point, or a back end for each tool, such as
    `{"*": "simulated", "get_order": "executable"}`.
    `user`: `none`, `scripted`, `llm`, or a function that makes one of a task; None: as the pack says. `player`: the engine of the
    model that plays the user (unset: the simulator's). `scorer`: who judges in place of the tasks' rules.
    """
    pack = Pack.load(pack) if isinstance(pack, str) else pack
    makers = backends()
    if isinstance(backend, str) and backend not in makers:
        near = difflib.get_close_matches(backend, makers, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(makers))}"
        raise UserError(f"no back end named {backend!r}; {hint}")
    name = user if isinstance(user, str) else pack.user
    if not callable(user) and name not in (*USERS, "llm"):
        raise UserError(f"no user named {name!r}; there are: {', '.join(USERS)}, llm")
    if isinstance(backend, str):
        opened: Backend = makers[backend]()(pack, **settings)
        label = backend
    else:
        from simia.envs.worlds.pair import open_mixed

        opened, label = open_mixed(pack, backend, **settings), "mixed"
    if callable(user):
        maker = user
    elif name != "llm":
        maker = USERS[name]
    elif player is None and not hasattr(opened, "engine"):
        raise UserError(f'pack {pack.name}: a model plays its user, and none was given: user="none", or a `player`')
    else:
        maker = lambda task: LLMUser(player or opened.engine, pack, task)  # type: ignore[attr-defined] # noqa: E731
    return Environment(pack, opened, backend_name=label, user=maker, limits=limits, scorer=scorer)


def backends() -> Mapping[str, Callable[[], Any]]:
    """Back ends by name, loaded when they are asked for: ours, and those of the entry-point group `simia.backends`."""
    found = {point.name: point.load for point in entry_points(group="simia.backends")}
    return {
        "executable": _executable,
        "simulated": _simulated,
        "shadow": _shadow,
        **found,
    }  # a checkout that is on the path, but not installed, has no entry points


def _executable() -> Any:
    from simia.envs.worlds.executable import open_backend

    return open_backend


def _simulated() -> Any:
    from simia.envs.worlds.simulated import open_backend

    return open_backend


def _shadow() -> Any:
    from simia.envs.worlds.pair import open_shadow

    return open_shadow
