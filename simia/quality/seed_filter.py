"""Filter seeds by rules (paper §2.2: completeness, logic, format).

The mistakes of one bad seed occur in all samples made from it. Seeds must pass the same checks as generated trajectories, except
the truth checks: conversations between people often leave out steps that a policy requires, and are still worth keeping.
`find_doubtful_seeds` lists them with the codes of the truth checks. Of equal seeds the first is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import orjson

from simia.errors import Code, Issue
from simia.quality.check import Checks, check_trajectory
from simia.quality.exact_duplicates import hash_content
from simia.quality.grounding import Identifiers, infer_identifiers
from simia.quality.trajectory_view import TrajectoryView
from simia.quality.truth.truth_checks import find_untruths
from simia.trajectory import Trajectory, digest

FilteredSeeds = tuple[list[Trajectory], list[tuple[Trajectory, list[Issue]]]]
"""Kept seeds, and refused ones with their findings; both in the seeds' order."""


def filter_storable(seeds: Sequence[Trajectory]) -> FilteredSeeds:
    """Refuse seeds that neither a prompt nor a ledger can hold: integers beyond 64 bits are read, but cannot be written."""
    kept: list[Trajectory] = []
    refused: list[tuple[Trajectory, list[Issue]]] = []
    for seed in seeds:
        try:
            orjson.dumps(seed.to_row())
        except orjson.JSONEncodeError as error:
            refused.append((seed, [Issue(code=Code.BAD_ROW, detail=f"it cannot be stored: {error}")]))
        else:
            kept.append(seed)
    return kept, refused


def filter_seeds(seeds: Sequence[Trajectory], checks: Checks) -> FilteredSeeds:
    """Refuse seeds that break a rule or repeat an earlier one."""
    known = infer_identifiers_by_tools(seeds) if checks.identifiers else {}
    kept: list[Trajectory] = []
    refused: list[tuple[Trajectory, list[Issue]]] = []
    seen: set[str] = set()
    for seed in seeds:
        issues = check_trajectory(seed, checks, ids=known.get(hash_tools(seed)), truth=False)
        if not issues:
            content = hash_content(seed)
            if content not in seen:
                seen.add(content)
                kept.append(seed)
                continue
            issues = [Issue(code=Code.DUPLICATE, detail="another seed says the same")]
        refused.append((seed, issues))
    return kept, refused


def find_doubtful_seeds(seeds: Sequence[Trajectory], checks: Checks) -> list[tuple[Trajectory, list[Issue]]]:
    """Return the seeds in which a truth check finds something, with the findings. These seeds are used nevertheless."""
    found = ((seed, find_untruths(TrajectoryView(seed), checks)) for seed in seeds)
    return [(seed, issues) for seed, issues in found if issues]


def infer_identifiers_by_tools(seeds: Sequence[Trajectory]) -> dict[str, Identifiers]:
    """Infer which arguments are identifiers, for each set of tools, from the seeds that use it."""
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for seed in seeds:
        groups[hash_tools(seed)].append(seed)
    return {key: infer_identifiers(group[0].tools, group) for key, group in groups.items()}


def hash_tools(seed: Trajectory) -> str:
    return digest([tool.model_dump(exclude_defaults=True) for tool in seed.tools])
