"""examples/grpo.py as a user runs it: TRL's environment, a model, a pack, and one step of GRPO in the executable world."""

from __future__ import annotations

import re
from pathlib import Path

from tests.trainers.conftest import ROOT, Trainer


def test_one_step_plays_and_trains_a_policy(trl: Trainer, lamps: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "tiny-qwen", tmp_path / "grpo"
    seeds = ROOT / "seeds" / "customer_service" / "seeds.jsonl"
    trl.run(ROOT / "tests" / "trainers" / "tiny_model.py", model, seeds)
    said = trl.run(ROOT / "examples" / "grpo.py", model, lamps, "executable", out, "1", cwd=tmp_path)
    played = re.findall(r"^(lamps-\d+) (?:None|\d\.\d+)$", said.replace("\r", "\n"), re.M)
    assert len(played) == 8, said[-2000:]
    assert len(set(played)) == 2  # two groups of four episodes
    assert "'train_runtime'" in said
    assert (out / "model.safetensors").is_file()
