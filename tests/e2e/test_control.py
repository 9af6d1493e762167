"""eval/loop/control.py on a tiny model: stages, resume after a kill, the shared beginning, and the figures of docs/control_plot.py."""

from __future__ import annotations

import json
import os
import re
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


def environment(**more: str) -> dict[str, str]:
    drop = ("SIMIA_PATH", "SIMIA_RUNS", "PYTHONPATH")
    kept = {k: v for k, v in os.environ.items() if k not in drop}
    return kept | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | more


def run(*command: Any, **env: str) -> str:
    words = [str(c) for c in command]
    done = subprocess.run(words, cwd=ROOT, env=environment(**env), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def kill_when(there: Path, words: list[Any], env: dict[str, str]) -> None:
    """Start a process and kill it as soon as a file exists."""
    process = subprocess.Popen(
        [str(word) for word in words], cwd=ROOT, env=environment(**env), stdout=subprocess.DEVNULL
    )
    end = time.monotonic() + 900
    while not there.exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def python(environments: Callable[[str], Path]) -> Path:
    return environments("trl")


@pytest.fixture(scope="module")
def trainer(python: Path) -> dict[str, str]:
    return {"PYTHONPATH": make_python_path(python), "SIMIA_CACHE": str(cache_root()), "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="module")
def model(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny-qwen"
    run(python, ROOT / "tests" / "trainers" / "tiny_model.py", out, LOOP / "pack" / "seeds.jsonl")
    return out


@pytest.fixture(scope="module")
def finished(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    work = tmp_path_factory.mktemp("control") / "work"
    return work, run(sys.executable, LOOP / "control.py", "--plan", "tiny", "--model", model, "--work", work)


@pytest.mark.all
def test_every_arm_is_trained_and_played_once(finished: tuple[Path, str]) -> None:
    work, _ = finished
    found = json.loads((work / "results.json").read_text())
    assert set(found["test"]) == {"start-0", "grpo-0", "shuffled-0"}
    assert all(len(outcomes) == 4 for outcomes in found["test"].values())
    assert {"start"} == set(found["dev"])
    assert [len(run["reward"]) for run in found["training"].values()] == [2] * len(found["training"])


@pytest.mark.all
def test_a_finished_experiment_is_not_run_again(finished: tuple[Path, str], model: Path) -> None:
    work, _ = finished
    logs = {path: path.stat().st_size for path in (work / "logs").iterdir()}
    results = (work / "results.json").read_bytes()
    run(sys.executable, LOOP / "control.py", "--plan", "tiny", "--model", model, "--work", work)
    assert {path: path.stat().st_size for path in (work / "logs").iterdir()} == logs
    assert (work / "results.json").read_bytes() == results


@pytest.mark.all
def test_killed_training_continues_at_its_checkpoint(
    finished: tuple[Path, str], python: Path, trainer: dict[str, str], tmp_path: Path
) -> None:
    work, _ = finished
    words = [
        python,
        LOOP / "control_train.py",
        work / "models" / "start-0",
        work / "environment.json",
        tmp_path / "out",
    ]
    words += ["--steps", "3", "--groups", "2", "--group", "2", "--warmup", "1", "--save", "1"]
    kill_when(tmp_path / "out.trl" / "checkpoint-1" / "trainer_state.json", words, trainer)
    assert not (tmp_path / "out").exists(), "it was killed before its end"
    run(*words, **trainer)
    told = json.loads((tmp_path / "out.json").read_text())
    steps = [row["step"] for row in told["episodes"]]
    assert steps == [1] * 4 + [2] * 4 + [3] * 4
    assert len({row["task"] for row in told["episodes"]}) == 4, "a first epoch of four tasks, and half of a second"
    assert not (tmp_path / "out.trl").exists()


@pytest.mark.all
def test_killed_sft_ends_with_the_weights_of_an_uninterrupted_one(
    finished: tuple[Path, str], python: Path, trainer: dict[str, str], model: Path, tmp_path: Path
) -> None:
    work, _ = finished
    words = [
        python,
        LOOP / "student.py",
        "learn",
        model,
        work / "pack",
        "--data",
        work / "data" / "seeds" / "data.jsonl",
    ]
    words += ["--steps", "40", "--batch", "2", "--seed", "5"]
    run(*words, "--keep", tmp_path / "whole", **trainer)
    parts = [*words, "--keep", tmp_path / "parts", "--checkpoint", tmp_path / "parts.pt"]
    kill_when(tmp_path / "parts.pt", parts, trainer)
    assert not (tmp_path / "parts").exists(), "it was killed before its end"
    said = run(*parts, **trainer)
    assert "step 1/40" not in said, "it went on from its checkpoint"
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]
    assert not (tmp_path / "parts.pt").exists()


@pytest.mark.all
def test_a_shared_beginning_changes_nothing(
    finished: tuple[Path, str], python: Path, trainer: dict[str, str], model: Path, tmp_path: Path
) -> None:
    data = finished[0] / "data" / "seeds" / "data.jsonl"
    run(python, LOOP / "control_check.py", model, data, LOOP / "pack", tmp_path / "out.json", **trainer)
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["training"]["loss"] < 1e-4
    assert told["training"]["gradient"] < 1e-4 * told["training"]["largest_gradient"]
    assert told["sampling"]["logprob"] < 1e-3
    assert len(set(told["sampling"]["lengths"])) > 1, "some replies end early"
    assert told["frequency"]["gap"] < 0.03
    assert 0.1 < told["frequency"]["likeliest"] < 0.9, "neither greedy nor uniform replies would pass"


def test_the_figures_of_known_outcomes(tmp_path: Path) -> None:
    """40 tasks and three seeds: the start solves every second one, GRPO all of them but the tenth part, shuffled as the start."""
    half, most = "01" * 20, "0111111111" * 4
    kinds = {f"test-{n:03d}": "move" if n < 20 else "hold" for n in range(40)}
    test = {f"{arm}-{s}": o for arm, o in (("start", half), ("grpo", most), ("shuffled", half)) for s in range(3)}
    curve = {"reward": [0.5] * 4 + [1.0] * 4, "mixed": [4] * 8, "tokens": [90.0] * 8, "seconds": [1.0] * 8}
    results = tmp_path / "results.json"
    results.write_text(json.dumps({
        "plan": {"seeds": 3, "test": 40}, "kinds": kinds, "wordings": {name: f"w{n % 4}" for n, name in enumerate(sorted(kinds))},
        "test": test, "dev": {},
        "training": {f"grpo-{s}": {**curve, "reward": [r - s / 10 for r in curve["reward"]]} for s in range(3)},
    }))  # fmt: skip
    said = run(sys.executable, ROOT / "docs" / "control_plot.py", results, tmp_path / "plot.svg")
    success, by_kind = said.split("\n\n")[:2]
    _, _, _, grpo, shuffled = success.splitlines()
    assert grpo.startswith("| GRPO | 90.0, 90.0, 90.0 | 90.0 [")
    assert "| +40.0 [+2" in grpo
    assert shuffled.endswith("| +0.0 [+0.0, +0.0] | +0.0 [+0.0, +0.0] |")
    plain, by_wording = (re.findall(r"[+-]\d+\.\d", cell) for cell in grpo.split(" | ")[-2:])
    assert by_wording[0] == plain[0] == "+40.0"
    assert float(by_wording[1]) < float(plain[1])
    assert "| GRPO | 0.90 | 0.90 |" in by_kind
    drawn = (tmp_path / "plot.svg").read_text()
    assert "gain of GRPO +40.0 [+2" in drawn
    assert drawn.count('<g id="line-') == 1
    assert drawn.count('<g id="band-') == 1, "three training seeds have an interval"


def test_tasks_of_many_counts_are_apart() -> None:
    """720 tasks want more lockers than there are: those of one split share them, and no two splits do."""
    code = (
        "import json, tasks; rows = list(tasks.tasks({'dev': 100, 'train': 320, 'test': 300}));"
        "texts = {s: [json.dumps(r['initial']) for r in rows if r['split'] == s] for s in ('dev', 'train', 'test')};"
        "print(len(rows), *(len(tasks.shared(texts[a], texts[b])) for a, b in (('dev', 'test'), ('train', 'test'), ('dev', 'train'))))"
    )
    assert run(sys.executable, "-c", code, PYTHONPATH=str(LOOP)).split() == ["720", "0", "0", "0"]
