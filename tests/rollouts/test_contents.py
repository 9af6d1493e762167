"""What of a pack counts in a resume, a recheck and a comparison."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from simia.errors import UserError
from simia.jobs import Run
from simia.pack import Pack
from simia.rollouts.contents import hash_shown, hash_worlds, list_world_files
from simia.rollouts.session import resume_rollout, start_rollout
from simia.rollouts.settings import RolloutConfig
from tests.command import invoke
from tests.evaluation.test_evaluation import refuse
from tests.packs.small import small


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def play(folder: Path, name: str, **settings: object) -> None:
    config = RolloutConfig.model_validate(
        {"pack": str(folder / "todos"), "agent": "nothing", "reward": "rules", **settings}
    )
    asyncio.run(start_rollout(config, runs=folder / "runs", name=name, say=lambda _: None))


def test_files_of_the_world_and_no_others_are_hashed(tmp_path: Path) -> None:
    root = tmp_path / "todos"
    small(root)
    before = hash_worlds(Pack.load(root))
    (root / "runs").mkdir()
    (root / "runs" / "log.txt").write_text("a run in the pack's folder")
    (root / "tools.py~").write_text("of an editor")
    assert hash_worlds(Pack.load(root)) == before
    assert Path("tools.py") in list_world_files(Pack.load(root))
    head = root / "pack.yaml"
    (root / "checks.py").write_text("def is_done(final, initial): ...")
    head.write_text(head.read_text() + "\nchecks: checks.py\n")
    assert hash_worlds(Pack.load(root)) == before, "a resume may go on with mended checks"
    (root / "prices.py").write_text("PRICE = 3")
    assert hash_worlds(Pack.load(root)) != before


def test_a_resume_with_other_code_is_refused(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    play(tmp_path, "r")
    replace(
        tmp_path / "todos" / "tools.py",
        "def list_todos",
        "def listed(self) -> None: ...\n\n    @read\n    def list_todos",
    )
    with pytest.raises(UserError, match=r"other policies, tools, tasks, code or data of its packs"):
        asyncio.run(resume_rollout("r", runs=tmp_path / "runs", say=lambda _: None))


def test_a_run_of_an_earlier_version_is_resumed(tmp_path: Path) -> None:
    small(tmp_path / "todos")
    play(tmp_path, "r")
    run = Run.open(tmp_path / "runs", "r")
    facts = run.ledger.meta("facts")
    run.ledger.set_meta(
        "facts", {key: value for key, value in facts.items() if key not in ("world", "shown")}, twice=True
    )
    run.close()
    assert asyncio.run(resume_rollout("r", runs=tmp_path / "runs", say=lambda _: None)).complete


def test_a_comparison_names_other_worlds_and_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    play(tmp_path, "old")
    (tmp_path / "todos" / "prices.py").write_text("PRICE = 3")
    play(tmp_path, "new", reward="auto")
    conditions = json.loads(invoke("eval", "compare", "old", "new", "--json"))["other_conditions"]
    assert "the packs' worlds: their code or data have changed between the runs" in conditions
    assert "reward: rules and auto" in conditions


def test_a_recheck_does_not_hide_that_the_agent_saw_another_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small(tmp_path / "todos")
    play(tmp_path, "old")
    shown = hash_shown(Pack.load(tmp_path / "todos"), Pack.load(tmp_path / "todos").tasks)
    head = Pack.load(tmp_path / "todos").file
    assert head is not None
    assert head.policy is not None
    (tmp_path / "todos" / head.policy).write_text("Another policy.", encoding="utf-8")
    assert hash_shown(Pack.load(tmp_path / "todos"), Pack.load(tmp_path / "todos").tasks) != shown
    play(tmp_path, "new")
    assert "simia runs recheck" in refuse("eval", "compare", "old", "new")
    assert "played with other policies, tools or tasks" in invoke("runs", "recheck", "old")
    assert "have different tasks" in refuse("eval", "compare", "old", "new")
