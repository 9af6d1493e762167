"""Wheel and sdist: both hold the same package, and the wheel alone, in an empty environment, runs what the README begins with."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

import simia
from tests.e2e.test_readme import adapt_line, prepare_folder, shown
from tests.fake_endpoint import FakeEndpoint

ROOT = Path(__file__).parent.parent
LARGEST = 10_000_000
"""Bytes of a wheel: what a package of text needs, and a tenth of what indexes take."""
OF_A_MACHINE = re.compile(rb"/(?:root|home|work|workspace|builds|Users)/[\w.-]+")
TESTED_IN_THE_CLONE = ("parquet", "second", "runs resume", "runs recheck", "--name play")
"""Words of lines that need an extra, or that take long and differ from other lines in settings only: tests/e2e/test_readme.py runs them."""


class Distributions(NamedTuple):
    """The wheel built from this folder, the sdist, and the wheel built from the sdist."""

    wheel: Path
    sdist: Path
    from_sdist: Path


def run(*command: str | Path, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "OPENAI_API_KEY", "SIMIA_PATH")} | more
    return subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    base = tmp_path_factory.mktemp("built")
    for target, options in (("direct", ["--wheel"]), ("both", [])):
        words = [sys.executable, "-m", "build", "--no-isolation", *options, "--outdir", base / target]
        done = run(*words, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
    ((wheel,), (sdist,), (again,)) = (base.glob(p) for p in ("direct/*.whl", "both/*.tar.gz", "both/*.whl"))
    return Distributions(wheel, sdist, again)


@pytest.fixture(scope="module")
def installed(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("wheel")
    venv.create(base / "venv", with_pip=True)
    python = base / "venv" / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", built.wheel)
    assert done.returncode == 0, done.stderr
    return base / "venv" / "bin" / "simia"


def read_wheel(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_sdist_builds_the_same_wheel(built: Distributions) -> None:
    wheel, again = read_wheel(built.wheel), read_wheel(built.from_sdist)
    assert wheel.keys() == again.keys()
    assert [name for name in wheel if wheel[name] != again[name]] == []
    assert built.wheel.name == built.from_sdist.name == f"simia-{simia.__version__}-py3-none-any.whl"


def test_the_wheel_holds_the_package_and_its_data_and_nothing_of_this_machine(built: Distributions) -> None:
    size = built.wheel.stat().st_size
    print(f"wheel: {size:,} bytes, sdist: {built.sdist.stat().st_size:,} bytes")
    assert size < LARGEST
    files = read_wheel(built.wheel)
    info = f"simia-{simia.__version__}.dist-info"
    assert {name.partition("/")[0] for name in files} == {"simia", info}
    for folder in ("prompts", "configs", "seeds"):
        ours = {f"simia/_data/{p.relative_to(ROOT)}" for p in (ROOT / folder).rglob("*") if p.is_file()}
        assert {name for name in ours if "__pycache__" not in name} == {
            name for name in files if name.startswith(f"simia/_data/{folder}/")
        }
    found = {name: path for name, data in files.items() if (path := OF_A_MACHINE.search(data))}
    assert found == {}
    assert [name for name, data in files.items() if str(ROOT).encode() in data] == []
    assert OF_A_MACHINE.search(b"see /home/me/x")
    metadata = email.message_from_bytes(files[f"{info}/METADATA"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata["Version"] == simia.__version__
    assert set(metadata.get_all("Provides-Extra") or []) == project["optional-dependencies"].keys()
    assert f"{info}/licenses/LICENSE" in files
    assert f"{info}/entry_points.txt" in files


def test_the_sdist_holds_what_make_test_reads(built: Distributions) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tops = {name.partition("/")[0] for name in names}
    assert {"simia", "tests", "docs", "eval", "scripts", "examples", "prompts", "configs", "seeds", ".ci"} <= tops
    files = {path.name for path in ROOT.iterdir() if path.is_file() and path.name not in (".git", ".gitignore")}
    assert files <= tops
    for folder in ("docs", "scripts", "examples"):
        ours = {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert {name for name in ours if "__pycache__" not in name} <= names


@pytest.mark.parametrize("name", ["two-cpu-nodes", "8xh100"])
def test_the_machines_of_a_ray_cluster_install_the_copied_wheel(
    built: Distributions, tmp_path: Path, name: str
) -> None:
    """What `ray up` does on a machine, without an index and without the dependencies."""
    cluster = yaml.safe_load((ROOT / "configs" / "ray" / f"{name}.yaml").read_text(encoding="utf-8"))
    wheels = {target: source for target, source in cluster["file_mounts"].items() if source.endswith(".whl")}
    ((target, source),) = wheels.items()
    assert source == f"dist/{built.wheel.name}", "what docs/scale.md builds"
    copy = tmp_path / target.removeprefix("~/")
    shutil.copy(built.wheel, copy)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in cluster["setup_commands"]:
        done = run("bash", "-c", command, HOME=str(tmp_path), PATH=path, PIP_NO_INDEX="1", PIP_NO_DEPS="1")
        assert done.returncode == 0, done.stdout + done.stderr
    (found,) = (tmp_path / "simia").glob("lib/*/site-packages/simia-*.dist-info/direct_url.json")
    assert json.loads(found.read_text())["url"] == copy.as_uri()


def test_the_readmes_first_commands_run_from_the_wheel_alone(installed: Path, tmp_path: Path) -> None:
    prepare_folder(tmp_path)
    lines = [line for line in shown() if not any(word in line for word in TESTED_IN_THE_CLONE)]
    assert len(lines) >= 9
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    try:
        for line in lines:
            if (words := adapt_line(line, endpoint, share=100)) is not None:
                done = run(installed, *words, cwd=tmp_path, OPENAI_API_KEY="not-a-key")
                assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    finally:
        endpoint.stop()
    assert (tmp_path / "data/first/train.yaml").is_file()
    assert (tmp_path / "runs/first/report.html").is_file()
    done = run(installed, "export", "gold", "--to", "parquet", "--out", "data/gold", cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'simia[datasets]'" in done.stderr


def test_the_report_for_a_bug_names_the_installed_packages(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "doctor", "--report", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = dict(line.partition(": ")[::2] for line in done.stdout.splitlines())
    assert f"simia {simia.__version__}" in facts
    assert "pydantic " in facts["packages"]
    assert "missing" not in facts["packages"]
    assert {"openai", "ray", "vllm"} <= set(facts["extras not installed"].split(", "))
    assert str(installed.parent) not in done.stdout


def test_dry_run_from_an_unrelated_directory(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "amplify", "--dry-run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Tool: {" in done.stdout
    assert "price: about $0.00" in done.stderr
    assert list(tmp_path.iterdir()) == [], "a dry run leaves nothing behind"


def test_a_users_file_of_the_same_name_overrides_ours(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts" / "amplify").mkdir(parents=True)
    (tmp_path / "prompts" / "amplify" / "small_system.j2").write_text("A SYSTEM TEXT OF MY OWN")
    done = run(installed, "amplify", "--dry-run", cwd=tmp_path)
    assert "A SYSTEM TEXT OF MY OWN" not in done.stdout
    assert "not used" in done.stderr
    done = run(installed, "amplify", "--dry-run", cwd=tmp_path, SIMIA_PATH=".")
    assert "A SYSTEM TEXT OF MY OWN" in done.stdout
    assert "simia: prompts/amplify/small_system.j2 is taken from . (SIMIA_PATH)" in done.stderr.splitlines()


def test_a_users_mistake_is_one_line(installed: Path, tmp_path: Path) -> None:
    done = run(installed, "amplify", "--seeds", "nosuch", "--dry-run", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("simia: no pack named 'nosuch'")
    assert len(done.stderr.splitlines()) == 1


USE = """\
from __future__ import annotations

import asyncio

import simia
from simia import Episode, Trajectory


async def amplify() -> list[Trajectory]:
    made = await simia.amplify("my_seeds.jsonl", llm={"kind": "openai", "model": "gpt-5-mini"}, n=1000)
    return list(made.trajectories())


async def play() -> float | None:
    async with await simia.open_environment("customer_service") as environment:
        episode: Episode = await environment.reset("cs-001")
        step = await episode.step(simia.Message(role="assistant", content="Hello"))
        return step.reward.value if step.reward else None


print(asyncio.run(play()), len(asyncio.run(amplify())))
"""


def test_mypy_reads_the_types_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    """A project that installed the wheel is checked strictly, and a wrong use is found."""
    mypy = (sys.executable, "-m", "mypy", "--strict", "--python-executable", installed.with_name("python"))
    (tmp_path / "use.py").write_text(USE)
    done = run(*mypy, "use.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = USE.replace("n=1000", "n='many'").replace("simia.Message(role", "simia.Massage(role")
    (tmp_path / "wrong.py").write_text(wrong)
    done = run(*mypy, "wrong.py", cwd=tmp_path)
    assert 'incompatible type "str"; expected "int | None"' in done.stdout
    assert 'Module has no attribute "Massage"' in done.stdout
