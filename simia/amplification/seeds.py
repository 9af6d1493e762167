"""Read seeds from packs and files, filter them by rules and by a model (paper §2.2), and arrange them in the order of items.

Packs take turns, so that a small run uses all of them. Refused seeds are kept with their reasons, for the report.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from simia import formats, search_path
from simia.amplification.settings import AmplifyConfig, SeedSettings
from simia.errors import Code, Issue, UserError
from simia.jobs import Run
from simia.llm.backends import find_price, open_backend
from simia.llm.budget import count_tries, share_budget
from simia.llm.engine import BudgetReached, Engine
from simia.llm.types import DeferredBackend, LLMFault, ModelBackend
from simia.pack import Pack
from simia.quality.check import Checks
from simia.quality.grounding import Identifiers, infer_identifiers
from simia.quality.judging.judge_reply import Verdict
from simia.quality.judging.panel import judge_seeds_by_llm
from simia.quality.language import describe_weak_check
from simia.quality.seed_filter import filter_seeds, filter_storable, hash_tools
from simia.refusals import RefusalCounts
from simia.terminal import write_count
from simia.tool import ToolSpec
from simia.trajectory import Trajectory, digest

MOST_REASONS = 8  # of refused seeds, each with its first row
LOOKED_AT = 1000  # seeds whose language is looked at before a run
IDENTIFIERS = "identifiers"  # meta: the arguments to ground, by pack and tool
META = "prefilter"  # the stored verdicts: a resume uses the same seeds, also those without a verdict


class SeedsPending(Exception):  # noqa: N818 - a state
    """The questions about the seeds are written to a batch; the message says where they wait."""


@dataclass(slots=True)
class RefusedSeed:
    """A seed that is not used. `name`: its task id, or FILE:LINE of a row that could not be read; `place`: FILE:LINE of a seed that was read."""

    name: str
    issues: list[Issue]
    place: str | None = None


@dataclass(slots=True)
class Seeds:
    """The seeds of a run. `order`: in the order in which items use them; `groups`: by pack or file; `identifiers`: the arguments to ground, by
    the pack that a seed names."""

    order: list[Trajectory] = field(default_factory=list)
    groups: dict[str, list[Trajectory]] = field(default_factory=dict)
    identifiers: dict[str, Identifiers] = field(default_factory=dict)
    refused: list[RefusedSeed] = field(default_factory=list)
    read: int = 0

    @property
    def digest(self) -> str:
        return digest([seed.id for seed in self.order])


def load_seed_packs(settings: SeedSettings, checks: Checks) -> Seeds:
    """Read, filter and order the seeds. Raises `UserError` when none is left."""
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    refused: list[RefusedSeed] = []
    for name in settings.packs:
        pack, bad_rows = read_pack(name, settings.dialect, settings.limit)
        refused += bad_rows
        groups[pack.name] += pack.seeds
    return arrange_seeds(groups, settings, checks, refused, settings.tasks)


def take_seeds(given: Sequence[Trajectory], settings: SeedSettings, checks: Checks) -> Seeds:
    """Take seeds that the caller holds in memory."""
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for i, seed in enumerate(map(SharedParts(), given), start=1):
        groups[seed.pack or "seeds"].append(seed.model_copy(update={"task_id": seed.task_id or f"seed-{i}"}))
    return arrange_seeds(groups, settings, checks, [], {})


def arrange_seeds(
    groups: Mapping[str, list[Trajectory]],
    settings: SeedSettings,
    checks: Checks,
    refused: list[RefusedSeed],
    tasks: Mapping[str, Sequence[str]],
) -> Seeds:
    """Filter and order the seeds. `tasks`: pack → task ids of the seeds to use."""
    seeds = Seeds(refused=refused, read=len(refused) + sum(map(len, groups.values())))
    sound: list[Trajectory] = []
    for name, group in groups.items():
        chosen = choose_seeds(group, tasks.get(name, ()))[: settings.limit]
        storable, unstorable = filter_storable(chosen)
        kept, unsound = filter_seeds(storable, checks)
        seeds.refused += [name_refused(seed, issues) for seed, issues in unstorable + unsound]
        sound += kept
        if settings.max_messages:
            kept = [seed for seed in kept if len(seed.messages) <= settings.max_messages]
        if kept:
            seeds.groups[name] = kept
    seeds.identifiers = infer_identifiers_by_pack(sound)
    turns = zip_longest(*seeds.groups.values())
    seeds.order = [seed for turn in turns for seed in turn if seed is not None]
    if not seeds.order:
        raise UserError(explain_no_seeds(seeds, groups, settings))
    return seeds


def name_refused(seed: Trajectory, issues: list[Issue]) -> RefusedSeed:
    return RefusedSeed(seed.task_id or seed.id, issues, seed.provenance.source)


def describe_seeds(seeds: Seeds, n: int, *, language: bool = True) -> list[str]:
    """Say how many seeds are used for n items, count the others by reason, each with its first row, and say where the check of the
    language is weak. `language`: whether this check is on."""
    refusals = RefusalCounts()
    for each in seeds.refused:
        refusals.add(each.place or each.name, each.issues[0])
    used = f"{write_count(len(seeds.order), 'seed')} of {seeds.read:,} read"
    unused = seeds.read - len(seeds.order) - refusals.total
    others = f"; {unused:,} left out by the settings of seeds" if unused else ""
    reasons = f"; refused: {refusals}" if refusals else ""
    lines = [f"{used}{reasons}{others}", *(f"  {line}" for line in refusals.describe_first()[:MOST_REASONS])]
    if n < len(seeds.order):
        lines.append(
            f"used: the first {n:,} of {write_count(len(seeds.order), 'seed')}; to use more, raise --n, or shuffle the file"
        )
    return lines + (describe_weak_check(seeds.order[: min(n, LOOKED_AT)]) if language else [])


def choose_seeds(seeds: list[Trajectory], tasks: Sequence[str]) -> list[Trajectory]:
    """Return the seeds of these tasks in the order of the tasks; all of them if there is none."""
    place = {task: i for i, task in enumerate(tasks)}
    chosen = [seed for seed in seeds if seed.task_id in place]
    return sorted(chosen, key=lambda seed: place[seed.task_id or ""]) or seeds


def explain_no_seeds(seeds: Seeds, groups: Mapping[str, list[Trajectory]], settings: SeedSettings) -> str:
    """Say why no seed is left: each reason with the first seed that has it, and the remedy for missing tools."""
    names = ", ".join(groups) or ", ".join(settings.packs)
    if not seeds.read:
        return f"{names}: no seeds: the files are empty"
    by_reason: dict[str, list[RefusedSeed]] = defaultdict(list)
    for each in seeds.refused:
        by_reason[each.issues[0].code].append(each)
    reasons = [
        f"{found[0].name}{f' and {len(found) - 1} more' if len(found) > 1 else ''}: {found[0].issues[0]}"
        for found in list(by_reason.values())[:3]
    ] or [f"all have more than {settings.max_messages} messages (seeds.max_messages)"]
    hint = ""
    if Code.UNKNOWN_TOOL in by_reason and not any(seed.tools for group in groups.values() for seed in group):
        hint = '; the rows list no tools: add "tools" to each row, or make a pack of them (simia pack new PACK --from FILE)'
    return f"{names}: none of {write_count(seeds.read, 'seed')} can be used: {'; '.join(reasons)}{hint}"


def remove_seeds(seeds: Seeds, refused: dict[str, list[Issue]]) -> Seeds:
    """Return the seeds without the refused ones (seed id → issues). Identifiers stay as inferred from all seeds."""
    if not refused:
        return seeds
    groups = {name: [seed for seed in group if seed.id not in refused] for name, group in seeds.groups.items()}
    gone = [seed for seed in seeds.order if seed.id in refused]
    order = [seed for seed in seeds.order if seed.id not in refused]
    if not order:
        raise UserError(
            f"no seed is left, the judge refused {write_count(len(gone), 'seed')}; the first: {next(iter(refused.values()))[0]}"
        )
    told = [RefusedSeed(seed.task_id or seed.id, refused[seed.id]) for seed in gone]
    left = {name: group for name, group in groups.items() if group}
    return Seeds(order, left, seeds.identifiers, seeds.refused + told, seeds.read)


class SharedParts:
    """Keep one object of the tools and system texts that many seeds have in common.

    Five thousand rows with thirteen tools each would otherwise take most of a run's memory. Schemas and static prompts, which are
    made once for a set of tools, are also looked up by the identity of these objects.
    """

    def __init__(self) -> None:
        self._tools: dict[str, list[ToolSpec]] = {}
        self._systems: dict[str | None, str | None] = {}

    def __call__(self, seed: Trajectory) -> Trajectory:
        tools = self._tools.setdefault(hash_tools(seed), seed.tools)
        return seed.model_copy(update={"tools": tools, "system": self._systems.setdefault(seed.system, seed.system)})


def infer_identifiers_by_pack(seeds: Iterable[Trajectory]) -> dict[str, Identifiers]:
    """Return the identifiers of the tools of each pack."""
    return {
        name: infer_identifiers([tool for seed in group for tool in seed.tools], group)
        for name, group in group_by_pack(seeds).items()
    }


def read_identifiers(stored: Mapping[str, Mapping[str, Sequence[Sequence[str]]]]) -> dict[str, Identifiers]:
    """Return the identifiers that `store_seeds` stored."""
    return {
        pack: Identifiers({tool: tuple(map(tuple, paths)) for tool, paths in tools.items()})
        for pack, tools in stored.items()
    }


def group_by_pack(seeds: Iterable[Trajectory]) -> dict[str, list[Trajectory]]:
    """Group seeds by the pack that each names, "" without one. A row of a file may name another pack than the file."""
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for seed in seeds:
        groups[seed.pack or ""].append(seed)
    return dict(groups)


def read_pack(name: str, dialect: str | None, limit: int | None = None) -> tuple[Pack, list[RefusedSeed]]:
    """Read a pack, or a file or data set of trajectories as one. `limit`: stop after this number of trajectories of a file."""
    shared = SharedParts()
    path = Path(name) if formats.is_hub_name(name) else search_path.find_resource("seeds", name)
    if formats.is_data_set(path):
        title = formats.open_data_set(path).title
    elif path.is_dir() or path.suffix in (".yaml", ".yml"):
        pack = Pack.load(path)
        pack.seeds = [shared(seed) for seed in pack.seeds]
        return pack, []
    else:
        title = path.stem
    pack, refused = Pack(name=title), []
    label = name if formats.is_hub_name(name) else path.name
    for number, row in enumerate(formats.read(path, dialect), start=1):
        if isinstance(row, Trajectory):
            named = {"pack": row.pack or pack.name, "task_id": row.task_id or f"{pack.name}-{number}"}
            pack.seeds.append(shared(row.model_copy(update=named)))
        else:
            refused.append(RefusedSeed(f"{label}:{row.line}", [Issue(code=row.code, detail=row.detail)]))
        if limit is not None and len(pack.seeds) >= limit:
            break
    return pack, refused


async def judge_seeds(run: Run, config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> Seeds:
    """Return the seeds that the judge did not refuse. Raises `UserError` if it gave no verdict at all or refused all; `SeedsPending`."""
    if config.prefilter.enabled and run.ledger.meta(META) is None:
        verdicts = await ask_judge(run, config, seeds, backend)
        first = verdicts[0]
        if all(verdict.error is not None for verdict in verdicts):
            raise UserError(
                f"the judge gave no verdict on any seed ({first.error}: {first.detail}): check the model in prefilter.llm, or in llm if that is not set"
            )
        rows = [verdict.model_dump(mode="json", exclude={"votes"}) for verdict in verdicts]
        run.ledger.set_meta(META, {seed.id: row for seed, row in zip(seeds.order, rows, strict=True)}, twice=True)
    return keep_judged_seeds(run, seeds)


def restore_seeds(run: Run) -> Seeds | None:
    """Return the seeds as the run's ledger holds them, without those that its judge refused; None if some are missing."""
    try:
        order = [seed for _, seed in run.ledger.seeds()]
    except (KeyError, ValueError):  # a rebuilt ledger may lack the head of a seed
        return None
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for seed in order:
        groups[seed.pack or "seeds"].append(seed)
    known = run.ledger.meta(IDENTIFIERS)  # inferred from seeds that were left out, too
    identifiers = infer_identifiers_by_pack(order) if known is None else read_identifiers(known)
    seeds = Seeds(order, dict(groups), identifiers, read=len(order))
    verdicts = run.ledger.meta(META) or {seed.id: {} for seed in order}
    used = [id_ for id_, row in verdicts.items() if row.get("passed") is not False]
    is_whole = digest(list(verdicts)) == run.ledger.meta("facts")["seeds"] and used == [seed.id for seed in order]
    return seeds if is_whole else None


