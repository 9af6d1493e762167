"""GRPO in TRL that trains in a simulated world with a judge, and evaluates in the executable one by rules."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.fake_endpoint import FakeEndpoint
from tests.trainers import lamps as packs
from tests.trainers.conftest import Trainer
from tests.trainers.test_trl_ranks import TEMPLATE
from tests.trainers.test_trl_train import train


@pytest.mark.parametrize("through", ["rollout_func", pytest.param("environment_factory", marks=pytest.mark.all)])
def test_training_is_simulated_and_evaluation_executed(
    trl: Trainer, taught_model: Path, errands: Path, tmp_path: Path, through: str
) -> None:
    """The judge finds that nothing was ever solved, and the pack to evaluate on has tasks of the same names."""
    held_out = packs.write(tmp_path / "held_out", [{**task, "split": "test"} for task in packs.errands()])
    model = shutil.copytree(taught_model, tmp_path / "qwen")
    trl.run("-c", TEMPLATE, model)  # one whose calls TRL's own loop can read
    endpoint = FakeEndpoint("--respond", "tests.trainers.test_val_environment:never")
    llm = {"kind": "openai", "base_url": endpoint.url, "model": "m"}
    config = {
        "model": str(model),
        "stage": {"pack": str(errands), "backend": "simulated", "reward": "oracle", "llm": llm, "split": "train"},
        "val_environment": {"pack": str(held_out), "backend": "executable", "reward": "rules"},
        "evaluate": "test",
        "through": through,
        "max_turn_tokens": 64,
        "grpo": {
            "output_dir": str(tmp_path / "out"),
            "max_steps": 1,
            "per_device_train_batch_size": 8,
            "per_device_eval_batch_size": 8,
            "num_generations": 4,
            "num_generations_eval": 8,
            "max_completion_length": 200,
            "eval_strategy": "steps",
            "eval_steps": 1,
            "logging_steps": 1,
            "save_strategy": "no",
            "bf16": False,
            "use_cpu": True,
            "report_to": "none",
            "seed": 3,
        },
    }
    (tmp_path / "grpo.yaml").write_text(yaml.safe_dump(config))
    try:
        said = train(trl, tmp_path / "grpo.yaml")
        kinds = [str(request["body"]["messages"][0]["content"])[:9] for request in endpoint.requests]
    finally:
        endpoint.stop()
    assert 0 < kinds.count("You judge") <= 8, "the episodes of one step, and none of the evaluation's"
    figures = [row for row in map(read_figures, said.splitlines()) if row]
    name = "environment_reward" if through == "rollout_func" else "tools_reward"
    trained = [float(row[f"rewards/{name}/mean"]) for row in figures if f"rewards/{name}/mean" in row]
    evaluated = [float(row[f"eval_rewards/{name}/mean"]) for row in figures if f"eval_rewards/{name}/mean" in row]
    assert trained == [0.0]
    assert len(evaluated) == 1
    assert 0 < evaluated[0] <= 1, "what the rules say of the state"


def read_figures(line: str) -> dict[str, str]:
    """A line of the trainer's log."""
    line = line.strip()
    return dict(yaml.safe_load(line)) if line.startswith("{'") else {}
