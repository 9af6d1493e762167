"""A run is continued in another folder: its relative paths are those of the folder in which it was started."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import orjson
import pytest
import yaml

from simia import formats
from simia.envs.opening import load_tasks
from simia.errors import UserError
from simia.jobs import FAILED, Run
from simia.jobs.run import START_FOLDER
from simia.jobs.run_session import reopen_run
from simia.llm.question_files import find_batch_folders
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.pack import Pack
from simia.rollouts.settings import RolloutConfig
from simia.search_path import locate, searching_from
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.packs.small import small


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a new run, whose pack has a relative path. The working directory is another one."""
    folder = tmp_path / "started"
    small(folder / "packs" / "todos")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(folder)
    Run.create(Path("runs"), RolloutConfig(pack="packs/todos"), name="r", facts={}).close()
    monkeypatch.chdir(tmp_path / "other")
    return folder


def load_root(started: Path) -> Path | None:
    """Load the pack of the run as a resume does, and return its folder."""
    with reopen_run(RolloutConfig, started / "runs", "r", say=lambda _: None) as (_, config):
        pack, _ = load_tasks(config)
    return pack.root


def test_a_pack_is_found_in_the_folder_where_the_run_was_started(started: Path, tmp_path: Path) -> None:
    small(tmp_path / "other" / "packs" / "todos")
    assert load_root(started) == started / "packs" / "todos"
    with closing(Run.read_only(started / "runs", "r")) as run:
        assert run.saved_config()["pack"] == run.ledger.meta("identity")["pack"] == "packs/todos"


def test_a_pack_that_was_moved_is_one_line_and_is_found_where_it_is(
    started: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "moved").mkdir()
    (started / "packs").rename(tmp_path / "moved" / "packs")
    with pytest.raises(UserError) as caught:
        load_root(started)
    assert str(caught.value) == (
        f"packs/todos is neither in {started}, where the run was started, nor in this folder: put it back, or resume the run in the"
        " folder that it was moved to"
    )
    monkeypatch.chdir(tmp_path / "moved")
    assert load_root(started) == Path("packs/todos")


def test_a_run_of_an_earlier_version_is_continued_where_it_was_started(
    started: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Run.open(started / "runs", "r")) as run:
        run.ledger.set_meta(START_FOLDER, None, twice=True)
    with pytest.raises(UserError, match="no such file or folder: 'packs/todos'"):
        load_root(started)
    monkeypatch.chdir(started)
    assert load_root(started) == Path("packs/todos")


def test_other_inputs_are_found_in_the_start_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, start = tmp_path / "here", tmp_path / "start"
    here.mkdir()
    (start / "batch").mkdir(parents=True)
    (start / "recorded.jsonl").write_text('{"request": {"messages": []}, "reply": {"text": "yes"}}\n')
    monkeypatch.chdir(here)
    with searching_from(start):
        assert ReplayBackend(ReplaySettings(path=Path("recorded.jsonl"))).path == start / "recorded.jsonl"
        assert find_batch_folders({"llm": {"kind": "batch", "folder": "batch"}}) == [start / "batch"]
        assert locate("new") == Path("new"), "what the start folder lacks is in the working directory"
        assert locate(start / "batch") == start / "batch"
    assert locate("batch") == Path("batch")
    monkeypatch.chdir(start)
    with searching_from(start):
        assert locate("batch") == Path("batch"), "paths stay as they were given"


def test_the_command_resumes_a_run_in_any_folder(tmp_path: Path) -> None:
    folder, other = tmp_path / "started", tmp_path / "other"
    small(folder / "packs" / "todos")
    other.mkdir()
    played = run_simia("rollout", "packs/todos", "--agent", "reference", "--name", "r", cwd=folder)
    assert played.returncode == 0, played.stderr
    with closing(Run.open(folder / "runs", "r")) as run:
        first = next(iter(run.ledger.items()))
        first.status = FAILED
        run.ledger.set_status(first)
        run.ledger.flush()
    config = (folder / "runs" / "r" / "config.yaml").read_text()
    for words in (["resume"], ["recheck"]):
        done = run_simia("runs", *words, "r", "--runs", folder / "runs", cwd=other)
        assert done.returncode == 0, done.stderr
    assert (folder / "runs" / "r" / "config.yaml").read_text() == config, "exports contain its digest"
    assert yaml.safe_load(config)["pack"] == "packs/todos"


@pytest.mark.parametrize("seeds_are_stored", [True, False])
def test_a_run_is_rebuilt_in_any_folder(tmp_path: Path, *, seeds_are_stored: bool) -> None:
    folder, other = tmp_path / "started", tmp_path / "other"
    for place, first in ((folder, 0), (other, 3)):  # the other folder has seeds of the same name
        place.mkdir()
        rows = formats.write(Pack.load("customer_service").seeds[first : first + 3], "openai")
        (place / "mine.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        settings = ["--set", f"llm.base_url={endpoint.url}", "--set", "llm.model=fake"]
        words = ["amplify", "--seeds", "mine.jsonl", "--n", "3", "--name", "r", *settings]
        done = run_simia(*words, cwd=folder)
        assert done.returncode == 0, done.stderr
    finally:
        endpoint.stop()
    with closing(Run.open(folder / "runs", "r")) as run:
        accepted = run.ledger.accepted_count()
        if not seeds_are_stored:
            run.ledger.set_meta("seeds", None, twice=True)
    (folder / "runs" / "r" / "ledger.db").unlink()
    done = run_simia("runs", "rebuild", "r", "--runs", folder / "runs", cwd=other)
    assert done.returncode == 0, done.stderr
    with closing(Run.open(folder / "runs", "r")) as run:
        assert run.ledger.accepted_count() == accepted == 3
