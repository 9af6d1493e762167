"""One real GRPO step in TRL on two gyms, in CodeGym's dialect."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import yaml

from simia.jobs import Run
from simia.trajectory import Trajectory
from tests.envs.gym_packs import write_gym_pack
from tests.trainers.conftest import Trainer
from tests.trainers.test_trl_train import train


@pytest.mark.all
def test_a_step_of_grpo_on_gyms(trl: Trainer, taught_model: Path, tmp_path: Path) -> None:
    for number in range(2):
        write_gym_pack(tmp_path / "gym" / f"gym_{number}", f"gym_{number}")
    config = {
        "extends": "trl/codegym",
        "model": str(taught_model),
        "stage": {"packs": [str(tmp_path / "gym" / "*")], "episode": {"turns": 3}},
        "evaluate": None,
        "at_once": None,
        "max_turn_tokens": 32,
        "episodes": {"run": str(tmp_path / "episodes")},
        "grpo": {
            "output_dir": str(tmp_path / "out"),
            "max_steps": 1,
            "per_device_train_batch_size": 8,
            "gradient_accumulation_steps": 1,
            "num_generations": 4,
            "max_completion_length": 400,
            "gradient_checkpointing": False,
            "eval_strategy": "no",
            "bf16": False,
            "use_cpu": True,
        },
    }
    (tmp_path / "gyms.yaml").write_text(yaml.safe_dump(config))
    said = train(trl, tmp_path / "gyms.yaml")
    assert "GRPO of" in said
    state = json.loads((tmp_path / "out" / "checkpoint-1" / "trainer_state.json").read_text())
    assert any("rewards/environment_reward/mean" in row for row in state["log_history"])
    with contextlib.closing(Run.read_only(tmp_path, str(tmp_path / "episodes"))) as run:
        bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    played = [Trajectory.from_row(body["trajectory"]) for body in bodies if body is not None]
    assert len(played) == 8
    assert {t.pack for t in played} <= {"gym_0", "gym_1"}
