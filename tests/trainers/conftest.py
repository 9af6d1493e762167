"""LLaMA-Factory for real: its own environment (built once, cached outside the clone), a tiny model, and a way to run it."""

import os
import subprocess
from pathlib import Path

import pytest

from simia.resources import data_root
from simia.trainers.environments import ensure

ROOT = Path(__file__).parent.parent.parent


class Trainer:
    """Runs a command in the trainer's environment, away from the hub and from other runs' caches."""

    def __init__(self, python: Path, work: Path) -> None:
        self.python = python
        self.env = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "CUDA_VISIBLE_DEVICES": "",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(work / "hf"),
        }
        self.env.pop("PYTHONPATH", None)

    def run(self, *command: str | Path, cwd: Path | None = None) -> str:
        done = subprocess.run(
            [str(self.python), *map(str, command)],
            cwd=cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-4000:]}"
        return done.stdout


@pytest.fixture(scope="session")
def trainer(tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """Not skipped without a network: an environment that cannot be built fails with the line that names its log."""
    return Trainer(ensure("llamafactory", say=print), tmp_path_factory.mktemp("trainer"))


@pytest.fixture(scope="session")
def tiny_model(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny-qwen"
    texts = sorted((data_root() / "seeds").glob("*/seeds.jsonl"))
    trainer.run(ROOT / "simia" / "trainers" / "tiny_model.py", out, *texts)
    return out
