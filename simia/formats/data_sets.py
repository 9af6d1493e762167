"""Data sets as sources of rows: of the Hugging Face hub, folders of `datasets.save_to_disk`, Parquet files and folders of shards.

Rows are read in batches, and a file of the hub is fetched after the rows of the previous file have been read, so that memory does
not grow with the data set. Each trajectory stores its source and licence. As on the hub, the data card's `configs` define files
and splits, or else the names of files and folders do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from simia.errors import UserError
from simia.formats.dialect import RefusedRow, RowLimits
from simia.formats.hub import CONVERTED, HubCommit, HubName, is_hub_name, parse_hub_name, resolve_commit
from simia.formats.parquet_rows import import_arrow, read_table
from simia.formats.row_conversion import FileRow
from simia.formats.row_files import open_rows
from simia.terminal import write_count
from simia.trajectory import Trajectory

TABLES = (".parquet", ".arrow")
KINDS = (".parquet", ".jsonl", ".arrow", ".json")
"""Of files of several kinds, the first kind counts: others are copies or settings."""
SETTINGS = {"state.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "refused.jsonl"}
OWN = ("pack.yaml", "ledger.db")
"""Files of a pack and of a run, whose folders are no data sets, though exports may be in them."""
SHARD = re.compile(r"data/([\w.-]+?)-\d{5}-of-\d{5}[^/]*")
KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
FRONT_MATTER = re.compile(r"---\r?\n(.*?)\r?\n---", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DataSet:
    """The files of one split. `fetch` gives the local path of a file; `title` is a short name for packs and reports."""

    source: str
    title: str
    files: tuple[str, ...]
    fetch: Callable[[str], Path]
    licence: str | None = None

    def rows(self, limits: RowLimits) -> Iterator[FileRow]:
        """Yield the rows, numbered from 1 through all files."""
        number = 0
        for file in self.files:
            path = self.fetch(file)
            for row in open_arrow(path, limits) if path.suffix.lower() == ".arrow" else open_rows(path, limits):
                number += 1
                yield FileRow(number, number, row.shown, row.value, row.error)


def is_data_set(name: str | Path) -> bool:
    """Return whether this is a name on the hub, an Arrow file, or a folder of a data set. A single Parquet file is not."""
    if is_hub_name(name):
        return True
    path = Path(name).expanduser()
    if path.suffix.lower() == ".arrow" and path.is_file():
        return True
    if not path.is_dir() or any((path / own).exists() for own in OWN):
        return False
    return is_saved(path) or (path / "snapshots").is_dir() or any(find_files(path, TABLES))


def open_data_set(name: str | Path) -> DataSet:
    """Find the files of a data set. Raises `UserError` if the name, the split or the folder does not exist or holds no data set."""
    if is_hub_name(name):
        return open_hub_data_set(parse_hub_name(str(name)))
    path = Path(name).expanduser()
    if path.is_file():
        return DataSet(str(name), path.stem, (path.name,), lambda _: path)
    if is_saved(path):
        return open_saved_folder(path)
    return open_folder(resolve_snapshot(path), path)


def open_hub_data_set(name: HubName) -> DataSet:
    commit = resolve_commit(name)
    files = keep_data(commit.files)
    if not files:  # scripts, CSV and others: the hub converts most of them
        commit, files = open_converted(commit)
    chosen = choose_files(str(commit.name), files, commit.card, name.split, name.config)
    return DataSet(str(commit.name), name.repo.rpartition("/")[2], chosen, commit.fetch, read_licence(commit.card))


def open_converted(commit: HubCommit) -> tuple[HubCommit, list[str]]:
    name = commit.name
    try:
        found = resolve_commit(HubName(name.repo, name.config, CONVERTED, name.split))
    except UserError:
        found = HubCommit(name, ())
    if not found.files:
        raise UserError(
            f"{name}: the data set has no Parquet or JSON files, and the hub has not converted it; convert it to Parquet"
        )
    return HubCommit(found.name, found.files, commit.card), keep_data(found.files)


def is_saved(path: Path) -> bool:
    return (path / "state.json").is_file() or (path / "dataset_dict.json").is_file()


def open_saved_folder(path: Path) -> DataSet:
    """Open a folder of `datasets.save_to_disk`: one split, or a dictionary of splits, of which `train` counts."""
    folder = path
    if (path / "dataset_dict.json").is_file():
        splits = [str(each) for each in read_json_file(path / "dataset_dict.json").get("splits", [])]
        split = "train" if "train" in splits else splits[0] if len(splits) == 1 else None
        if split is None:
            raise UserError(f"{path} has no split train: give the folder of one, such as {path / (splits or ['?'])[0]}")
        folder = path / split
    listed = read_json_file(folder / "state.json").get("_data_files", [])
    files = tuple(str(each["filename"]) for each in listed)
    info = folder / "dataset_info.json"
    licence = str(read_json_file(info).get("license") or "") if info.is_file() else ""
    return DataSet(str(path), path.name, files, folder.joinpath, licence or None)


def open_folder(folder: Path, given: Path) -> DataSet:
    """Open a folder of Parquet shards, such as a clone of a data set, or a snapshot in the hub's cache."""
    card = folder / "README.md"
    text = card.read_text("utf-8", "replace") if card.is_file() else ""
    files = keep_data(find_files(folder, KINDS))
    title = re.sub(r"^datasets--.*?--", "", given.resolve().name)
    return DataSet(str(given), title, choose_files(str(given), files, text), folder.joinpath, read_licence(text))


