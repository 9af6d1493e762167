"""The wheel carries prompts, configs and seeds: installed into an empty environment it works from anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run(*command: str | Path, cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "OPENAI_API_KEY", "SIMIA_PATH")} | more
    return subprocess.run([str(c) for c in command], cwd=cwd, env=env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def installed(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", base, cwd=ROOT)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = base.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [n for n in names if n.startswith("tests/")]
    assert {f"simia/_data/{pack.relative_to(ROOT)}" for pack in (ROOT / "seeds").rglob("pack.yaml")} <= set(names)
    venv.create(base / "venv", with_pip=True)
    python = base / "venv" / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    assert done.returncode == 0, done.stderr
    return base / "venv" / "bin" / "simia"


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
