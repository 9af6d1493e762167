"""Environment: a pack opened by a back end, shared by all its episodes.

    async with await open_environment("customer_service", backend="executable") as environment:
        episode = await environment.reset("cs-001")
        step = await episode.step(Message(role="assistant", calls=[...]))
        reward = await episode.score()

A back end opens worlds (tools, calls, state). The environment and its episodes add users, turns, limits and rewards; these work the same
for every back end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from simia import event_loop
from simia.envs.episode import Episode
from simia.envs.episode_limits import EpisodeLimits
from simia.envs.episode_step import Sample, Step
from simia.envs.perturbation.perturber import Perturber
from simia.envs.perturbation.settings import PerturbSettings
from simia.envs.users import LLMUser, UserMaker
from simia.envs.worlds.world import Backend
from simia.errors import Aborted, Code, SandboxStartError, UserError, require_type
from simia.pack import Pack
from simia.scorer import ScheduledScorer, Scorer
from simia.task import Task

__all__ = ["Environment", "Episode", "EpisodeLimits", "Sample", "Step"]


class Environment:
    """Start episodes of a pack's tasks, any number at once. `simia.envs.opening.open_environment` makes one."""

    def __init__(
        self,
        pack: Pack,
        backend: Backend,
        *,
        backend_name: str,
        user: UserMaker,
        limits: EpisodeLimits | None = None,
        scorer: Scorer | None = None,
        tasks: Sequence[Task] | None = None,
        perturb: PerturbSettings | None = None,
        close: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`scorer`: judges in place of the tasks' rules. `tasks`: those to play; None: all of the pack's. `perturb`: settings of the
        perturbations. `close`: closes the back end and everything that was opened for it; None: only the back end is closed."""
        self.pack, self.backend, self.backend_name = pack, backend, backend_name
        self.public_tools = {tool.name: tool.public for tool in pack.tools}
        self.public_user_tools = [tool.public for tool in pack.user_tools]
        self.limits = limits or EpisodeLimits()
        self.user = user
        self.scorer = scorer
        self.perturb = perturb
        self.tasks = pack.tasks if tasks is None else list(tasks)
        self._close = close or backend.close
        self._closed = False

    async def reset(
        self, task: Task | str, *, seed: int = 0, group: str | None = None, name: str | None = None
    ) -> Episode:
        """Start an episode, with the user's first message in it.

        Episodes of one `group` share a task and the simulator's samples. `name` identifies the episode's own samples of the user model.
        Raises `UserError` for a task that does not exist or cannot be set up. An infrastructure failure returns an aborted episode.
        """
        self.check_reset(task, seed)
        task = self.pack.task(task) if isinstance(task, str) else task
        await event_loop.share_loop()
        try:
            world = await self.backend.open(task, seed=seed, group=group)
        except Aborted as error:
            return self.abort(task, seed, error)
        except SandboxStartError as error:  # a later episode starts it again
            return self.abort(task, seed, Aborted(Code.WORKER_LOST, str(error)))
        episode: Episode | None = None
        try:
            user = self.user(task)
            if name is not None and isinstance(user, LLMUser):
                user.name = name
            episode = Episode(
                self, task, world, user, seed=seed, group=group, perturber=self._make_perturber(task, seed)
            )
            await episode.begin()
        except BaseException:  # also when cancelled: the caller does not get the episode, so its world is closed here
            await asyncio.shield(world.close() if episode is None else episode.close())
            raise
        return episode

    def _make_perturber(self, task: Task, seed: int) -> Perturber | None:
        """Make the perturber of an episode; None without perturbations."""
        if self.perturb is None:
            return None
        how = self.pack.executable
        opens = how is not None and how.repeatable  # only a repeatable world can be opened at its start a second time
        return Perturber(
            self.perturb,
            self.pack,
            task,
            seed,
            partial(self.backend.open, task, seed=seed, group=None) if opens else None,
        )

    def abort(self, task: Task, seed: int, error: Aborted) -> Episode:
        """Return an aborted episode, without a reward, for a world that could not be opened."""
        return Episode.aborted(self, task, seed, error)

    def check_reset(self, task: Task | str, seed: int) -> None:
        """Raise `UserError` if the environment is closed, and `TypeError` if an argument of `reset` has the wrong type."""
        require_type("task", task, Task, str)
        require_type("seed", seed, int)
        if self._closed:
            raise UserError("the environment is closed: open a new one with open_environment")

    def note_training_step(self, step: int) -> None:
        """Set the number of finished training steps, for a reward with a schedule. Trainers call it before they sample."""
        if isinstance(self.scorer, ScheduledScorer):
            self.scorer.note_step(step)

    async def close(self) -> None:
        """Close the back end and all that was opened for the environment. Closing twice is harmless."""
        self._closed = True
        await self._close()

    async def __aenter__(self) -> Environment:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
