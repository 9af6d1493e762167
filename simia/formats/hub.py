"""Read data sets of the Hugging Face hub: `hf:OWNER/NAME[/CONFIG][@REVISION][:SPLIT]`.

A name is resolved to a commit, whose files never change. Only the files of one split are fetched, one after another, into the
cache that all programs of the hub share (`HF_HOME`). The variables `HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE` are respected.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from simia.errors import UserError
from simia.search_path import cache_root

PREFIX = "hf:"
NAME = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(?:/(?P<config>[^\s@:/]+))?(?:@(?P<revision>[^\s:]+))?(?::(?P<split>[\w.-]+))?"
)
COMMIT = re.compile(r"[0-9a-f]{40}")
CONVERTED = "refs/convert/parquet"
"""Branch with the Parquet files that the hub makes of data in other formats."""


@dataclass(frozen=True, slots=True)
class HubName:
    """A data set of the hub by name. `config` None: its default; `revision` None: the newest; `split` None: train."""

    repo: str
    config: str | None = None
    revision: str | None = None
    split: str | None = None

    def __str__(self) -> str:
        parts = (f"/{self.config}", self.config), (f"@{self.revision}", self.revision), (f":{self.split}", self.split)
        return PREFIX + self.repo + "".join(text for text, given in parts if given)


@dataclass(frozen=True, slots=True)
class HubCommit:
    """One commit of a data set: its hash, its files, and the text of its card."""

    name: HubName
    files: tuple[str, ...]
    card: str = ""

    def fetch(self, file: str) -> Path:
        """Return the local path of a file, which is fetched unless the cache has it."""
        assert self.name.revision is not None
        return fetch_file(self.name.repo, file, self.name.revision)


def is_hub_name(name: str | Path) -> bool:
    return str(name).startswith(PREFIX)


def parse_hub_name(name: str) -> HubName:
    if found := NAME.fullmatch(name):
        return HubName(**found.groupdict())
    raise UserError(
        f"{name} is not the name of a data set; write hf:OWNER/NAME, with a split other than train as hf:OWNER/NAME:SPLIT, "
        "a configuration as hf:OWNER/NAME/CONFIG, a revision as hf:OWNER/NAME@REVISION"
    )


def pin_hub_name(name: str) -> str:
    """Return the name with the hash of its commit, so that it always names the same rows."""
    return str(resolve_commit(parse_hub_name(name)).name) if is_hub_name(name) else name


def resolve_commit(name: HubName) -> HubCommit:
    """Look up the commit of a data set and the names of its files. A known commit is looked up once and needs no network."""
    kept = locate_listing(name)
    if kept and kept.is_file():
        stored = json.loads(kept.read_text(encoding="utf-8"))
        return HubCommit(name, tuple(stored["files"]), stored["card"])
    api = import_hub().HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        info = api.dataset_info(name.repo, revision=name.revision)
    except Exception as error:
        raise UserError(explain_hub_error(name, error)) from None
    pinned = replace(name, revision=str(info.sha))
    files = tuple(each.rfilename for each in info.siblings or ())
    card = (
        fetch_file(name.repo, "README.md", str(info.sha)).read_text("utf-8", "replace") if "README.md" in files else ""
    )
    if (kept := locate_listing(pinned)) is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"files": files, "card": card}), encoding="utf-8")
        draft.replace(kept)
    return HubCommit(pinned, files, card)


def locate_listing(name: HubName) -> Path | None:
    """Return where the list of a commit's files is kept; None for a branch or tag, whose files change."""
    if not (name.revision and COMMIT.fullmatch(name.revision)):
        return None
    return cache_root() / "data_sets" / f"{name.repo.replace('/', '--')}@{name.revision}.json"


def fetch_file(repo: str, file: str, revision: str) -> Path:
    hub = import_hub()
    if not sys.stderr.isatty():
        import_module("huggingface_hub.utils").disable_progress_bars()
    endpoint = os.environ.get("HF_ENDPOINT")
    try:
        return Path(hub.hf_hub_download(repo, file, repo_type="dataset", revision=revision, endpoint=endpoint))
    except Exception as error:
        raise UserError(explain_hub_error(HubName(repo, revision=revision), error, file)) from None


def import_hub() -> Any:
    try:
        return import_module("huggingface_hub")
    except ImportError:
        raise UserError("data sets of the hub need a package: pip install 'simia[datasets]'") from None


def explain_hub_error(name: HubName, error: Exception, file: str = "") -> str:
    """Say in one line why the hub did not answer, and what to do."""
    errors = import_module("huggingface_hub.errors")
    at = f"{name}: {file}" if file else str(name)
    token = "HF_TOKEN is set" if os.environ.get("HF_TOKEN") else "set HF_TOKEN"
    if isinstance(error, errors.GatedRepoError):
        return f"{at}: access is restricted: ask for it on the data set's page; {token} to a token that may read it"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{at}: the data set has no such revision; give a branch, a tag or a commit"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"{at}: the hub has no such data set, or it is private: check OWNER/NAME; {token} for a private one"
    if isinstance(error, errors.OfflineModeIsEnabled | errors.LocalEntryNotFoundError):
        return f"{at}: not in the cache, and the hub was not reached: check the network and HF_HUB_OFFLINE"
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return f"{at}: the hub did not answer as expected: {type(error).__name__}: {reason}; try again, or give a downloaded folder"
