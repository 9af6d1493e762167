"""Several packs in one environment: their tasks in one list, mixed by weights, and each played in its own pack.

A task's id is `PACK/ID` here, so that ids of different packs do not collide. Sandboxes of packs start when they are first needed,
and `simia.envs.worlds.worker_parents` ends the least recently used ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import PrivateAttr

from simia.envs.config import EnvironmentConfig
from simia.envs.environment import Environment
from simia.envs.episode import Episode
from simia.errors import Aborted, UserError
from simia.pack import Pack
from simia.quality.selection.mixing import compute_quotas
from simia.task import Task


class CombinedPack(Pack):
    """Several packs as one: a name, and their tasks under qualified ids. It has no tools and no policy of its own."""

    _members: dict[str, Pack] = PrivateAttr(default_factory=dict)

    @property
    def members(self) -> Mapping[str, Pack]:
        """The packs by name."""
        return self._members

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks of the packs, under qualified ids."""
        return [qualify_task(task, name) for name, pack in self._members.items() for task in pack.tasks]

    def task(self, task_id: str) -> Task:
        """Return the task of that qualified id. Raises `UserError` for an unknown one."""
        name, rest = split_task_id(task_id, self._members)
        return qualify_task(self._members[name].task(rest), name)


def combine_packs(packs: Mapping[str, Pack]) -> CombinedPack:
    """Make the combined pack of several."""
    names = list(packs)
    combined = CombinedPack(
        name="+".join(names) if len(names) <= 3 else f"{names[0]}+{len(names) - 1}_packs",
        user="llm" if any(pack.user == "llm" for pack in packs.values()) else "none",
        evaluation=any(pack.evaluation for pack in packs.values()),
    )
    combined._members = dict(packs)
    return combined


def split_task_id(task_id: str, packs: Collection[str]) -> tuple[str, str]:
    """Return the name of a task's pack, and the id in it. Raises `UserError` for a pack that is not among `packs`."""
    name, _, rest = task_id.partition("/")
    if name not in packs:
        known = ", ".join(list(packs)[:5])
        raise UserError(f"no pack {name!r} here for task {task_id!r}: write PACK/ID; packs: {known}")
    return name, rest


def qualify_task(task: Task, pack: str) -> Task:
    """Return the task under its qualified id, `PACK/ID`."""
    return task.model_copy(update={"id": f"{pack}/{task.id}"})


class MultiPackEnvironment(Environment):
    """An environment over several packs. `reset` plays a task in the environment of its pack."""

    def __init__(
        self,
        pack: CombinedPack,
        members: Mapping[str, Environment],
        *,
        tasks: Sequence[Task],
        backend_name: str,
        close: Callable[[], Awaitable[object]],
    ) -> None:
        first = next(iter(members.values()))
        super().__init__(
            pack,
            first.backend,
            backend_name=backend_name,
            user=first.user,
            limits=first.limits,
            tasks=tasks,
            close=close,
        )
        self.members = dict(members)

    async def reset(
        self, task: Task | str, *, seed: int = 0, group: str | None = None, name: str | None = None
    ) -> Episode:
        """Start an episode of a task by its qualified id; see `Environment.reset`."""
        self.check_reset(task, seed)
        task = self.pack.task(task) if isinstance(task, str) else task
        return await self._find_member(task).reset(task, seed=seed, group=group, name=name)

    def abort(self, task: Task, seed: int, error: Aborted) -> Episode:
        """Make the episode of a world that could not be opened; see `Environment.abort`."""
        return self._find_member(task).abort(task, seed, error)

    def note_training_step(self, step: int) -> None:
        """Set the number of finished training steps; see `Environment.note_training_step`."""
        for member in self.members.values():
            member.note_training_step(step)

    def _find_member(self, task: Task) -> Environment:
        return self.members[split_task_id(task.id, self.members)[0]]


@dataclass(frozen=True, slots=True)
class PackTasks:
    """A pack with its tasks to play, and its weight."""

    pack: Pack
    tasks: Sequence[Task]
    weight: float | None
    alias: str | None = None

    @property
    def name(self) -> str:
        """Name of the pack in task ids."""
        return self.alias or self.pack.name


def mix_tasks(sources: Sequence[PackTasks], *, limit: int | None = None) -> list[Task]:
    """Mix the tasks of several packs, qualified, so that every prefix has about the packs' shares.

    Without weights all tasks are played. With weights, each pack's share of the tasks is proportional to its weight. No task occurs
    twice, so the pack with the fewest tasks per weight limits the total. Raises `UserError` if only some packs have weights.
    """
    names = [source.name for source in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"two packs are named {twice[0]!r}: "
            "give one another name, as NAME=PACK to simia serve or as packs: [{pack: …, name: …}] in a config"
        )
    available = {source.name: len(source.tasks) for source in sources}
    weights = [source.weight for source in sources]
    if any(weight is None for weight in weights) and any(weight is not None for weight in weights):
        unweighted = names[weights.index(None)]
        raise UserError(f"packs: {unweighted} has no weight and others have one: give all a weight, or none")
    if None in weights:
        quotas = available
    else:
        shares = {source.name: source.weight or 0.0 for source in sources}
        total = sum(shares.values())
        most = min((int(available[name] * total / share) for name, share in shares.items() if share), default=0)
        quotas = compute_quotas(shares, min(most, limit or most), available)
    queues = {source.name: iter(source.tasks[: quotas[source.name]]) for source in sources}
    # Each pack's n-th task gets the position (n + ½) / quota, which interleaves packs of all sizes evenly.
    places = sorted(((n + 0.5) / quotas[name], at, name) for at, name in enumerate(queues) for n in range(quotas[name]))
    return [qualify_task(next(queues[name]), name) for _, _, name in places][:limit]


def member_config(config: EnvironmentConfig, number: int) -> EnvironmentConfig:
    """The settings of one pack of several: the environment's, with the pack's own selection of tasks."""
    assert config.packs is not None
    share = config.packs[number]
    update = {
        "pack": share.pack,
        "packs": None,
        "tasks": share.tasks,
        "split": share.split or config.split,
        "limit": share.limit,
    }
    return config.model_copy(update=update)
