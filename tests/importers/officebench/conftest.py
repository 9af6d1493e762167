"""Packs of the small folder of ours and of the benchmark, imported once."""

from pathlib import Path

import pytest

from simia.importers import officebench
from tests.importers.officebench import play, small


def plain(tasks: Path, out: Path, solutions: Path | None = None) -> Path:
    """A pack that does not ask for LibreOffice, so that PDFs are the same on every machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(officebench, "list_libreoffice_settings", list)
        return officebench.import_tasks(tasks, out, solutions)


@pytest.fixture(scope="session")
def small_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("officebench")
    return plain(small.folder(root / "tasks"), root / "pack")


@pytest.fixture(scope="session")
def whole_pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("benchmark")
    return plain(play.BENCHMARK, root / "pack", play.SOLUTIONS)
