"""Packs of one name that `simia serve` serves together."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia import UserError
from simia.cli.serve import read_share
from simia.envs.several_packs import PackTasks, mix_tasks
from simia.pack import Pack


def test_served_packs_may_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b").mkdir()
    assert read_share("shop=packs/a") == {"pack": "packs/a", "name": "shop"}
    assert [read_share(word) for word in ("shop", "a=b", "=a", "gyms/*")] == ["shop", "a=b", "=a", "gyms/*"]


def test_two_packs_of_one_name_are_told_what_serve_takes() -> None:
    pack = Pack(name="a")
    with pytest.raises(UserError, match=r"two packs are named 'a': give one another name, as NAME=PACK to simia serve"):
        mix_tasks([PackTasks(pack, [], None), PackTasks(pack, [], None)])
