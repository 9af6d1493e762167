"""A run whose seed files have changed since: results follow from the seeds that its replies were asked for."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from simia.amplification.recheck import rebuild_run, recheck_run
from simia.amplification.session import start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Run
from simia.search_path import find_resource
from tests.amplification.stub_model import use_model


@pytest.fixture
def seed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The seeds of a run `r`, which is complete."""
    use_model(monkeypatch)
    pack = tmp_path / "mypack"
    shutil.copytree(find_resource("seeds", "customer_service"), pack)
    settings = [f"seeds.packs=[{pack}]", "llm.model=gpt-5-mini"]
    config = load_config(AmplifyConfig, "amplify/default", settings, n=6)
    done = asyncio.run(start_amplification(config, runs=tmp_path, name="r", say=lambda _: None))
    assert done.stop.kind == "complete"
    return pack / "seeds.jsonl"


def remove_rows(path: Path, count: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[count:]))


def read_results(runs: Path) -> list[Any]:
    run = Run.read_only(runs, "r")
    found = [(item.id, item.spec, item.status, run.ledger.result(item.id)) for item in run.ledger.items()]
    run.close()
    return found


@pytest.mark.parametrize("is_gone", [False, True])
def test_recheck_takes_the_seeds_of_the_ledger(seed_file: Path, tmp_path: Path, is_gone: bool) -> None:
    before = read_results(tmp_path)
    if is_gone:
        shutil.rmtree(seed_file.parent)
    else:
        remove_rows(seed_file, 1)
    assert recheck_run(tmp_path, "r", print)[1]["accepted"] == (6, 6)
    assert read_results(tmp_path) == before


def test_rebuild_takes_the_seeds_of_the_ledger(seed_file: Path, tmp_path: Path) -> None:
    before = read_results(tmp_path)
    remove_rows(seed_file, 1)
    rebuild_run(tmp_path, "r")
    assert read_results(tmp_path) == before


def test_rebuild_without_a_ledger_refuses_other_seeds(seed_file: Path, tmp_path: Path) -> None:
    before, rows = read_results(tmp_path), seed_file.read_text()
    (tmp_path / "r" / "ledger.db").unlink()
    remove_rows(seed_file, 3)
    with pytest.raises(UserError, match=r"run r was made with other seeds than .*mypack has now: restore these files"):
        rebuild_run(tmp_path, "r")
    seed_file.write_text(rows)
    rebuild_run(tmp_path, "r")
    assert read_results(tmp_path) == before
