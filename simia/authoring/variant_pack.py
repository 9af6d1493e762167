"""Write a pack of the variants of another pack's tasks, each verified by execution and by the gate."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simia.authoring.gate_report import TaskVerdict
from simia.authoring.pack_draft import copy_pack_files, draft_pack, refuse_existing, replace_tasks
from simia.authoring.task_variants import NoVariant, VariantFault
from simia.authoring.variant_checks import VariedTask, vary_task
from simia.authoring.verification_gate import verify_tasks
from simia.envs.opening import open_environment
from simia.errors import UserError
from simia.pack import Pack
from simia.pack_files import RECORD
from simia.task import Task

AT_ONCE = 8


@dataclass(slots=True)
class VariantReport:
    """The variants that passed, the number of tasks, and the reasons why others failed."""

    tasks: int
    varied: list[VariedTask]
    verdicts: list[TaskVerdict] = field(default_factory=list)

    @property
    def passed(self) -> list[Task]:
        """The variants that the gate passes."""
        good = {verdict.task for verdict in self.verdicts if verdict.passed}
        return [variant for varied in self.varied for variant in varied.variants if variant.id in good]

    def count(self, tag: str, *, gated: bool = True) -> int:
        """Count the variants with a tag that passed their own checks; with `gated` only those that the gate passes too."""
        variants = self.passed if gated else [variant for varied in self.varied for variant in varied.variants]
        return sum(tag in variant.tags for variant in variants)

    def count_faults(self) -> Counter[str]:
        """Why values and tools gave no variant."""
        found = Counter(str(refused.fault) for varied in self.varied for refused in varied.refused)
        if failed := sum(not verdict.passed for verdict in self.verdicts):
            found[str(VariantFault.GATE)] = failed
        return found

    def list_refusals(self) -> list[tuple[str, NoVariant]]:
        """(task, why there is no variant) of each value and tool that was tried."""
        refusals = [(varied.task, refused) for varied in self.varied for refused in varied.refused]
        gate = [
            (
                verdict.task,
                NoVariant(VariantFault.GATE, "; ".join(str(each) for each in verdict.findings if each.refuses)),
            )
            for verdict in self.verdicts
            if not verdict.passed
        ]
        return [*refusals, *gate]


async def write_variants(
    pack: Pack,
    out: Path,
    *,
    tasks: Sequence[Task] | None = None,
    grants: Mapping[str, Any] | None = None,
    on_task: Callable[[], None] = lambda: None,
) -> VariantReport:
    """Write the variants of a pack's tasks that pass to a new folder.

    Raises `UserError` if the pack cannot be opened or has no code, if the folder exists, or if no variant passes.
    """
    refuse_existing(out)
    root, path = pack.root, pack.path_of("tasks")
    if root is None or path is None or pack.executable is None:
        raise UserError(f"pack {pack.name} has no tasks or no code: variants are verified by playing them")
    refuse_inside(out, root)
    chosen = list(pack.tasks if tasks is None else tasks)
    options = dict(grants or {})
    places = asyncio.Semaphore(AT_ONCE)
    async with await open_environment(pack, backend="executable", user="none", **options) as environment:

        async def vary(task: Task) -> VariedTask:
            async with places:
                found = await vary_task(environment, task, user=pack.user)
            on_task()
            return found

        varied = await asyncio.gather(*map(vary, chosen))
    report = VariantReport(len(chosen), list(varied))
    variants = [variant for each in varied for variant in each.variants]
    if not variants:
        raise UserError(f"no task of {pack.name} has a variant: {describe_faults(report)}; nothing is written")
    with draft_pack(out) as draft:
        copy_pack_files(root, draft)
        (draft / RECORD).unlink(missing_ok=True)
        for key in ("references", "seeds"):
            if (source := pack.path_of(key)) is not None:
                replace_tasks(draft / source.relative_to(root), [])
        replace_tasks(draft / path.relative_to(root), variants)
        written = Pack.load(draft)
        async with await open_environment(written, backend="executable", user="none", **options) as environment:
            report.verdicts = (await verify_tasks(environment, written.tasks)).verdicts
        if not report.passed:
            raise UserError(f"no variant of {pack.name} passes the gate: {describe_faults(report)}; nothing is written")
        replace_tasks(draft / path.relative_to(root), report.passed)
    return report


def refuse_inside(out: Path, root: Path) -> None:
    """Raise `UserError` for a folder in the pack."""
    if out.resolve().is_relative_to(root.resolve()):
        raise UserError(f"{out} is inside the pack: give --out a folder outside of {root}")


def describe_faults(report: VariantReport) -> str:
    return ", ".join(f"{fault} {count}" for fault, count in report.count_faults().most_common())
