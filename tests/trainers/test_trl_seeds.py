"""From the shipped seeds to GRPO by the two commands of docs/training.md, in a simulated world and in the pack's own code."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from simia.jobs import Run
from simia.trajectory import Trajectory
from tests.command import run_simia
from tests.fake_endpoint import FakeEndpoint
from tests.trainers.conftest import Trainer
from tests.trainers.test_trl_train import train

GROUP = 4
SMALL = (
    "evaluate=null", "grpo.eval_strategy=no", "grpo.max_steps=1", "grpo.per_device_train_batch_size=2", "grpo.gradient_accumulation_steps=4",
    f"grpo.num_generations={GROUP}", "grpo.max_completion_length=200", "grpo.gradient_checkpointing=false", "grpo.bf16=false", "grpo.use_cpu=true",
    "grpo.save_steps=1", "at_once=null", "max_turn_tokens=48", "stage.limit=2", "stage.episode={turns: 3}",
)  # fmt: skip
WORLDS = {"simulated": (), "executable": ("stage.backend=executable", "stage.reward=rules")}


@pytest.mark.all
@pytest.mark.parametrize("world", WORLDS)
def test_one_step_from_the_shipped_seeds(trl: Trainer, taught_model: Path, tmp_path: Path, world: str) -> None:
    pack = tmp_path / "customer_service_seeds"
    made = run_simia("pack", "new", "--from", "trajectories", "customer_service", "--out", str(pack), cwd=tmp_path)
    assert made.returncode == 0, made.stdout + made.stderr
    endpoint = FakeEndpoint("--respond", "tests.replies:stage")
    own = (
        f"stage.pack={pack}",
        f"stage.llm.base_url={endpoint.url}",
        f"grpo.output_dir={tmp_path / 'out'}",
        f"episodes.run={tmp_path / 'episodes'}",
    )
    try:
        settings = (word for each in (*SMALL, *WORLDS[world], *own) for word in ("--set", each))
        said = train(trl, "trl/seeds", "--model", str(taught_model), *settings)
        asked = {str(request["body"]["messages"][0]["content"])[:10] for request in endpoint.requests}
    finally:
        endpoint.stop()
    assert "GRPO of" in said
    log = json.loads((tmp_path / "out" / "checkpoint-1" / "trainer_state.json").read_text())["log_history"]
    assert len([row for row in log if "rewards/environment_reward/mean" in row]) == 1
    with contextlib.closing(Run.read_only(tmp_path, str(tmp_path / "episodes"))) as run:
        bodies = [run.ledger.result(item.id) for item in run.ledger.items()]
    played = [Trajectory.from_row(body["trajectory"]) for body in bodies if body is not None]
    assert len(played) == 2 * GROUP
    assert all(each.reward is not None and each.reward.value is not None for each in played)
    assert ("You judge " in asked) is (world == "simulated")