def resolve_snapshot(path: Path) -> Path:
    """Return the newest snapshot of a data set's folder in the hub's cache (`datasets--OWNER--NAME`)."""
    snapshots = path / "snapshots"
    if not snapshots.is_dir():
        return path
    main = path / "refs" / "main"
    if main.is_file() and (found := snapshots / main.read_text("utf-8").strip()).is_dir():
        return found
    known = sorted(each for each in snapshots.iterdir() if each.is_dir())
    if len(known) != 1:
        raise UserError(
            f"{path} holds {write_count(len(known), 'snapshot')} and no refs/main: give the folder of one snapshot"
        )
    return known[0]


def find_files(folder: Path, suffixes: Iterable[str]) -> Iterator[str]:
    """Yield files by their path in the folder, at most two folders down."""
    for pattern in ("*", "*/*", "*/*/*"):
        for path in sorted(folder.glob(pattern)):
            if path.suffix.lower() in suffixes and path.is_file():
                yield path.relative_to(folder).as_posix()


def keep_data(files: Iterable[str]) -> list[str]:
    """Keep the files that hold rows: of one kind, in the order of their names."""
    named = [file for file in files if file.rpartition("/")[2] not in SETTINGS and not file.startswith(".")]
    for kind in KINDS:
        if found := sorted(file for file in named if file.lower().endswith(kind)):
            return found
    return []


def choose_files(
    source: str, files: list[str], card: str, split: str | None = None, config: str | None = None
) -> tuple[str, ...]:
    """Choose the files of one split. Raises `UserError` that lists the splits, if this one is not there."""
    splits = read_card_splits(files, card, config) or find_splits(files, config)
    if not splits:
        raise UserError(f"{source}: no data file{f' of the configuration {config}' if config else ''}")
    wanted = split or ("train" if len(splits) > 1 else next(iter(splits)))
    if wanted not in splits:
        raise UserError(f"{source}: no split {wanted!r}; it has: {', '.join(splits)}")
    return tuple(splits[wanted])


def read_card_splits(files: list[str], card: str, config: str | None) -> dict[str, list[str]]:
    """Return the files by split as the card's `configs` name them; empty if it names none."""
    listed = read_front_matter(card).get("configs")
    configs = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    named = {str(each.get("config_name", "default")): each for each in configs}
    default = next((each for each in configs if each.get("default") is True), named.get("default"))
    chosen = named.get(config) if config else default or next(iter(configs), None)
    given = chosen.get("data_files") if chosen else None
    if given is None:
        return {}
    listing = given if isinstance(given, list) else [given]
    splits: dict[str, list[str]] = {}
    for each in listing:
        split, paths = (each.get("split", "train"), each.get("path")) if isinstance(each, dict) else ("train", each)
        for pattern in paths if isinstance(paths, list) else [paths]:
            found = [file for file in files if fnmatchcase(file, str(pattern).removeprefix("./").replace("**/", "*"))]
            splits.setdefault(str(split), []).extend(found)
    return {split: found for split, found in splits.items() if found}


def find_splits(files: list[str], config: str | None) -> dict[str, list[str]]:
    """Return the files by split, by the names of files and folders; without such names all are `train`."""
    if config:
        files = [file for file in files if file.startswith(f"{config}/")]
    splits: dict[str, list[str]] = {}
    for file in files:
        if split := ((found := SHARD.fullmatch(file)) and found[1]) or find_keyword(file):
            splits.setdefault(split, []).append(file)
    return splits or ({"train": files} if files else {})


def find_keyword(file: str) -> str | None:
    """Return the split that a path names, such as `test` for `en/test-0.parquet`."""
    words = set(re.split(r"[-._ 0-9/]+", file.rpartition(".")[0].lower()))
    return next((split for split, names in KEYWORDS.items() if words & set(names)), None)


def read_front_matter(card: str) -> Mapping[str, Any]:
    """Return the YAML head of a data card; empty if there is none that can be read."""
    found = FRONT_MATTER.match(card.removeprefix("\ufeff"))
    try:
        head = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}
    return head if isinstance(head, dict) else {}


def read_licence(card: str) -> str | None:
    head = read_front_matter(card)
    given = head.get("license")
    if given == "other":
        given = head.get("license_name") or given
    return ", ".join(map(str, given)) if isinstance(given, list) else str(given) if given else None


def read_json_file(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}; save the data set again with save_to_disk") from None
    return found if isinstance(found, dict) else {}


def open_arrow(path: Path, limits: RowLimits) -> Iterator[FileRow]:
    """Open the rows of an Arrow file: a stream, as `datasets` writes it, or a file with a footer."""
    pa, _ = import_arrow()
    try:
        source = pa.memory_map(str(path))
        try:
            reader = pa.ipc.open_stream(source)
        except pa.ArrowInvalid:
            source.seek(0)
            file = pa.ipc.open_file(source)
            return read_table(pa, ArrowFile(file.schema, map(file.get_batch, range(file.num_record_batches))), limits)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read as Arrow: {str(error).splitlines()[0]:.200}") from None
    return read_table(pa, ArrowFile(reader.schema, iter(reader)), limits)


@dataclass(frozen=True, slots=True)
class ArrowFile:
    """The batches of an Arrow file, in the form in which a Parquet file gives them."""

    schema_arrow: Any
    batches: Iterator[Any]

    def iter_batches(self, batch_size: int) -> Iterator[Any]:
        for batch in self.batches:
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)


def add_licence(rows: Iterable[Trajectory | RefusedRow], licence: str | None) -> Iterator[Trajectory | RefusedRow]:
    """Give each trajectory without a licence of its own the data set's."""
    for row in rows:
        if isinstance(row, Trajectory):
            row.provenance.licence = row.provenance.licence or licence
        yield row
