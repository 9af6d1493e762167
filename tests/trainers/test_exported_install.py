"""Exported packs installed as docs/pack-export.md says: into an empty environment, with a wheel of simia, which no package index has."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simia.exporting.requirements import BUILD_WHEEL
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.trainers.conftest import ROOT

pytestmark = pytest.mark.all  # minutes: verifiers has a hundred dependencies


def run(*command: str | Path, cwd: Path) -> str:
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([str(each) for each in command], cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the command of the documentation builds, outside the clone."""
    out = tmp_path_factory.mktemp("dist")
    words = BUILD_WHEEL.replace(" dist ", f" {out} ").split()
    run(sys.executable, "-m", *words, cwd=ROOT)
    (found,) = out.glob("simia-*.whl")
    return found


@pytest.fixture(scope="module")
def empty() -> Iterator[Path]:
    """The programs of an environment that holds pip alone, in a folder that the sandbox's user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        venv.create(folder, with_pip=True)
        yield Path(folder) / "bin"


@pytest.fixture
def endpoint() -> Iterator[FakeEndpoint]:
    served = FakeEndpoint("--respond", "tests.trainers.reference_model:respond")
    yield served
    served.stop()


def find_source(python: Path) -> str:
    """Where pip has simia from."""
    code = "from importlib.metadata import distribution as d; print(d('simia').read_text('direct_url.json'))"
    return str(json.loads(run(python, "-c", code, cwd=python.parent))["url"])


def test_a_verifiers_environment_is_installed_and_played(
    wheel: Path, empty: Path, endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    out = tmp_path / "shop"
    done = run_simia("pack", "export", "customer_service", "--to", "verifiers", "--out", out, "--requirement", wheel)
    assert done.returncode == 0, done.stderr
    run(empty / "python", "-m", "pip", "install", "--quiet", "./shop", cwd=tmp_path)
    assert find_source(empty / "python") == (out / wheel.name).as_uri()
    words = ["simia-customer-service", "-m", "reference", "--client.base-url", endpoint.url, "-n", "1", "--no-push"]
    assert '"score": 1.0' in run(empty / "vf-eval", *words, "--no-rich", "-o", tmp_path / "told", cwd=tmp_path)


def test_an_openenv_server_is_installed_and_answers(wheel: Path, empty: Path, tmp_path: Path) -> None:
    out = tmp_path / "shop"
    done = run_simia("pack", "export", "customer_service", "--to", "openenv", "--out", out, "--requirement", wheel)
    assert done.returncode == 0, done.stderr
    shown = re.search(r"pip install '(\./simia.*)'", (out / "README.md").read_text())
    assert shown
    run(empty / "python", "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", shown[1], cwd=out)
    run(empty / "python", "-m", "pip", "install", "--quiet", shown[1], cwd=out)
    assert find_source(empty / "python") == (out / wheel.name).as_uri()
    command = [empty / "python", "-m", "server.app", "--port", "0", "--out", tmp_path / "out.jsonl"]
    process = subprocess.Popen(command, cwd=out, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("serving at http://127.0.0.1:"), line + process.stderr.read()
        told = run(empty / "python", "-c", CHECK, line.split()[2].rstrip(";"), cwd=out)
        assert told.split() == ["200"]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)


CHECK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1] + '/health').status)"