def keep_judged_seeds(run: Run, seeds: Seeds) -> Seeds:
    """Remove the seeds that this run's judge refused, by the stored verdicts."""
    known = run.ledger.meta(META) or {}
    verdicts = {seed_id: Verdict.model_validate(row) for seed_id, row in known.items()}
    return remove_seeds(seeds, {seed_id: each.issues for seed_id, each in verdicts.items() if each.passed is False})


async def ask_judge(run: Run, config: AmplifyConfig, seeds: Seeds, backend: ModelBackend) -> list[Verdict]:
    own = config.prefilter.llm
    async with contextlib.AsyncExitStack() as stack:
        if own is not None:
            backend = open_backend(own)
            stack.push_async_callback(backend.close)
            await backend.start()
        engine = Engine(backend, run.ledger, config.limits, find_price(own or config.llm))
        stack.callback(engine.gate.close)
        share_budget([engine], run.ledger.earlier_spending())
        try:
            return await judge_seeds_by_llm(seeds.order, config.prefilter, engine)
        except BudgetReached as reached:
            raise UserError(f"not all seeds are judged: {reached}") from None
        except LLMFault as fault:
            if not isinstance(backend, DeferredBackend):
                raise
            raise SeedsPending(
                f"{write_count(backend.pending, 'question')} about the seeds to answer in {backend.place}"
            ) from fault
        finally:
            run.ledger.note_tries(*count_tries([engine]))
