"""Settings on their way to a trainer: what YAML makes of them, and what the trainer reads."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from simia.cli.train import changed
from simia.config import scalar
from simia.export import CardFacts, export
from simia.pack import Pack
from simia.trainers import llamafactory
from simia.trainers.launch import as_setting


@pytest.mark.parametrize("text", ["2026-11-21", "2026-11-21 10:00:00", "'64'", "no", "1e-6", "[1, 2026-11-21]", "null"])
def test_a_setting_is_read_back(text: str) -> None:
    once = scalar(as_setting(scalar(text)))
    assert once == (scalar(text) if "2026" not in text else ([1, "2026-11-21"] if "[" in text else text))
    assert scalar(as_setting(once)) == once


def test_a_date_reaches_llamafactory_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(llamafactory, "interpreter", lambda trainer, python: Path("/there/python"))
    monkeypatch.setattr(llamafactory, "check_extras", lambda whole, python: ([], {}))
    export(Pack.load("office").seeds[:2], tmp_path / "out", to="llamafactory", template="qwen", facts=CardFacts())
    changes = changed(["run_name=2026-11-21", "max_steps=5"])
    assert llamafactory.launch(tmp_path / "out", changes).command[-2:] == ['run_name="2026-11-21"', "max_steps=5"]
    (tmp_path / "mine.jsonl").touch()
    joint = llamafactory.launch(Path("simia-joint"), {**changes, "model": "qwen3-8b", "data": "mine.jsonl"})
    assert 'run_name="2026-11-21"' in shlex.split(joint.command[2])
    assert not (tmp_path / "data").exists()
