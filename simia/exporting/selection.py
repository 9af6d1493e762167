"""Select the trajectories to export from runs, files and packs: filter them, mix packs, set the deployment's system text (paper §2.2)."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simia import formats
from simia.errors import Code, Issue, UserError
from simia.exporting.data_card import CardFacts
from simia.exporting.episode_groups import BestOfGroups
from simia.exporting.origins import describe_origin
from simia.exporting.row_identity import hash_row
from simia.exporting.teacher_episodes import DroppedEpisode, TeacherEpisodes, has_teacher_filters
from simia.jobs import Run, find_run, refuse_partial
from simia.jobs.run import is_run
from simia.pack import Pack
from simia.quality.judging.run_judgement import load_judgement
from simia.quality.selection.mixing import Mixer, check_shares
from simia.refusals import RefusalCounts
from simia.trajectory import Trajectory, digest

TRAIN = "train"  # the split whose solutions may be trained on; tasks without a split count to it
DUPLICATE = "are duplicates of others and were left out"
RunItem = tuple[str | None, str | None]  # the run and the item of a trajectory
HashRow = Callable[[Trajectory], str]
Decisions = Mapping[tuple[str, str], list[Issue] | None]
"""(Item, id of the trajectory) → faults for which it is left out; None: it is kept."""


@dataclass(slots=True)
class Selection:
    """The trajectories to export.

    `folders`: the runs; `notes`: a line for each incomplete run. `left_out`: reason → number of trajectories; `unread`: rows that no
    dialect reads. `verdicts`: the (run, item) that have a verdict on their present text; None: not asked for. All three are complete when
    `rows` have been read.
    """

    rows: Iterable[Trajectory]
    facts: CardFacts = field(default_factory=CardFacts)
    folders: list[Path] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unread: RefusalCounts = field(default_factory=RefusalCounts)
    verdicts: set[RunItem] | None = None
    dropped: list[DroppedEpisode] = field(default_factory=list)
    """Episodes that a teacher's filters or a judge left out; complete when `rows` have been read."""


def select(
    names: list[str],
    runs: Path,
    *,
    mix: Mapping[str, float] | None = None,
    take: int | None = None,
    system: str | None = None,
    reasoning: bool | None = None,
    judged: bool = False,
    partial: bool = False,
    best: BestOfGroups | None = None,
) -> Selection:
    """Select trajectories of runs, files and packs; `best` selects from trainings. Rows that would be written equally are selected once:
    `reasoning` says whether it is written (None: where the suite's prompt requires it). Raises `UserError`; also for an incomplete run,
    unless `partial`."""
    if take is not None and not mix:
        raise UserError("take needs a mix: give the packs' shares with --mix retail=0.7, in Python mix={'retail': 0.7}")
    names = [formats.pin_hub_name(name) for name in names]
    for name in names:
        path = Path(name)
        if (
            path.suffix in (".jsonl", ".json", ".parquet", ".arrow")
            and not path.exists()
            and not (runs / name).exists()
        ):
            raise UserError(f"{name} does not exist: give a file, a pack's folder or a run in {runs}")
    folders = [find_run(runs, name) for name in names if not is_file_or_pack(name, runs)]
    selection = Selection((), folders=folders)
    unread = selection.unread
    best = BestOfGroups(best.least if best else 1.0, selection.left_out)
    all_facts = []
    for folder in folders:
        with closing(Run.read_only(folder.parent, str(folder))) as run:
            condition = refuse_partial(run, partial=partial, how="--partial")
            selection.notes += [] if condition.complete else [str(condition)]
            all_facts.append(read_facts(run))
    selection.facts = merge_facts(all_facts, names, runs)
    teacher = TeacherEpisodes(selection.dropped)
    identify = functools.partial(hash_row, system=system is None, reasoning=reasoning)
    rows = (
        mix_packs(names, runs, mix, take, unread, best, teacher, identify)
        if mix
        else iterate_trajectories(names, runs, unread, best, teacher)
    )
    if judged:
        decided = {folder.name: load_judgement(folder).decide() for folder in folders}
        selection.verdicts = set()
        rows = filter_rows(rows, selection.left_out, identify)
        rows = drop_judged_bad(rows, decided, selection.verdicts, selection.dropped)
    else:
        rows = filter_rows(rows, selection.left_out, identify)
    selection.rows = set_system(rows, system) if system else rows
    return selection


def filter_rows(
    rows: Iterable[Trajectory], left_out: Counter[str], identify: HashRow = hash_row
) -> Iterator[Trajectory]:
    """Leave out duplicates and episodes of a benchmark's tasks; `left_out` counts them."""
    for t in drop_duplicates(rows, left_out, identify):
        if t.extra.get("evaluation") is True:
            left_out[f"of {get_domain(t)} were left out: its tasks are for evaluation only"] += 1
        else:
            yield t


