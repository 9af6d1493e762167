"""Sample calls to measure fidelity. A sample is a state of a pack's world, a call, and its true result and changes by the pack's code.

The calls are those of the tasks' solutions, each in the state after the calls before it. Others stand for a policy that leaves the solution:
calls of other tasks and of tool tests, in the same states. Samples are stratified by outcome, number of arguments and |Δ|, in the shares of
EnvSimBench's 400 samples, and spread within a stratum over packs and tools. A set is frozen to a file before any reply exists: the file
contains the truth and a digest, and is never changed.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Code, UserError
from simia.keyed_changes import KeyedChange, compute_keyed_changes
from simia.pack import Pack
from simia.state import count_leaf_changes, diff_states
from simia.task import Action, Task
from simia.terminal import write_count
from simia.trajectory import digest, write_compact_json

FORMAT = 1
OTHER_CALLS = 8  # further calls per task
DELTA = "|Δ|: leaf fields of the state that a call adds, removes or changes."
MOST_BEFORE = 20  # most calls of an episode before the sampled one
STRATA = {  # in the shares of EnvSimBench: 20, 80, 50, 200 and 50 of 400 samples
    "error": 0.05,
    "unchanged, 0 or 1 arguments": 0.1,
    "unchanged, 2 or more arguments": 0.1,
    "|Δ| 1 to 2": 0.125,
    "|Δ| 3 to 6": 0.5,
    "|Δ| 7 or more": 0.125,
}


class CallSample(BaseModel):
    """A call in a state, with its true result and changes."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    id: str
    """Unique in the set: pack, task, and the number of the call in the task's episode."""
    pack: str
    """Name of the pack."""
    task: str
    """The task in whose world the call is made."""
    before: list[Action] = Field(default_factory=list)
    """The calls of the episode before it."""
    call: Action
    """The call."""
    source: str = "solution"
    """`solution`: a call of the task's solution; `other`: one of another task or of a tool test."""
    failed: bool = False
    """Whether the pack's code refuses the call."""
    result: Any = None
    """Result of the call."""
    changes: list[KeyedChange] = Field(default_factory=list)
    """Changes of the state by the call."""
    delta: int = 0
    """|Δ|: number of leaf fields that the call adds, removes or changes."""
    paths: int = 0
    """Number of changed paths; an added or removed row counts as one, as in EnvSimBench."""
    state: str = ""
    """Digest of the state before the call."""

    @property
    def stratum(self) -> str:
        return name_stratum(failed=self.failed, delta=self.delta, arguments=len(self.call.arguments))


class SampleSet(BaseModel):
    """The first line of a frozen file."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    format: int = FORMAT
    """Version of the file's format."""
    seed: int = 0
    """Random seed of the sampling."""
    count: int
    """Number of samples."""
    mix: dict[str, int]
    """Stratum → samples."""
    packs: dict[str, int]
    """Pack → samples."""
    digest: str
    """Digest of the samples."""


def name_bin(delta: int) -> str:
    """Name the bin of |Δ|: 0, 1 to 2, 3 to 6, 7 or more."""
    return "0" if delta == 0 else "1 to 2" if delta < 3 else "3 to 6" if delta < 7 else "7 or more"


def name_stratum(*, failed: bool, delta: int, arguments: int) -> str:
    """Name the stratum of a call. A refused call with changes belongs to the stratum of its |Δ|."""
    if delta:
        return f"|Δ| {name_bin(delta)}"
    if failed:
        return "error"
    return "unchanged, 0 or 1 arguments" if arguments < 2 else "unchanged, 2 or more arguments"


def share_out(count: int) -> dict[str, int]:
    """Divide a number of samples among the strata by the method of largest remainders; among equal remainders the first stratum wins."""
    exact = {name: share * count for name, share in STRATA.items()}
    found = {name: int(value) for name, value in exact.items()}
    rest = sorted(exact, key=lambda name: found[name] - exact[name])[: count - sum(found.values())]
    return {name: number + (name in rest) for name, number in found.items()}


async def list_candidates(
    pack: Pack, *, seed: int = 0, split: str | None = None, others: int = OTHER_CALLS, limit: int | None = None
) -> list[CallSample]:
    """Play the solutions of a pack, and `others` further calls for each task. Every call that its tool's schema allows is a candidate.

    Raises `UserError` for a pack whose code or tasks are missing, or whose calls cannot be repeated.
    """
    if pack.executable is None:
        raise UserError(f"pack {pack.name} has no code, so the changes of its calls are not known: leave this pack out")
    if not pack.executable.repeatable:
        raise UserError(
            f"pack {pack.name}: its calls cannot be repeated (repeatable: false in pack.yaml): leave this pack out"
        )
    tasks = [task for task in pack.tasks if task.actions and split in (None, task.split)]
    if not tasks:
        raise UserError(
            f"pack {pack.name} has no tasks with a solution{f' of split {split}' if split else ''}: leave it out"
        )
    chance = random.Random(f"{seed}/{pack.name}")
    if limit is not None:
        tasks = chance.sample(tasks, min(limit, len(tasks)))
    pool: dict[str, list[Action]] = defaultdict(list)
    for action in [*(action for task in tasks for action in task.actions), *(test.call for test in pack.tests)]:
        pool[action.name].append(action)
    found: dict[str, CallSample] = {}
    backend = ExecutableBackend(pack)
    try:
        await backend.start()
        for task in tasks:
            played = [sample async for sample in play_calls(backend, task, task.actions[: MOST_BEFORE + 1], 0)]
            for _ in range(others):
                before = task.actions[: chance.randint(0, min(len(played), MOST_BEFORE))]
                call = chance.choice(pool[chance.choice(sorted(pool))])
                played += [sample async for sample in play_calls(backend, task, [*before, call], len(before))]
            for sample in played:
                found.setdefault(digest([sample.state, sample.call.model_dump()]), sample)
    finally:
        await backend.close()
    return list(found.values())


