"""Measured difficulty: how often each agent solved each task, stored in the pack's tasks.

Filters of an environment config read it (`difficulty: {agent: NAME, low: 0.1, high: 0.9}`): tasks that an agent always or never
solves teach it nothing (GRPO's groups then have no variance).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from simia.errors import UserError
from simia.jobs import Run
from simia.pack import Pack
from simia.statistics import SUCCESS
from simia.task import Measurement

Rewards = Mapping[str, Sequence[float | None]]


def read_rewards(run: Run) -> dict[str, list[float | None]]:
    """Task id → rewards of its episodes in a rollout; None for an episode that has none."""
    found: dict[str, list[float | None]] = defaultdict(list)
    for item in run.ledger.items():
        body = run.ledger.result(item.id)
        if body is not None and body["trajectory"]:
            found[str(item.spec["task"])].append((body["trajectory"].get("reward") or {}).get("value"))
    return found


def measure_rewards(rewards: Rewards) -> dict[str, Measurement]:
    """Task id → measured difficulty. Episodes without a reward (infrastructure failed) are not counted."""
    found = {}
    for task, values in rewards.items():
        scored = [value for value in values if value is not None]
        if scored:
            found[task] = Measurement(n=len(scored), solved=sum(value >= SUCCESS for value in scored))
    return found


def store_measurements(pack: Pack, agent: str, measured: Mapping[str, Measurement]) -> Path:
    """Write one agent's measurements into `tasks.jsonl`, in place of its earlier ones. Other rows and fields stay as they are.

    Returns:
        The file. It is replaced as a whole, so that a killed process leaves the old or the new one.

    Raises:
        UserError: The pack has no tasks file, or it cannot be written.
    """
    path = pack.path_of("tasks")
    if path is None:
        raise UserError(f"pack {pack.name} has no tasks file to write to")
    lines = []
    for line in path.read_bytes().splitlines():
        if line.strip():
            row = orjson.loads(line)
            if row["id"] in measured:
                row["measured"] = {**row.get("measured", {}), agent: measured[row["id"]].model_dump()}
                line = orjson.dumps(row)
        lines.append(line)
    draft = path.with_name(f"{path.name}.tmp")
    try:
        draft.write_bytes(b"\n".join(lines) + b"\n")
        os.replace(draft, path)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): copy the pack to a folder of yours") from None
    return path
