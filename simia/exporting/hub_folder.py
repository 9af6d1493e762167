"""Write a data set folder in the layout of the Hugging Face hub (`data/train-00000-of-00001.parquet`, … and a data card), and upload it.

`datasets.load_dataset` opens the folder and the uploaded data set alike, and simia reads both back to the same trajectories.
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from simia.errors import UserError
from simia.exporting.parquet_table import TableWriter
from simia.formats.hub import explain_hub_error, import_hub, parse_hub_name
from simia.trajectory import Trajectory

FOLDER = "data"
LARGEST = 300 << 20  # bytes of a shard, compressed
SHARDS = "data/train-*-of-*.parquet"
SHARD = re.compile(r"data/train-\d{5}-of-\d{5}\.parquet")
REPO = re.compile(r"[\w.-]+/[\w.-]+")


class ShardWriter:
    """Writes trajectories into Parquet files of a limited size. `close` names them by their number."""

    def __init__(self, draft: Path, metadata: dict[str, str], largest: int = LARGEST) -> None:
        self._draft, self._metadata, self._largest = draft, metadata, largest
        (draft / FOLDER).mkdir()
        self._paths: list[Path] = []
        self._file: BinaryIO | None = None
        self._table: TableWriter | None = None

    def write(self, t: Trajectory) -> None:
        if self._table is None or self._file is None:
            self._open()
        assert self._table is not None
        assert self._file is not None
        self._table.write(t)
        if self._file.tell() >= self._largest:
            self._close_shard()

    def close(self) -> list[str]:
        """Finish the last shard and return the names of all."""
        if not self._paths:
            self._open()  # an empty table still has its columns
        self._close_shard()
        names = []
        for number, path in enumerate(self._paths):
            name = f"{FOLDER}/train-{number:05d}-of-{len(self._paths):05d}.parquet"
            path.replace(self._draft / name)
            names.append(name)
        return names

    def _open(self) -> None:
        path = self._draft / FOLDER / f"part-{len(self._paths)}"
        self._paths.append(path)
        self._file = path.open("wb")
        self._table = TableWriter(self._file, self._metadata)

    def _close_shard(self) -> None:
        if self._table is not None and self._file is not None:
            self._table.close()
            self._file.close()
        self._table = self._file = None


def remove_other_shards(folder: Path, names: list[str]) -> None:
    """Remove the shards of an earlier export, which would be read as part of this one."""
    for path in sorted(folder.glob(SHARDS)):
        name = path.relative_to(folder).as_posix()
        if name not in names and SHARD.fullmatch(name):
            path.unlink()


def read_hub_token() -> str:
    """Return the token of the environment. Raises `UserError` if there is none."""
    if token := os.environ.get("HF_TOKEN", "").strip():
        return token
    raise UserError("--push needs a token of the hub in the environment: set HF_TOKEN to one that may write data sets")


def check_repository(name: str) -> str:
    """Return OWNER/NAME. Raises `UserError` for anything else."""
    if REPO.fullmatch(name):
        return name
    if name.startswith("hf:"):
        return parse_hub_name(name).repo
    raise UserError(f"--push {name}: write it as OWNER/NAME")


def push_folder(folder: Path, repo: str, files: list[str], *, public: bool = False) -> str:
    """Upload the files of an export as one commit; return the address of the data set.

    A new data set is private unless `public`. One that exists keeps its visibility; a public one is refused unless `public`.
    Shards of an earlier upload are removed in the same commit.
    """
    token, repo = read_hub_token(), check_repository(repo)
    hub = import_hub()
    import_module("huggingface_hub.utils").disable_progress_bars()
    api: Any = hub.HfApi(endpoint=os.environ.get("HF_ENDPOINT"), token=token)
    try:
        made = api.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
        if not public and not api.dataset_info(repo).private:
            raise UserError(
                f"--push {repo}: this data set is public: add --public to upload to it, or choose a new name"
            )
        kept = [name for name in files if name != "refused.jsonl"]
        api.upload_folder(
            repo_id=repo,
            repo_type="dataset",
            folder_path=folder,
            allow_patterns=kept,
            delete_patterns=[SHARDS],
            commit_message="Upload trajectories with their data card",
        )
    except UserError:
        raise
    except Exception as error:
        raise UserError(explain_push_error(repo, error)) from None
    return str(made)


def explain_push_error(repo: str, error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"--push {repo}: the hub refused the token (HTTP {status}): HF_TOKEN must be one that may write to {repo.split('/')[0]}"
    return f"--push {explain_hub_error(parse_hub_name(f'hf:{repo}'), error)}"
