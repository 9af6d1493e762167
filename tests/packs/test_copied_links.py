"""Links of a pack that lead out of it: no command that copies or reads the pack follows them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from simia.envs.worlds.simulated.tool_sources import ToolSources
from simia.evaluation.chained_tasks import make_chained_pack
from simia.importers.trajectories import import_trajectories
from simia.pack import ExecutableSpec, Pack

SECRET = "PASSWORD = 'hunter2'\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "secret.py").write_text(SECRET)
    return tmp_path / "home"


@pytest.fixture
def linked(tmp_path: Path, outside: Path) -> Path:
    """A pack with links to a file and a folder of the host, one of them under a name that a copy writes."""
    folder = tmp_path / "pack"
    shutil.copytree(Path(str(Pack.load("customer_service").root)), folder)
    (folder / "tasks.jsonl").rename(folder / "mine.jsonl")
    (folder / "tasks.jsonl").symlink_to(outside / "secret.py")
    (folder / "home").symlink_to(outside)
    head = (folder / "pack.yaml").read_text()
    (folder / "pack.yaml").write_text(head.replace("tasks: tasks.jsonl", "tasks: mine.jsonl"))
    return folder


def check_copy(copy: Path, outside: Path) -> None:
    files = [path for path in copy.rglob("*") if path.is_file() and not path.is_symlink()]
    assert not [path for path in files if "hunter2" in path.read_text(errors="replace")]
    assert (outside / "secret.py").read_text() == SECRET
    assert list(outside.iterdir()) == [outside / "secret.py"]


@pytest.mark.attack("have files of the host copied into a pack by a link", where="outside")
def test_a_copy_with_chained_tasks_does_not_follow_links(tmp_path: Path, linked: Path, outside: Path) -> None:
    made = make_chained_pack(Pack.load(linked), tmp_path / "runs", calls=12)
    check_copy(made, outside)
    assert len(Pack.load(made).tasks) > 1


@pytest.mark.attack("have files of the host copied into a pack, or written, by a link", where="outside")
def test_a_copy_with_tasks_from_seeds_does_not_follow_links(tmp_path: Path, linked: Path, outside: Path) -> None:
    import_trajectories(str(linked), tmp_path / "made")
    check_copy(tmp_path / "made", outside)
    assert len(Pack.load(tmp_path / "made").tasks) == 38


@pytest.mark.attack("have files of the host put into prompts by a link", where="outside")
def test_the_source_of_a_tool_does_not_come_from_outside(tmp_path: Path, outside: Path) -> None:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "helpers.py").symlink_to(outside / "secret.py")
    (folder / "tools.py").write_text(
        "from helpers import PASSWORD\nLENGTH = 5\nclass Shop:\n    def get(self):\n        return PASSWORD[:LENGTH]\n"
    )
    pack = Pack(name="shop", root=folder, executable=ExecutableSpec(object="Shop"))
    found = ToolSources(pack, 10_000).find_source("get")
    assert "LENGTH = 5" in found
    assert "hunter2" not in found
