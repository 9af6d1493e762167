"""A hostile checkout of a benchmark: links that lead out of it are not followed, and code that cannot be parsed is one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from simia.errors import UserError
from simia.importers import acebench, codegym, officebench, taubench
from simia.importers.benchmark_files import parse_benchmark_module
from tests.importers import small_acebench, small_taubench
from tests.importers.officebench import small

IMPORTS: dict[str, tuple[Callable[[Path], Path], str, Callable[[Path, Path], object]]] = {
    "officebench": (small.folder, "1-1/testbed", officebench.import_tasks),
    "officebench task": (small.folder, "9-1", officebench.import_tasks),
    "taubench": (small_taubench.write_folder, "tau_bench/envs/retail/data/more", lambda f, out: taubench.import_domain(f, "retail", out)),
    "acebench": (small_acebench.write_folder, "LICENSE.md", lambda f, out: acebench.import_part(f, "multi_turn_phone", out)),
}  # fmt: skip


@pytest.mark.attack("have files of the host copied into a pack by a link in a benchmark's checkout", where="outside")
@pytest.mark.parametrize("name", IMPORTS)
def test_a_link_out_of_a_checkout_is_refused(tmp_path: Path, name: str) -> None:
    write, place, run = IMPORTS[name]
    (tmp_path / "home" / "subtasks").mkdir(parents=True)
    (tmp_path / "home" / "key").write_text("hunter2")
    folder = write(tmp_path / "checkout")
    run(folder, tmp_path / "sound")
    link = folder / place
    is_file = link.is_file()
    shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "home" / ("key" if is_file else ""))
    with pytest.raises(UserError, match="is a link to a place outside of"):
        run(folder, tmp_path / "made")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "read", [lambda path: parse_benchmark_module(path, "a checkout"), codegym.read_environment_class]
)
@pytest.mark.parametrize("code", ["-" * 200_000 + "1", "1" + "+1" * 200_000], ids=["signs", "sum"])
def test_code_that_nests_too_deep_is_one_line(tmp_path: Path, read: Callable[[Path], object], code: str) -> None:
    (tmp_path / "deep.py").write_text(code)
    with pytest.raises(UserError, match=r"deep.py.*Python: \S") as caught:
        read(tmp_path / "deep.py")
    assert "\n" not in str(caught.value)
