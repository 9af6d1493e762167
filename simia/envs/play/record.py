"""Record a pack's solutions: each is played in the pack's own world, so that the tools give every result.

The trajectories of all solved tasks are its references; those of the tasks marked `seed` are its seeds.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml

from simia.envs.environment import Environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.errors import Code, UserError
from simia.pack import Pack, PackFile
from simia.pack_files import parse_yaml
from simia.reward import Reward
from simia.task import Task
from simia.trajectory import Trajectory

AT_ONCE = 8


@dataclass(slots=True)
class RecordedPack:
    """Rows of the seeds and of the references, in the order of the tasks, and why a task has no reference."""

    seeds: list[bytes] = field(default_factory=list)
    references: list[bytes] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


async def record_pack(environment: Environment) -> RecordedPack:
    """Play the solution of every task that has one.

    `environment` must be opened with the scripted user, and with limits of `make_solution_limits`. A solution that does not score 1 is skipped. Raises `UserError` if the task of
    such a solution is marked `seed`, or if no task has a solution.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def one(task: Task) -> Trajectory:
        async with room:
            return await play(await environment.reset(task), ReferenceAgent(task))

    found = RecordedPack()
    tasks = [task for task in environment.tasks if task.solved]
    if not tasks:
        raise UserError(f"pack {environment.pack.name} has no task with a solution to record")
    for task, trajectory in zip(tasks, await asyncio.gather(*map(one, tasks)), strict=True):
        reward = trajectory.reward
        if reward is not None and reward.value == 1.0:
            found.references.append(orjson.dumps(make_reference_row(trajectory, task)))
            if task.seed:
                found.seeds.append(orjson.dumps(make_seed_row(trajectory, task)))
            continue
        why = f"its solution does not score 1 ({' '.join(reward.rationale.split())[:200] if reward else 'no reward'})"
        if trajectory.end is not None and trajectory.end.kind == "truncated":
            cause = trajectory.end.code.meaning if trajectory.end.code else "a limit"
            why += f"; it is cut by `limits` of the task or of pack.yaml: {cause}"
        if task.seed:
            raise UserError(f"task {task.id}: {why}; see simia pack gate")
        found.skipped.append(f"task {task.id}: {why}")
    return found


def make_seed_row(trajectory: Trajectory, task: Task) -> dict[str, Any]:
    """Return the row of a seed, without the fields that come from the pack (system text, tools)."""
    extra = {"tags": task.tags, "summary": task.instruction}
    row: dict[str, Any] = {"version": trajectory.version, "task_id": task.id}
    messages = [m.model_copy(update={"error": m.error and Code.TOOL_ERROR}) for m in trajectory.messages]
    row["messages"] = [m.model_dump(mode="json", exclude_defaults=True) for m in messages]
    return {**row, "extra": {name: value for name, value in extra.items() if value}}


def make_reference_row(trajectory: Trajectory, task: Task) -> dict[str, Any]:
    """Return the row of a reference, without the fields that come from the pack."""
    reward = Reward(value=trajectory.reward.value) if trajectory.reward else None
    kept = Trajectory(
        task_id=task.id, split=task.split, messages=trajectory.messages, end=trajectory.end, reward=reward
    )
    return kept.to_row()


def write_recorded_pack(pack: Pack, recorded: RecordedPack) -> list[Path]:
    """Write the references, and the seeds where pack.yaml names a file of them; return the files that were written.

    A pack without `references` gets a `references.jsonl`, and becomes one of format 2. One without `seeds` gets a `seeds.jsonl`.
    """
    assert pack.root is not None
    seeds, references = pack.path_of("seeds"), pack.path_of("references")
    new: dict[str, str] = {}
    written = []
    for key, path, rows in (("references", references, recorded.references), ("seeds", seeds, recorded.seeds)):
        if path is None and (rows or key == "references"):
            new[key], path = f"{key}.jsonl", pack.root / f"{key}.jsonl"
            if path.exists():
                raise UserError(f"{path} exists, and pack.yaml does not name it: add `{key}: {path.name}` or remove it")
        if path is not None and (rows or key == "references"):
            written.append((path, rows))
    try:
        for path, rows in written:
            path.write_bytes(b"".join(row + b"\n" for row in rows))
        if new:
            name_files(pack.root / "pack.yaml", new)
    except OSError as error:
        raise UserError(f"{pack.root} cannot be written: {error.strerror or error}") from None
    return [path for path, _ in written]


def name_files(path: Path, files: dict[str, str]) -> None:
    """Add keys that name files to a pack.yaml and raise its format to 2. Comments and order of keys are kept unless that fails."""
    text = path.read_text(encoding="utf-8")
    wanted = {**parse_yaml(path), "format": 2, **files}
    lines = "".join(f"{key}: {name}\n" for key, name in files.items())
    edited = re.sub(r"^format:[ \t]*1\b", "format: 2", text, count=1, flags=re.MULTILINE)
    edited = re.sub(r"^tasks:.*\n", lambda found: f"{found[0]}{lines}", edited, count=1, flags=re.MULTILINE)
    try:
        same = yaml.safe_load(edited) == wanted
    except yaml.YAMLError:
        same = False
    if not same:  # the file's YAML style could not be kept
        edited = yaml.safe_dump(wanted, sort_keys=False, allow_unicode=True, width=1000)
    PackFile.model_validate(yaml.safe_load(edited))
    path.write_text(edited, encoding="utf-8")
