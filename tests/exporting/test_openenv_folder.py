"""`simia pack export --to openenv`: the files of the folder. tests/trainers/test_openenv_folder.py runs it."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import yaml

from simia.exporting.requirements import EVALUATION_ONLY
from tests.command import run_simia
from tests.exporting.test_harbor_tasks import make_pack


def test_the_folder_has_a_manifest_a_server_an_image_and_a_client(tmp_path: Path) -> None:
    out = tmp_path / "out"
    task = {"id": 'odd "id" \\ {x}', "instruction": "?", "reference": [{"name": "list_todos"}]}
    done = run_simia("pack", "export", make_pack(tmp_path / "My pack", lambda head: None, task), "--to", "openenv",
                     "--out", out, "--base", "debian:12", "--task", task["id"])  # fmt: skip
    assert done.returncode == 0, done.stderr
    manifest = yaml.safe_load((out / "openenv.yaml").read_text())
    assert (manifest["name"], manifest["app"], manifest["port"]) == ("my_pack", "server.app:app", 8000)
    assert "evaluation_only" not in manifest
    for name in ("client.py", "server/app.py", "__init__.py", "server/__init__.py"):
        ast.parse((out / name).read_text())
    assert repr(task["id"]) in ast.unparse(ast.parse((out / "client.py").read_text()))
    image = (out / "server" / "Dockerfile").read_text()
    assert image.startswith("FROM debian:12\n")
    assert "--no-token" not in image, "a server that others can reach needs a token"


def test_an_evaluation_pack_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack = make_pack(tmp_path / "my_pack", lambda head: head.update(evaluation=True))
    assert run_simia("pack", "export", pack, "--to", "openenv", "--out", out).returncode == 0
    manifest = yaml.safe_load((out / "openenv.yaml").read_text())
    assert manifest["evaluation_only"] is True
    assert "evaluation-only" in manifest["validation"]["types"]["tags"]
    for name in ("README.md", "pyproject.toml", "server/app.py", "__init__.py", "openenv.yaml"):
        assert EVALUATION_ONLY in " ".join((out / name).read_text().split()), name
    assert yaml.safe_load((out / "pack" / "pack.yaml").read_text())["evaluation"] is True


def test_the_wheel_holds_the_server_and_the_pack(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run_simia("pack", "export", make_pack(tmp_path / "my_pack"), "--to", "openenv", "--out", out).returncode == 0
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(out)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"simia_my_pack_env/{name}" for name in ("server/app.py", "pack/pack.yaml", "client.py")} <= set(names)
    entry = tomllib.loads((out / "pyproject.toml").read_text())["project"]["scripts"]["server"]
    assert entry == "simia_my_pack_env.server.app:main"
