"""How a trainer's interpreter gets simia: a link to the package, and the wheels that its environment lacks."""

import json
import os
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest

import simia
from simia.errors import UserError
from simia.venvs import import_path
from simia.venvs.import_path import (
    ensure_missing_packages,
    list_needed,
    make_python_path,
    make_simia_path,
    normalize_name,
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMIA_CACHE", str(tmp_path / "cache"))


def test_what_is_needed_is_what_the_package_says_and_its_needs() -> None:
    own = {normalize_name(line.split(">")[0]) for line in requires("simia") or () if "extra ==" not in line}
    assert own <= list_needed().keys()
    assert {"yarl", "referencing", "pydantic-core"} <= list_needed().keys(), "needs of needs"
    assert not {"simia", "pytest", "vllm", "pyarrow"} & list_needed().keys(), "no extra, nothing for development"
    assert list_needed(["embedded"]).keys() - list_needed().keys() >= {"xllamacpp"}


def test_an_environment_that_lacks_nothing_gets_nothing() -> None:
    folder = ensure_missing_packages(Path(sys.executable))
    assert list(folder.iterdir()) == []
    assert ensure_missing_packages(Path(sys.executable)) == folder


def test_an_extra_that_no_environment_has_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    real = import_path.list_needed
    monkeypatch.setattr(import_path, "list_needed", lambda extras: real())
    assert list(ensure_missing_packages(Path(sys.executable), extras=["embedded"]).iterdir()) == [], (
        "the trainer has it"
    )
    monkeypatch.setattr(import_path, "list_distributions", lambda python: dict.fromkeys(real(), "1"))
    with pytest.raises(
        UserError, match=r"extra embedded, and xllamacpp is not installed: pip install 'simia\[embedded\]'"
    ):
        ensure_missing_packages(Path(sys.executable), extras=["embedded"])


def test_a_path_that_is_no_interpreter_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a Python interpreter that can be run"):
        ensure_missing_packages(tmp_path / "python")


def test_the_link_exposes_simia_alone_and_its_packs_are_found(tmp_path: Path) -> None:
    assert [entry.name for entry in make_simia_path().iterdir()] == ["simia"]
    code = "import json, simia; from simia.search_path import list_names; print(json.dumps([simia.__file__, list_names('seeds')]))"
    env = {**os.environ, "PYTHONPATH": make_python_path(Path(sys.executable))}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    file, packs = json.loads(done.stdout)
    assert Path(file) == make_simia_path() / "simia" / "__init__.py"
    assert Path(file).resolve() == Path(simia.__file__).resolve()
    assert "customer_service" in packs
