"""An exported OpenEnv environment: accepted by OpenEnv's validation, and its server played by OpenEnv's client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simia.venvs import make_python_path
from simia.version import __version__
from tests.command import run_simia
from tests.trainers.conftest import ROOT, Trainer

PROBE = Path(__file__).with_name("openenv_folder_probe.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an exported pack, which requires a wheel that lies in it. tests/trainers/test_exported_install.py installs one."""
    out = tmp_path_factory.mktemp("openenv") / "shop"
    wheel = out.with_name(f"simia-{__version__}-py3-none-any.whl")
    wheel.touch()
    done = run_simia("pack", "export", "customer_service", "--to", "openenv", "--out", out, "--requirement", wheel)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    """The address of the folder's server, which is started as its README says."""
    command = [sys.executable, "-m", "server.app", "--port", "0", "--out", str(folder.parent / "out.jsonl")]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    line = process.stderr.readline()
    assert line.startswith("serving at http://127.0.0.1:"), line + process.stderr.read()
    try:
        yield line.split()[2].rstrip(";")
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)


@pytest.fixture(scope="module")
def told(
    environments: Callable[[str], Path], folder: Path, url: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("probe")
    trainer = Trainer(environments("adapters"), work)
    trainer.env["PYTHONPATH"] = os.pathsep.join([make_python_path(trainer.python, print), str(ROOT)])
    trainer.run(PROBE, folder, url, work / "out.json")
    return dict(json.loads((work / "out.json").read_text()))


def test_openenv_accepts_the_folder(told: dict[str, Any]) -> None:
    assert told["static"] == "pass"
    assert told["manifest"]["name"] == "customer_service"
    assert told["manifest"]["capabilities"]["declared_task_count"] == {"test": 24, "train": 54}
    assert told["modes"]["docker"]


def test_openenv_accepts_the_server(told: dict[str, Any]) -> None:
    assert told["running"]["passed"], told["running"]["criteria"]


def test_the_solution_has_reward_1_and_nothing_0(told: dict[str, Any]) -> None:
    assert told["solved"] == [[True, "terminated", 1.0]] * 2
    assert told["idle"] == [[True, "terminated", 0.0]] * 2


def test_the_client_in_the_folder_plays_an_episode(told: dict[str, Any]) -> None:
    code, shown, complaint = told["client"]
    assert code == 0, complaint
    assert shown.splitlines()[-1] == "terminated 0.0"
