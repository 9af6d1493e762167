"""Trainers for real: each in its own environment (built once, cached outside the clone), a tiny model, and a way to run them."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from simia.search_path import cache_root, data_root
from simia.venvs import make_python_path
from tests.trainers import lamps as packs

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
            "SIMIA_RUNS": str(work / "runs"),
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


@pytest.fixture(scope="package", autouse=True)
def _runs_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trainings keep their episodes away from the working directory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMIA_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture(scope="session")
def trainer(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """Not skipped without a network: an environment that cannot be built fails with the line that names its log."""
    return Trainer(environments("llamafactory"), tmp_path_factory.mktemp("trainer"))


@pytest.fixture(scope="session")
def tiny_model(trainer: Trainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "tiny-qwen"
    texts = sorted((data_root() / "seeds").glob("*/seeds.jsonl"))
    trainer.run(ROOT / "tests" / "trainers" / "tiny_model.py", out, *texts)
    return out


@pytest.fixture(scope="session")
def lamps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of conversations with a user."""
    return packs.write(tmp_path_factory.mktemp("packs") / "lamps", packs.conversations())


@pytest.fixture(scope="session")
def errands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack of tasks without a user."""
    return packs.write(tmp_path_factory.mktemp("packs") / "errands", packs.errands())


@pytest.fixture(scope="session")
def trl(environments: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """TRL's environment, with simia on its path."""
    trainer = Trainer(environments("trl"), tmp_path_factory.mktemp("trl"))
    trainer.env["PYTHONPATH"] = make_python_path(trainer.python, say=print)
    trainer.env["SIMIA_CACHE"] = str(cache_root())
    return trainer


@pytest.fixture(scope="session")
def taught_model(trl: Trainer, lamps: Path, errands: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model that calls these packs' tools, rightly and wrongly."""
    out = tmp_path_factory.mktemp("models") / "taught-qwen"
    texts = [*sorted((data_root() / "seeds").glob("*/seeds.jsonl")), lamps / "tasks.jsonl"]
    trl.run(Path(__file__).with_name("taught.py"), out, *texts, "--", lamps, errands)
    return out
