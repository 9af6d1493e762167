"""What is exported: accepted trajectories of one run or several, files in any dialect, packs; mixed, and with the system text of the
place where the model will work (paper §2.2)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from simia import formats
from simia.errors import Code, UserError
from simia.jobs import Run, refuse_partial
from simia.pack import Pack
from simia.quality.exact_duplicates import hash_content
from simia.quality.judging.run_judgement import load_judgement
from simia.quality.selection.mixing import Mixer
from simia.trajectory import Trajectory


def refuse_partial_runs(folders: Iterable[Path], *, partial: bool) -> list[str]:
    """Return a line for each run that is not complete. Raises `UserError` for the first of them unless `partial`."""
    notes = []
    for folder in folders:
        run = Run.read_only(folder.parent, str(folder))
        try:
            found = refuse_partial(run, partial=partial, how="--partial")
        finally:
            run.close()
        notes += [] if found.complete else [str(found)]
    return notes


def iterate_trajectories(names: Iterable[str], runs: Path) -> Iterator[Trajectory]:
    """In the order named. A file's rows that cannot be read are passed over here and named by `unread`; whether a run is complete is
    for `refuse_partial_runs` to see."""
    for name in names:
        path = Path(name)
        if path.suffix == ".parquet":
            from simia.exporting.parquet import read_parquet

            yield from read_parquet(path)
        elif path.is_file():
            yield from (row for row in formats.read(path) if isinstance(row, Trajectory))
        elif (path / "pack.yaml").is_file():
            yield from Pack.load(path).seeds
        else:
            run = Run.read_only(runs, name)
            try:
                for body in run.ledger.accepted():
                    yield Trajectory.from_row(body["trajectory"])
            finally:
                run.close()


def list_unread_rows(names: Iterable[str]) -> list[str]:
    """List the rows of these files that no dialect reads, each with its line and reason."""
    files = [Path(name) for name in names if Path(name).is_file() and Path(name).suffix != ".parquet"]
    return [
        f"{path.name}, line {row.line}: {row.code}: {row.detail}"
        for path in files
        for row in formats.read(path)
        if not isinstance(row, Trajectory)
    ]


def drop_judged_bad(
    source: Iterable[Trajectory], folders: Iterable[Path], dropped: Counter[str]
) -> Iterator[Trajectory]:
    """Leave out trajectories that a judge of their run failed (`simia judge`); unjudged ones stay."""
    bad = {
        (folder.name, item): issues[0] for folder in folders for item, issues in load_judgement(folder).failed().items()
    }
    for t in source:
        if (t.provenance.run, t.provenance.item) in bad:
            dropped[str(Code.JUDGED_BAD)] += 1
        else:
            yield t


def drop_benchmarks(source: Iterable[Trajectory], dropped: Counter[str]) -> Iterator[Trajectory]:
    """Leave out episodes of packs whose tasks belong to a benchmark."""
    for t in source:
        if t.extra.get("evaluation") is True:
            dropped[t.pack or "unknown"] += 1
        else:
            yield t


class ExactDuplicateFilter:
    """Several sources may hold the same conversation: the first stays. `dropped` counts the others."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.dropped = 0

    def __call__(self, source: Iterable[Trajectory]) -> Iterator[Trajectory]:
        for t in source:
            said = hash_content(t)
            if said in self._seen:
                self.dropped += 1
            else:
                self._seen.add(said)
                yield t


def get_domain(t: Trajectory) -> str:
    return t.pack or "unknown"


def mix_packs(names: list[str], runs: Path, shares: Mapping[str, float], total: int | None) -> Iterator[Trajectory]:
    """Mix packs, interleaved. Reads the sources twice: to count and to write."""
    available = Counter(get_domain(t) for t in ExactDuplicateFilter()(iterate_trajectories(names, runs)))
    weight = sum(shares.values()) or 1.0
    # Without a total: as many as the scarcest pack allows.
    most = min((int(available[name] * weight / share) for name, share in shares.items() if share > 0), default=0)
    mixer = Mixer(shares, most if total is None else total, available)
    chosen: dict[str, list[Trajectory]] = defaultdict(list)
    index: Counter[str] = Counter()
    order = mixer.order()
    turn = next(order, None)
    for t in ExactDuplicateFilter()(iterate_trajectories(names, runs)):
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
            found[""] = 0.0
        if not name or "" in found:
            raise UserError(f"--mix {each!r}: write it as pack=share, such as retail=0.7")
    return found


def set_system(source: Iterable[Trajectory], given: str) -> Iterator[Trajectory]:
    """Set the system text: one file for all, or a YAML file that names a file for each pack."""
    path = Path(given)
    texts: dict[str, str] = {}
    if path.suffix in (".yaml", ".yml"):
        named = yaml.safe_load(read_system(path)) or {}
        if not isinstance(named, dict):
            raise UserError(f"{path} must name a file for each pack, as retail: prompts/retail.txt")
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
        raise UserError(f"cannot read the system text {path}: {error}") from None
