"""Every `simia train` line that the README and the pages on training show, up to the point where it would train for hours."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from simia.interpreters import ensure

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/training.md", "docs/verl.md", "docs/ragen.md")
# What a line may lack on a machine without the paper's data, GPUs and RAGEN, and says in a line.
LACKS = {
    "simia-joint": "trained on data that are not here",
    "simia-tau": "my-run",
    "verl": "verl",
    "ragen": "retail|ragen|torch",
}


def shown() -> list[tuple[str, str]]:
    found = []
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ")
        found += [(page, line) for line in re.findall(r"^simia train .*$", text, re.M)]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with what the pages begin with: an exported folder and a pack."""
    root = tmp_path_factory.mktemp("pages")
    seeds = ROOT / "seeds" / "customer_service"
    (root / "my_pack").symlink_to(seeds)
    simia(root, "export", str(seeds), "--to", "llamafactory", "--out", "data/first")
    for trainer in ("llamafactory", "trl"):
        ensure(trainer, say=print)
    return root


def simia(folder: Path, *words: str, code: int = 0) -> str:
    env = {**os.environ, "OPENAI_API_KEY": "not-a-key", "NO_COLOR": "1"}
    done = subprocess.run([sys.executable, "-m", "simia", *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == code, f"{words}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}"
    return done.stdout + done.stderr


@pytest.mark.trainer
@pytest.mark.parametrize(("page", "line"), shown())
def test_a_line_is_ready_to_train_or_says_what_it_lacks(page: str, line: str, folder: Path) -> None:
    words = shlex.split(line, comments=True)[1:]
    words = [word for word in words if word != "--dry-run"]
    if "--python" in words:
        words[words.index("--python") + 1] = sys.executable
    lacks = next((says for name, says in LACKS.items() if name in words[1:3]), None)
    if words[1:3] == ["llamafactory", "data/first"] and "deepspeed=null" not in words:
        lacks = "lacks it.*pip install deepspeed"
    said = simia(folder, *words, "--dry-run", code=0 if lacks is None else 2)
    if lacks is None:
        assert "python" in said
    else:
        assert re.search(lacks, said), said
        assert said.count("\n") == 1, said


@pytest.mark.trainer
def test_a_dry_run_asks_trl_itself(folder: Path) -> None:
    said = simia(folder, "train", "trl", "trl/grpo", "--set", "grpo.max_step=2", "--dry-run", code=2)
    assert "grpo.max_step: GRPOConfig has no such field; did you mean 'max_steps'?" in said
    said = simia(folder, "train", "trl", "trl/grpo", "--set", "grpo.num_generations=3", "--dry-run", code=2)
    assert "generation_batch_size (256) must be divisible by num_generations (3)" in said


def test_the_pages_show_lines() -> None:
    assert len(shown()) >= 8