async def play_calls(
    backend: ExecutableBackend, task: Task, actions: Sequence[Action], first: int
) -> AsyncIterator[CallSample]:
    """Play calls in the world of a task, and yield a sample for each from number `first` on.

    It stops at a call that is refused before the world runs it, and at a call that crashes the code.
    """
    world = await backend.open(task)
    try:
        for action in actions[:first]:
            if (await world.call_one(action.name, action.arguments, action.by)).ends:
                return
        state = await world.state()
        for number, action in enumerate(actions[first:], start=first):
            result = await world.call_one(action.name, action.arguments, action.by)
            if result.error not in (None, Code.TOOL_ERROR):
                return
            after = await world.state()
            name = f"{backend.pack.name}/{task.id}/{number + 1}"
            solves = number < len(task.actions) and task.actions[number] == action
            yield CallSample(
                id=name if solves else f"{name}-{digest(action.model_dump())[:6]}",
                pack=backend.pack.name,
                task=task.id,
                before=list(actions[:number]),
                call=action,
                source="solution" if solves else "other",
                failed=result.error is not None,
                result=result.data if result.data is not None else result.content,
                changes=compute_keyed_changes(state, after, backend.pack.state_schema),
                delta=count_leaf_changes(state, after),
                paths=len(diff_states(state, after)),
                state=digest(state),
            )
            if result.ends:
                return
            state = after
    finally:
        await world.close()


def draw_samples(candidates: Sequence[CallSample], count: int, *, seed: int = 0) -> list[CallSample]:
    """Draw a stratified set of samples.

    Within a stratum, the packs, tools and |Δ| drawn least so far come first, and half of the samples change three or more paths if there are
    enough. If a stratum has too few, the rest is drawn from the strata with more changes, then from the others. If no stratum runs out, a
    smaller set of the same seed is a part of a larger one. Raises `UserError` if there are fewer candidates than samples.
    """
    if len(candidates) < count:
        raise UserError(
            f"found {write_count(len(candidates), 'different call')}, fewer than {count}: name more packs, or ask for fewer calls"
        )
    strata: dict[str, list[CallSample]] = {name: [] for name in STRATA}
    for candidate in sorted(candidates, key=lambda each: digest([seed, each.id])):
        strata[candidate.stratum].append(candidate)
    ordered = {name: iterate_evenly(members) for name, members in strata.items()}
    wanted, found, lacking = share_out(count), list[CallSample](), 0
    for name, number in wanted.items():
        found += (taken := [each for each, _ in zip(ordered[name], range(number), strict=False)])
        lacking += number - len(taken)
    for name in reversed(STRATA):
        more = [each for each, _ in zip(ordered[name], range(lacking), strict=False)]
        found, lacking = [*found, *more], lacking - len(more)
    return found


def iterate_evenly(members: Sequence[CallSample]) -> Iterator[CallSample]:
    """Yield all samples. The next one is always the one whose pack, tool and |Δ| were yielded least so far; the first of equals."""
    left, used = list(members), Counter[Any]()
    while left:
        best = min(left, key=lambda each: [used[kind] for kind in list_balanced_properties(each)])
        left.remove(best)
        used.update(list_balanced_properties(best))
        yield best


def list_balanced_properties(sample: CallSample) -> list[Any]:
    """Return the properties over which a draw is balanced, the most important first."""
    return [sample.paths > 2, sample.pack, sample.delta, (sample.pack, sample.call.name), (sample.pack, sample.task)]


def count_strata(samples: Sequence[CallSample]) -> dict[str, int]:
    counts = Counter(sample.stratum for sample in samples)
    return {name: counts[name] for name in STRATA}


def freeze_samples(samples: Sequence[CallSample], path: Path, *, seed: int = 0) -> SampleSet:
    """Write a set to a new file. Raises `UserError` where the file exists: a frozen set is never changed."""
    rows = [sample.model_dump(mode="json", exclude_defaults=True) for sample in samples]
    head = SampleSet(
        seed=seed,
        count=len(rows),
        mix=count_strata(samples),
        packs=dict(sorted(Counter(sample.pack for sample in samples).items())),
        digest=digest(rows),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.writelines(f"{write_compact_json(row)}\n" for row in [head.model_dump(mode="json"), *rows])
    except FileExistsError:
        raise UserError(f"{path} exists, and a frozen set is never changed: name another file") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from None
    return head


def read_samples(path: Path) -> tuple[SampleSet, list[CallSample]]:
    """Read a frozen set. Raises `UserError` if the file is not one, or was changed after it was frozen."""
    try:
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
        head = SampleSet.model_validate(rows[0])
        samples = [CallSample.model_validate(row) for row in rows[1:]]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except (IndexError, orjson.JSONDecodeError, ValidationError):
        raise UserError(
            f"{path} is not a frozen set of calls: make one with simia fidelity PACK --sample FILE"
        ) from None
    if head.format != FORMAT or digest(rows[1:]) != head.digest:
        raise UserError(
            f"{path} was changed after it was frozen, or has the format of another version of simia: restore it, or sample a new set"
        )
    return head, samples
