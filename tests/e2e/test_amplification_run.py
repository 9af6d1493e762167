"""eval/loop/amplification.py on a tiny model: stages in order, resume after a kill, and episodes that are played together."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simia.search_path import cache_root
from simia.venvs import make_python_path

ROOT = Path(__file__).parents[2]
LOOP = ROOT / "eval" / "loop"
pytestmark = pytest.mark.all


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("SIMIA_PATH", "SIMIA_RUNS", "PYTHONPATH")}
    return kept | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | more


def run(*command: Any, fails: bool = False, **env: str) -> str:
    done = subprocess.run([str(c) for c in command], cwd=ROOT, env=environment(**env), capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stderr if fails else done.stdout


@pytest.fixture(scope="module")
def python(environments: Callable[[str], Path]) -> Path:
    return environments("trl")


@pytest.fixture(scope="module")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny-qwen"
    run(python, ROOT / "tests" / "trainers" / "tiny_model.py", out, LOOP / "pack" / "seeds.jsonl")
    return out


@pytest.fixture(scope="module")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path, str]:
    """The command, the folder of the results and the report. The first start of `run` is killed after its first training."""
    folder = tmp_path_factory.mktemp("amplification")
    run(
        sys.executable, "-m", "simia", "amplify", "-c", LOOP / "amplify.yaml", "--name", "strong",
        "--set", f"llm.path={LOOP / 'recording.jsonl'}", "--seeds", LOOP / "pack", SIMIA_RUNS=str(folder / "runs"),
    )  # fmt: skip
    work, results = folder / "work", folder / "results"
    command: list[Any] = [sys.executable, LOOP / "amplification.py"]
    options = ["--plan", "tiny", "--model", model, "--work", work, "--results", results, "--workers", "1"]
    run(*command, "prepare", *options, "--strong", folder / "runs" / "strong")
    early = run(*command, "test", *options, fails=True)
    assert "amplification: swapped is not trained with seed 0" in early
    early = run(*command, "report", *options, fails=True)
    assert "no results; run python eval/loop/amplification.py run first" in early
    process = subprocess.Popen(
        [str(c) for c in (*command, "run", *options)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    end = time.monotonic() + 900
    while not list(results.glob("dev-*.json")) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (results / "swapped-0.json").exists(), "it was killed before its end"
    run(*command, "run", *options)
    return [*command, "run", *options], results, run(*command, "report", *options)


def test_every_arm_is_trained_and_tested_after_a_kill(finished: tuple[list[Any], Path, str]) -> None:
    _, results, said = finished
    names = {path.name for path in results.glob("*-0.json")}
    assert names == {"swapped-0.json", "amplified-0.json", "seeds-0.json"}
    assert {path.stem.rpartition("-")[0] for path in results.glob("dev-*.json")} == {
        "dev-swapped", "dev-amplified", "dev-seeds",
    }  # fmt: skip
    told = json.loads((results / "amplified-0.json").read_text())
    assert (told["arm"], told["seed"], told["rows"], len(told["tasks"])) == ("amplified", 0, 20, 6)
    assert all(row["reward"] or row["failure"] for row in told["tasks"].values())
    assert "| amplified over swapped (primary) |" in said
    assert not list((results.parent / "work" / "models").glob("dev-*")), "models of dev runs are removed"


def test_a_finished_experiment_trains_and_plays_nothing(finished: tuple[list[Any], Path, str]) -> None:
    command, results, _ = finished
    logs = {path: path.stat().st_size for path in (results.parent / "work" / "logs").iterdir()}
    run(*command)
    assert {path: path.stat().st_size for path in (results.parent / "work" / "logs").iterdir()} == logs


def test_episodes_played_together_are_those_played_alone(
    finished: tuple[list[Any], Path, str], python: Path, model: Path, tmp_path: Path
) -> None:
    """With a model that was over-fitted to the seeds until it makes calls, so that turns follow on turns."""
    work = finished[1].parent / "work"
    env = {"PYTHONPATH": make_python_path(python), "SIMIA_CACHE": str(cache_root()), "HF_HUB_OFFLINE": "1"}
    words = ["--data", work / "data" / "seeds" / "data.jsonl", "--steps", "150", "--batch", "5", "--rate", "3e-3"]
    run(python, LOOP / "student.py", "learn", model, work / "pack", *words, "--keep", tmp_path / "fitted", **env)
    checked = tmp_path / "out.json"
    run(python, LOOP / "amplification_check.py", tmp_path / "fitted", work / "pack", "seed", 10, checked, **env)
    told = json.loads(checked.read_text())
    assert told["episodes"] == told["same_tokens"] == told["same_rewards"] == 10
    assert max(told["turns"]) > 1
    assert len(set(told["turns"])) > 1, "episodes leave the batch at different turns"
