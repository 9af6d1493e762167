"""`simia pack export --to verifiers`: the files of the package. tests/trainers/test_verifiers.py runs it in verifiers."""

from __future__ import annotations

import ast
import json
import tomllib
from pathlib import Path

import pytest
import yaml

from simia.exporting.requirements import EVALUATION_ONLY
from tests.command import run_simia
from tests.exporting.test_harbor_tasks import drop_code, make_pack


def test_the_project_holds_the_pack_with_the_chosen_tasks(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "My pack")
    done = run_simia("pack", "export", pack, "--to", "verifiers", "--out", tmp_path / "out", "--split", "test")
    assert done.returncode == 0, done.stderr
    assert "environment simia-my-pack with 1 tasks" in done.stdout
    project = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "simia-my-pack"
    assert project["project"]["dependencies"][0].startswith("simia[sandbox]==")
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["simia_my_pack"]
    rows = (tmp_path / "out" / "simia_my_pack" / "pack" / "tasks.jsonl").read_text().splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["todo-2"]
    module = ast.parse((tmp_path / "out" / "simia_my_pack" / "__init__.py").read_text())
    names = [node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert names == ["Taskset", "Harness", "Environment", "load_environment"]


def test_an_evaluation_pack_says_so(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "my_pack", lambda head: head.update(evaluation=True))
    done = run_simia("pack", "export", pack, "--to", "verifiers", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    project = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())["project"]
    assert "evaluation-only" in project["keywords"]
    assert EVALUATION_ONLY in project["description"]
    assert EVALUATION_ONLY in (tmp_path / "out" / "README.md").read_text()
    assert "EVALUATION_ONLY = True" in (tmp_path / "out" / "simia_my_pack" / "__init__.py").read_text()
    assert yaml.safe_load((tmp_path / "out" / "simia_my_pack" / "pack" / "pack.yaml").read_text())["evaluation"] is True


def test_a_pack_without_code_is_exported_too(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "my_pack", drop_code)
    done = run_simia("pack", "export", pack, "--to", "verifiers", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--requirement", "simia.whl"], "a wheel is for --to harbor"),
        (["--requirement", "; rm"], "is no requirement for pip"),
        (["--trust-container"], "--trust-container is for --to harbor"),
        (["--base", "debian:12"], "--base is for --to harbor and --to openenv"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, more: list[str], message: str) -> None:
    pack = make_pack(tmp_path / "my_pack")
    done = run_simia("pack", "export", pack, "--to", "verifiers", "--out", tmp_path / "out", *more)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (tmp_path / "out").exists()
