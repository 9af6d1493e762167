"""Seeds from packs and from files, pre-filtered, in the order in which items use them.

Packs take turns, so that a small run sees all of them; what was refused, and why, is kept for the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from simia import formats, search_path
from simia.amplification.settings import SeedSettings
from simia.errors import Issue, UserError
from simia.pack import Pack
from simia.quality.check import Checks
from simia.quality.grounding import Identifiers, infer_identifiers
from simia.quality.seed_filter import filter_seeds, filter_storable, hash_tools
from simia.tool import ToolSpec
from simia.trajectory import Trajectory, digest


@dataclass(slots=True)
class RefusedSeed:
    """A seed that is not used. `name` is its task id, or file and line."""

    name: str
    issues: list[Issue]


@dataclass(slots=True)
class Seeds:
    """The seeds of a run: `order` is the cycle of items, `groups` the same by pack, `identifiers` what is to be grounded."""

    order: list[Trajectory] = field(default_factory=list)
    groups: dict[str, list[Trajectory]] = field(default_factory=dict)
    identifiers: dict[str, Identifiers] = field(default_factory=dict)
    refused: list[RefusedSeed] = field(default_factory=list)
    read: int = 0

    @property
    def digest(self) -> str:
        return digest([seed.id for seed in self.order])

    def licences(self) -> list[str]:
        return sorted({seed.provenance.licence or "unknown" for seed in self.order})


def load_seed_packs(settings: SeedSettings, checks: Checks) -> Seeds:
    """Read, filter and order the seeds. Raises `UserError` when none is left."""
    groups: dict[str, list[Trajectory]] = {}
    seeds = Seeds()
    for name in settings.packs:
        pack, refused = read_pack(name, settings.dialect)
        seeds.refused += refused
        seeds.read += len(refused)
        groups[pack.name] = groups.get(pack.name, []) + pack.seeds
    return arrange_seeds(seeds, groups, settings, checks)


def take_seeds(given: Sequence[Trajectory], settings: SeedSettings, checks: Checks) -> Seeds:
    """Take seeds that the caller holds in memory."""
    groups: dict[str, list[Trajectory]] = {}
    shared = SharedParts()
    for i, seed in enumerate(map(shared, given), start=1):
        named = seed if seed.task_id else seed.model_copy(update={"task_id": f"seed-{i}"})
        groups.setdefault(seed.pack or "seeds", []).append(named)
    return arrange_seeds(Seeds(), groups, settings, checks)


def arrange_seeds(seeds: Seeds, groups: dict[str, list[Trajectory]], settings: SeedSettings, checks: Checks) -> Seeds:
    for name, group in groups.items():
        seeds.read += len(group)
        group, unkept = filter_storable(group[: settings.limit])
        kept, refused = filter_seeds(group, checks)
        refused = unkept + refused
        seeds.refused += [RefusedSeed(seed.task_id or seed.id, issues) for seed, issues in refused]
        seeds.identifiers[name] = infer_identifiers([tool for seed in kept for tool in seed.tools], kept)
        if settings.max_messages:
            kept = [seed for seed in kept if len(seed.messages) <= settings.max_messages]
        if kept:
            seeds.groups[name] = kept
    turns = zip_longest(*seeds.groups.values())
    seeds.order = [seed for turn in turns for seed in turn if seed is not None]
    if not seeds.order:
        why = f"; the first was refused: {seeds.refused[0].issues[0]}" if seeds.refused else ""
        raise UserError(f"no seed is left of {seeds.read} read from {', '.join(groups) or 'nothing'}{why}")
    return seeds


def remove_seeds(seeds: Seeds, refused: dict[str, list[Issue]]) -> Seeds:
    """Return the seeds less those refused by id. Identifiers stay as inferred from all seeds."""
    if not refused:
        return seeds
    gone = {id(seed): seed for seed in seeds.order if seed.id in refused}
    groups = {name: [seed for seed in group if id(seed) not in gone] for name, group in seeds.groups.items()}
    order = [seed for seed in seeds.order if id(seed) not in gone]
    if not order:
        raise UserError(f"the judge refused all {len(gone)} seeds; the first: {next(iter(refused.values()))[0]}")
    told = [RefusedSeed(seed.task_id or seed.id, refused[seed.id]) for seed in gone.values()]
    left = {name: group for name, group in groups.items() if group}
    return Seeds(order, left, seeds.identifiers, seeds.refused + told, seeds.read)


class SharedParts:
    """Tools and system texts that many seeds have in common, as one object each.

    Five thousand rows that each carry thirteen tools would otherwise be most of a run's memory; and what is made once for a
    set of tools (schemas, the static prompt) is found again by its identity.
    """

    def __init__(self) -> None:
        self._tools: dict[str, list[ToolSpec]] = {}
        self._systems: dict[str, str] = {}

    def __call__(self, seed: Trajectory) -> Trajectory:
        tools = self._tools.setdefault(hash_tools(seed), seed.tools)
        system = self._systems.setdefault(seed.system, seed.system) if seed.system else seed.system
        return seed.model_copy(update={"tools": tools, "system": system})


def read_pack(name: str, dialect: str | None) -> tuple[Pack, list[RefusedSeed]]:
    """Read a pack, or a file of trajectories as one."""
    shared = SharedParts()
    path = search_path.find_resource("seeds", name)
    if path.is_dir() or path.suffix in (".yaml", ".yml"):
        pack = Pack.load(path)
        pack.seeds = [shared(seed) for seed in pack.seeds]
        return pack, []
    pack, refused = Pack(name=path.stem), []
    for number, row in enumerate(formats.read(path, dialect), start=1):
        if isinstance(row, Trajectory):
            task = row.task_id or f"{Path(path).stem}-{number}"
            named = row.model_copy(update={"pack": row.pack or pack.name, "task_id": task})
            pack.seeds.append(shared(named))
        else:
            refused.append(RefusedSeed(f"{path.name}, line {row.line}", [Issue(code=row.code, detail=row.detail)]))
    return pack, refused
