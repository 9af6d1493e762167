"""The report of the verification gate: a verdict for each task and findings on the pack; and a copy of the pack with the tasks that pass."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from simia.authoring.findings import Finding
from simia.authoring.pack_draft import copy_pack_files, draft_pack, replace_file
from simia.errors import Code, UserError
from simia.pack import Pack
from simia.pack_files import read_lines
from simia.reward import Reward
from simia.statistics import SUCCESS
from simia.trajectory import Trajectory

DOING_NOTHING = ("nothing", "canned", "echo", "policy")
MOST_NAMED = 3  # tasks in a line
DOING_ANYTHING = ("random", "all_calls")


@dataclass(slots=True)
class TaskVerdict:
    """The gate's verdict on one task. `reference`: its solution as played; `floors`: agent that does not read the task → its best reward."""

    task: str
    findings: list[Finding] = field(default_factory=list)
    reference: Trajectory | None = None
    floors: dict[str, float] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return not any(finding.refuses for finding in self.findings)

    @property
    def floor(self) -> float:
        """The best reward of doing nothing."""
        return max((self.floors.get(name, 0.0) for name in DOING_NOTHING), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """The verdict for `--json`."""
        return {
            "task": self.task,
            "passed": self.passed,
            "reference": self.reference.reward.value if self.reference and self.reference.reward else None,
            "floors": self.floors,
            "findings": [finding.to_json() for finding in self.findings],
        }


@dataclass(slots=True)
class GateReport:
    """Verdicts in the order of the tasks, and findings on the pack as a whole."""

    verdicts: list[TaskVerdict]
    findings: list[Finding] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not any(finding.refuses for finding in self.list_findings())

    def list_findings(self) -> list[Finding]:
        """All findings. A fault for which the whole pack is refused is not repeated for each task."""
        whole = {finding.fault for finding in self.findings if finding.refuses}
        return [*self.findings, *(f for verdict in self.verdicts for f in verdict.findings if f.fault not in whole)]

    @property
    def floors(self) -> dict[str, float]:
        """Agent → its mean reward."""
        names = [*DOING_NOTHING, *DOING_ANYTHING]
        return {
            name: sum(found) / len(found)
            for name in names
            if (found := [verdict.floors[name] for verdict in self.verdicts if name in verdict.floors])
        }

    def explain_all_calls(self) -> str:
        """Say why the agent that makes all calls earns the full reward on tasks that pass; empty if there is no such task."""
        full = [v for v in self.verdicts if v.passed and v.floors.get("all_calls", 0.0) >= SUCCESS]
        if not full:
            return ""
        which = "the task" if len(self.verdicts) == 1 else f"{len(full)} of the tasks"
        return (
            f"the agent of `all calls` makes every call of the pack's solutions without reading the task; on {which} it "
            "ends in the same state as the task's own solution, which is normal in a pack with a single solution and is not a fault"
        )

    def explain_random_calls(self) -> str:
        """Name the tasks that pass and on which random calls earn a reward; empty if there is none."""
        lucky = [verdict.task for verdict in self.verdicts if verdict.passed and verdict.floors.get("random", 0.0) > 0]
        if not lucky:
            return ""
        more = f" and {len(lucky) - MOST_NAMED} more" if len(lucky) > MOST_NAMED else ""
        return f"random calls earn a reward on {', '.join(lucky[:MOST_NAMED])}{more}: an answer pattern may be too loose there"

    def to_json(self, pack: str) -> dict[str, Any]:
        """The report for `--json`."""
        return {
            "pack": pack,
            "tasks": len(self.verdicts),
            "passed": sum(verdict.passed for verdict in self.verdicts),
            "floors": {name: round(value, 6) for name, value in self.floors.items()},
            "findings": [finding.to_json() for finding in self.findings],
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
        }


def write_passing_tasks(pack: Pack, verdicts: Collection[TaskVerdict], out: Path) -> int:
    """Copy a pack with the tasks that pass, and without the references and seeds of the others; return their number.

    Links stay links; files of version control and editors are left out. Raises `UserError` if the folder exists or lies in the pack, or if
    no task passes.
    """
    root = pack.root
    assert root is not None
    if out.exists() or out.is_symlink():
        raise UserError(f"{out} exists: give --write a new folder")
    if out.resolve().is_relative_to(root.resolve()):
        raise UserError(f"{out} is inside the pack: give --write a folder outside of {root}")
    passed = {verdict.task for verdict in verdicts if verdict.passed}
    if not passed:
        raise UserError(f"no task of {pack.name} passes: nothing is written")
    refused = {task.id for task in pack.tasks} - passed
    with draft_pack(out) as draft:
        copy_pack_files(root, draft)
        for key, name in (("tasks", "id"), ("references", "task_id"), ("seeds", "task_id")):
            if (source := pack.path_of(key)) is not None:
                lines = [line.rstrip(b"\n") for _, line in read_lines(source)]
                kept = [line for line in lines if orjson.loads(line).get(name) not in refused]
                replace_file(draft / source.relative_to(root), b"".join(line + b"\n" for line in kept))
    return len(passed)


def describe_reward(reward: Reward | None) -> str:
    if reward is None:
        return "no reward"
    if reward.error and reward.error is not Code.UNSCORED:
        return f"{reward.error}: {reward.rationale[:200]}"
    return f"{reward.value}: {' '.join(reward.rationale.split())[:300]}"