def drop_judged_bad(
    rows: Iterable[Trajectory],
    decided: Mapping[str, Decisions],
    verdicts: set[RunItem],
    dropped: list[DroppedEpisode],
) -> Iterator[Trajectory]:
    """Leave out the trajectories that judges failed, with the first fault in `dropped`. A verdict on an earlier text of an item, before a recheck,
    is none.

    Args:
        rows: The trajectories.
        decided: Run → its judges' decisions, from `Judgement.decide`.
        verdicts: Takes the run and item of each trajectory with a verdict.
        dropped: Takes those that are left out.
    """
    for t in rows:
        run, item = t.provenance.run, t.provenance.item or ""
        key, of_run = (item, t.id), decided.get(run or "", {})
        if key in of_run:
            verdicts.add((run, item))
        if (faults := of_run.get(key)) is None:
            yield t
        else:
            dropped.append(DroppedEpisode(t.id, item, next(iter(faults), Issue(code=Code.JUDGED_BAD))))


def drop_duplicates(
    rows: Iterable[Trajectory], left_out: Counter[str], identify: HashRow = hash_row
) -> Iterator[Trajectory]:
    """Keep the first of those that would be written equally, which several sources may hold."""
    seen: set[str] = set()
    for t in rows:
        key = identify(t)
        if key in seen:
            left_out[DUPLICATE] += 1
        else:
            seen.add(key)
            yield t


def is_file_or_pack(name: str, runs: Path) -> bool:
    return Path(name).is_file() or (Path(name) / "pack.yaml").is_file() or is_data_source(name, runs)


def is_data_source(name: str, runs: Path) -> bool:
    """Whether a name is that of a data set. The id of a run means the run, even if a folder has the same name."""
    return formats.is_data_set(name) and not is_run(runs / name)


def read_facts(run: Run) -> CardFacts:
    """Read the facts about a run's trajectories."""
    facts, used = run.ledger.meta("facts") or {}, (run.ledger.meta("seeds") or {"used": []})["used"]
    counts = run.ledger.counts() if run.is_training else {"accepted": run.ledger.accepted_count()}
    return CardFacts(
        name=run.id,
        run=run.id,
        config_digest=digest(run.saved_config()),
        seeds=sorted({str(seed["pack"]) for seed in used} | set(list_hub_seeds(run)) | list_played(run, facts)),
        models=[str(facts.get("model"))],
        prompts=facts.get("prompts", {}),
        licences=sorted({str(seed.get("licence") or "unknown") for seed in used}),
        origins=[describe_origin(run)],
        counts={**counts, **run.ledger.reasons()},
    )


def list_played(run: Run, facts: Mapping[str, Any]) -> set[str]:
    """The pack whose tasks a rollout plays."""
    return {str(facts["pack"])} if run.is_rollout and facts.get("pack") else set()


def list_hub_seeds(run: Run) -> list[str]:
    """List the data sets of the hub among a run's seeds, each with its commit."""
    packs = (run.saved_config().get("seeds") or {}).get("packs") or []
    return [name for name in packs if formats.is_hub_name(str(name))]


def merge_facts(facts: list[CardFacts], names: list[str], runs: Path) -> CardFacts:
    """Merge the facts of all sources, for one card."""
    if len(facts) == 1 and len(names) == 1:
        return facts[0]
    counts: Counter[str] = Counter()
    for each in facts:
        counts.update(each.counts)
    others = [name if formats.is_hub_name(name) else Path(name).name for name in names if is_file_or_pack(name, runs)]
    licences = {licence for each in facts for licence in each.licences} | set(list_licences(names, runs))
    origins = [origin for each in facts for origin in each.origins]
    if others:
        origins.append("Files, data sets and packs among the sources are as they were read.")
    return CardFacts(
        name=" + ".join(Path(name).name for name in names),
        run=", ".join(each.run for each in facts if each.run) or None,
        config_digest=", ".join(each.config_digest for each in facts if each.config_digest) or None,
        seeds=sorted({seed for each in facts for seed in each.seeds} | set(others)),
        models=sorted({model for each in facts for model in each.models}),
        prompts={name: hashed for each in facts for name, hashed in each.prompts.items()},
        licences=sorted(licences) or ["unknown"],
        origins=[*dict.fromkeys(origins)],
        counts=dict(counts),
    )


def list_licences(names: Iterable[str], runs: Path) -> list[str]:
    """List the licences of the data sets among the sources, as far as their cards name them."""
    found = [formats.open_data_set(name).licence for name in names if is_data_source(name, runs)]
    return [licence for licence in found if licence]


