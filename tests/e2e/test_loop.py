"""eval/loop on a tiny model: every stage runs and leaves what the next one reads; what is taught is what is played."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simia.pack import Pack
from simia.search_path import cache_root
from simia.venvs import make_python_path

ROOT = Path(__file__).parents[2]
LOOP = ROOT / "eval" / "loop"
pytestmark = pytest.mark.all


def run(*command: Any, **env: str) -> str:
    drop = ("SIMIA_PATH", "SIMIA_RUNS", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if k not in drop} | {"OMP_NUM_THREADS": "1"} | env
    done = subprocess.run([str(c) for c in command], cwd=ROOT, env=kept, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def python(environments: Callable[[str], Path]) -> Path:
    return environments("trl")


@pytest.fixture(scope="module")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny-qwen"
    run(python, ROOT / "tests" / "trainers" / "tiny_model.py", out, LOOP / "pack" / "seeds.jsonl")
    return out


@pytest.fixture(scope="module")
def looped(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    work = tmp_path_factory.mktemp("loop") / "work"
    return work, run(
        sys.executable, LOOP / "run.py", "--size", "tiny", "--work", work, "--model", model, "--worlds", "executable"
    )


def test_seeds_become_data_and_data_become_figures(looped: tuple[Path, str]) -> None:
    work, said = looped
    rows = {name: (work / "data" / name / "data.jsonl").read_text().splitlines() for name in ("seeds", "amplified")}
    assert len(rows["seeds"]) == 10
    assert len(rows["amplified"]) == 70, "every recorded reply is answered and accepted"
    told = json.loads((work / "results.json").read_text())
    assert set(told) == {"base", "seeds", "amplified", "reference", "grpo executable"}
    for arm, row in told.items():
        assert row["tasks"] == 4, arm
        assert 0 <= row["low"] <= row["mean"] <= row["high"] <= 1
    assert "| amplified | 1 |" in said
    assert len(json.loads((work / "models" / "executable-0.json").read_text())["episodes"]) == 2


def test_held_out_tasks_share_nothing_with_what_is_trained(looped: tuple[Path, str]) -> None:
    work, _ = looped
    apart = json.loads((work / "apart.json").read_text())
    assert {"test and seeds", "test and amplified", "test and reference", "dev and test"} <= set(apart)
    assert all(not pair["entities"] and not pair.get("requests") for pair in apart.values())
    held = [task for task in Pack.load(work / "pack").tasks if task.split == "test"]
    words = (work / "data" / "amplified" / "data.jsonl").read_text()
    for task in held:  # once more, without the functions that the loop itself uses
        patch = task.initial["patch"]
        for name in (*patch["parcels"], *patch["lockers"], *(row["owner"] for row in patch["parcels"].values())):
            assert name not in words


def test_a_finished_run_is_not_done_again(looped: tuple[Path, str], model: Path) -> None:
    work, said = looped
    logs = {path: path.stat().st_size for path in (work / "logs").iterdir()}
    words = [LOOP / "run.py", "--size", "tiny", "--work", work, "--model", model, "--worlds", "executable"]
    again = run(sys.executable, *words)
    assert {path: path.stat().st_size for path in (work / "logs").iterdir()} == logs
    assert again.splitlines()[-8:] == said.splitlines()[-8:]


def test_what_is_taught_is_what_is_played(looped: tuple[Path, str], python: Path, model: Path, tmp_path: Path) -> None:
    work, _ = looped
    lines = [(work / "data" / name / "data.jsonl").read_text() for name in ("reference", "seeds")]
    (tmp_path / "rows.jsonl").write_text("".join(lines))
    env = {"PYTHONPATH": make_python_path(python), "SIMIA_CACHE": str(cache_root()), "CUDA_VISIBLE_DEVICES": ""}
    run(python, LOOP / "check.py", model, work / "pack", tmp_path / "rows.jsonl", tmp_path / "out.json", **env)
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["losses"]["loss"] < 1e-5
    assert told["losses"]["gradient"] < 1e-5 < told["losses"]["largest_gradient"]
    assert told["ids"] == {"rows": 14, "same": 14, "solved": 14}
    assert told["alone"] == [True] * 6
    assert max(told["turns"]) > 1


def test_an_arm_that_is_better_is_shown_so() -> None:
    """The table's figures against ones that are known: 20 tasks, of which base solves none and the other three quarters."""
    code = (
        "import figures, json; t = [f't{i}' for i in range(20)];"
        "r = {'base': {0: dict.fromkeys(t, 0.0)}, 'seeds': {s: {k: float(i % 4 > 0) for i, k in enumerate(t)} for s in (0, 1)}};"
        "print(json.dumps(figures.table(r, dict.fromkeys(t, 'x'))[1]))"
    )
    row = json.loads(run(sys.executable, "-c", code, PYTHONPATH=str(LOOP)))["seeds"]
    assert row["mean"] == row["over_base"]["mean"] == 0.75
    assert 0.4 < row["over_base"]["low"] < 0.75 < row["over_base"]["high"] <= 1
