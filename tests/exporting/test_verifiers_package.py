"""`simia pack export --to verifiers`: the files of the package. tests/trainers/test_verifiers.py runs it in verifiers."""

from __future__ import annotations

import ast
import email
import json
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from simia.exporting.requirements import BUILD_WHEEL, EVALUATION_ONLY
from simia.pack import Pack
from simia.version import __version__
from tests.command import run_simia
from tests.exporting.test_harbor_tasks import drop_code, make_pack


def test_the_project_holds_the_pack_with_the_chosen_tasks(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "My pack")
    done = run_simia("pack", "export", pack, "--to", "verifiers", "--out", tmp_path / "out", "--split", "test")
    assert done.returncode == 0, done.stderr
    assert "environment simia-my-pack with 1 task;" in done.stdout
    project = tomllib.loads((tmp_path / "out" / "pyproject.toml").read_text())
    assert project["project"]["name"] == "simia-my-pack"
    assert project["project"]["dependencies"][0].startswith("simia[sandbox]==")
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["simia_my_pack"]
    rows = (tmp_path / "out" / "simia_my_pack" / "pack" / "tasks.jsonl").read_text().splitlines()
    assert [json.loads(row)["id"] for row in rows] == ["todo-2"]
    module = ast.parse((tmp_path / "out" / "simia_my_pack" / "__init__.py").read_text())
    names = [node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert names == ["Taskset", "Harness", "Environment", "load_environment"]


@pytest.mark.parametrize(("form", "place"), [("verifiers", "simia_my_pack/pack"), ("openenv", "pack")])
def test_tasks_with_goals_can_be_read_from_the_export(tmp_path: Path, form: str, place: str) -> None:
    goals = [{"query": "What is on my list?", "calls": [{"name": "list_todos"}], "parts": [{"kind": "trace"}]}]
    pack, out = make_pack(tmp_path / "my_pack", lambda head: None, {"id": "goals-1", "goals": goals}), tmp_path / "out"
    assert run_simia("pack", "export", pack, "--to", form, "--out", out).returncode == 0
    copied, known = Pack.load(out / place), Pack.load(pack)
    assert [task.identity for task in copied.tasks] == [task.identity for task in known.tasks]


@pytest.mark.parametrize(("form", "extras"), [("verifiers", "sandbox"), ("openenv", "serve,sandbox")])
def test_a_wheel_is_copied_and_required_from_the_folder(tmp_path: Path, form: str, extras: str) -> None:
    given, out = tmp_path / "dist" / "simia-0.3.0-py3-none-any.whl", tmp_path / "out"
    given.parent.mkdir()
    given.write_bytes(b"wheel")
    done = run_simia(
        "pack", "export", make_pack(tmp_path / "my_pack"), "--to", form, "--out", out, "--requirement", given
    )
    assert done.returncode == 0, done.stderr
    assert f"installs simia from the copied {given.name}" in done.stdout
    assert (out / given.name).read_bytes() == b"wheel"
    moved = out.rename(tmp_path / "moved")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(moved)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith("/METADATA")]
        needs = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    (simia,) = [need for each in needs if (need := Requirement(each)).name == "simia"]
    assert simia.url == (moved / given.name).as_uri(), "the wheel is found where the folder lies when it is installed"
    assert simia.extras == set(extras.split(","))


def test_an_openenv_image_installs_the_copied_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "simia-0.3.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    out = tmp_path / "out"
    done = run_simia(
        "pack", "export", make_pack(tmp_path / "my_pack"), "--to", "openenv", "--out", out, "--requirement", wheel
    )
    assert done.returncode == 0, done.stderr
    lines = (out / "server" / "Dockerfile").read_text().splitlines()
    at = lines.index(f"COPY {wheel.name} /tmp/")
    assert lines[at + 1] == f"RUN pip install --no-cache-dir '/tmp/{wheel.name}[serve,sandbox]'"
    assert f"pip install './{wheel.name}[serve,sandbox]'" in (out / "README.md").read_text()


@pytest.mark.parametrize("form", ["verifiers", "openenv", "harbor"])
def test_without_a_wheel_one_line_says_what_is_needed(tmp_path: Path, form: str) -> None:
    pack = make_pack(tmp_path / "my_pack")
    done = run_simia("pack", "export", pack, "--to", form, "--out", tmp_path / "out", "--task", "todo-1")
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "package index" in line]
    assert line.startswith(f"requires simia=={__version__}, but simia is not on a package index yet")
    assert f"--requirement WHEEL (in a clone of simia, {BUILD_WHEEL} makes one)" in line


def test_a_wheel_of_another_package_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "other-1.0-py3-none-any.whl"
    wheel.write_bytes(b"")
    pack = make_pack(tmp_path / "my_pack")
    for form in ("verifiers", "openenv", "harbor"):
        done = run_simia("pack", "export", pack, "--to", form, "--out", tmp_path / "out", "--requirement", wheel)
        assert done.returncode == 2
        assert f"{wheel.name} is not a wheel of simia: in a clone of simia, {BUILD_WHEEL} makes one" in done.stderr
        assert not (tmp_path / "out").exists()


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
        (["--requirement", "simia-9.whl"], "simia-9.whl is not a file"),
        (["--requirement", "; rm"], "is not a requirement for pip"),
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