def iterate_trajectories(
    names: Iterable[str],
    runs: Path,
    unread: RefusalCounts | None = None,
    best: BestOfGroups | None = None,
    teacher: TeacherEpisodes | None = None,
) -> Iterator[Trajectory]:
    """Read all sources in the order named. `unread` counts the rows that no dialect reads."""
    best = best or BestOfGroups()
    for name in names:
        path = Path(name)
        if path.is_file() or is_data_source(name, runs):
            for row in formats.read(name):
                if isinstance(row, Trajectory):
                    yield row
                elif unread is not None:
                    place = f"{path.name if path.exists() else name}:{row.line}"
                    unread.add(place, Issue(code=row.code, detail=row.detail))
        elif (path / "pack.yaml").is_file():
            yield from list_pack_trajectories(Pack.load(path))
        else:
            with closing(Run.read_only(runs, name)) as run:
                if run.is_training:
                    yield from best.select([run.folder])
                    continue
                if has_teacher_filters(run):
                    yield from (teacher or TeacherEpisodes()).select(run)
                    continue
                for body in run.ledger.accepted():
                    yield Trajectory.from_row(body["trajectory"])


def list_pack_trajectories(pack: Pack) -> list[Trajectory]:
    """Return a pack's seeds; if it has none, the recorded solutions of its training tasks (CodeGym §5.4, Oracle-SFT)."""
    if pack.seeds:
        return pack.seeds
    found = []
    for task in pack.tasks:
        t = pack.references.get(task.id)
        if t is not None and (task.split or TRAIN) == TRAIN:
            evaluation = pack.evaluation or "evaluation" in task.tags
            found.append(t.model_copy(update={"extra": {**t.extra, "evaluation": True}}) if evaluation else t)
    return found


def get_domain(t: Trajectory) -> str:
    return t.pack or "unknown"


def mix_packs(
    names: list[str],
    runs: Path,
    shares: Mapping[str, float],
    total: int | None,
    unread: RefusalCounts | None = None,
    best: BestOfGroups | None = None,
    teacher: TeacherEpisodes | None = None,
    identify: HashRow = hash_row,
) -> Iterator[Trajectory]:
    """Interleave the trajectories of packs by their shares. Reads the sources twice: to count and to write."""
    check_shares(shares)
    best = best or BestOfGroups()
    counted = iterate_trajectories(names, runs, best=BestOfGroups(best.least))
    available = Counter(get_domain(t) for t in drop_duplicates(counted, Counter(), identify))
    weight = sum(shares.values()) or 1.0
    # Without a total: as many as the scarcest pack allows.
    most = min((int(available[name] * weight / share) for name, share in shares.items() if share > 0), default=0)
    mixer = Mixer(shares, most if total is None else total, available)
    chosen: dict[str, list[Trajectory]] = defaultdict(list)
    index: Counter[str] = Counter()
    order = mixer.order()
    turn = next(order, None)
    for t in drop_duplicates(iterate_trajectories(names, runs, unread, best, teacher), Counter(), identify):
        name = get_domain(t)
        if mixer.choose(name, index[name]):
            chosen[name].append(t)
        index[name] += 1
        while turn is not None and chosen[turn]:
            yield chosen[turn].pop(0)
            turn = next(order, None)


def parse_shares(given: Iterable[str]) -> dict[str, float]:
    """Parse `retail=0.7 airline=0.3` into numbers."""
    found = {}
    for each in given:
        name, _, share = each.rpartition("=")
        try:
            found[name] = float(share)
        except ValueError:
            name = ""
        if not name:
            raise UserError(f"--mix {each!r}: write it as pack=share, such as retail=0.7")
    return found


def set_system(source: Iterable[Trajectory], given: str) -> Iterator[Trajectory]:
    """Set the system text: one file for all, or a YAML file that names a file for each pack."""
    path = Path(given)
    texts: dict[str, str] = {}
    if path.suffix in (".yaml", ".yml"):
        try:
            named = yaml.safe_load(read_system(path)) or {}
        except yaml.YAMLError as error:
            raise UserError(f"{path} is not YAML: {' '.join(str(error).split())[:200]}") from None
        if not isinstance(named, dict):
            raise UserError(f"{path} must name a file for each pack, such as retail: prompts/retail.txt")
        texts = {str(pack): read_system(path.parent / str(file)) for pack, file in named.items()}
    else:
        everywhere = read_system(path)
    for t in source:
        if texts and get_domain(t) not in texts:
            raise UserError(f"{path} names no system text for pack {get_domain(t)!r}; it has: {', '.join(texts)}")
        yield t.model_copy(update={"system": texts[get_domain(t)] if texts else everywhere})


def read_system(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserError(f"cannot read the system text {path}: {why}") from None
