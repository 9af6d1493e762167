"""LLM-based pre-filter of the seeds (paper §2.2): completeness, logic and format, as a model sees them.

It comes after the rules of `simia.quality.seed_filter`, which cost nothing, and judges what no rule can: whether the task is
finished and the reasoning holds. A seed is dropped for a verdict alone. Where the judge could not be reached or read, the
seed stays and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from simia.errors import Issue
from simia.llm.engine import Engine
from simia.quality.judging.judge_reply import Verdict
from simia.quality.judging.panel import Panelist, gather_all
from simia.quality.judging.settings import PrefilterSettings
from simia.trajectory import Trajectory

DRAW = "prefilter"


async def judge_seeds_by_llm(seeds: Sequence[Trajectory], settings: PrefilterSettings, engine: Engine) -> list[Verdict]:
    """Judge each seed, in order. Raises `BudgetReached`; replies received before that are in the journal."""
    panelist = Panelist(settings, engine)
    return await gather_all(panelist.verdict(seed, item=f"prefilter-{seed.id}", draw=DRAW) for seed in seeds)


def split_by_verdict(
    seeds: Sequence[Trajectory], verdicts: Sequence[Verdict]
) -> tuple[list[Trajectory], list[tuple[Trajectory, list[Issue]]]]:
    """Return (kept, refused with their faults), both in the seeds' order. A seed without a verdict is kept."""
    pairs = list(zip(seeds, verdicts, strict=True))
    kept = [seed for seed, verdict in pairs if verdict.passed is not False]
    return kept, [(seed, verdict.issues) for seed, verdict in pairs if verdict.passed is False]
