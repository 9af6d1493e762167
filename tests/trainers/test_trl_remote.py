"""GRPO over the network: `simia train trl` with SmolLM2-135M on an environment that `simia serve` plays in another process."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("prometheus_client")

from simia.jobs import Run
from simia.trajectory import Trajectory
from simia.venvs import ensure_packages
from tests.serve.server_process import server_process
from tests.trainers.conftest import ROOT, Trainer

TOKEN = "a-token-of-a-test-run"
STEPS, GROUP = 3, 2
REWARD = """
def short(episode):
    \"\"\"A model of this size solves no task; the length of its words differs, and so do the rewards of a group.\"\"\"
    said = sum(len(message.text) for message in episode.trajectory.messages if message.role == "assistant")
    return episode.reward.value + 1 / (1 + said / 100)
"""


@pytest.fixture(scope="module")
def smollm(trl: Trainer, weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct as a folder that trainers read, with a chat template that lists tools."""
    layer = next((ensure_packages("gguf", pip=["gguf==0.19.0"]).parents[1] / "lib").glob("python*/site-packages"))
    env = {**trl.env, "PYTHONPATH": f"{trl.env['PYTHONPATH']}:{layer}"}
    out = tmp_path_factory.mktemp("models") / "smollm2"
    command = [str(trl.python), str(ROOT / "eval" / "loop" / "student.py"), "prepare", str(weights), str(out)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@pytest.mark.all
def test_trl_trains_over_an_address(
    trl: Trainer, smollm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMIA_TOKEN", TOKEN)
    (tmp_path / "rewards.py").write_text(REWARD)
    settings = ["user=scripted", f"reward_function={tmp_path / 'rewards.py'}:short", "episode.turns=2"]
    words = ["--token-env", "SIMIA_TOKEN", *(word for setting in settings for word in ("--set", setting))]
    grpo = {
        "output_dir": str(tmp_path / "out"),
        "max_steps": STEPS,
        "per_device_train_batch_size": GROUP,
        "num_generations": GROUP,
        "max_completion_length": 64,
        "learning_rate": "1e-5",
        "beta": 0.0,
        "logging_steps": 1,
        "save_steps": STEPS,
        "save_only_model": True,
        "bf16": False,
        "gradient_checkpointing": False,  # with it each token is computed over the whole prompt again
        "use_cpu": True,
        "report_to": "none",
    }
    with server_process(tmp_path / "kept.jsonl", *words) as server:
        stage = {"pack": f"{server.url}/customer_service", "token_env": "SIMIA_TOKEN", "split": "train"}
        episodes = {"run": str(tmp_path / "runs" / "trained")}
        config = {"model": str(smollm), "stage": stage, "episodes": episodes, "max_turn_tokens": 8, "grpo": grpo}
        (tmp_path / "grpo.yaml").write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "simia", "train", "trl", str(tmp_path / "grpo.yaml")]
        env = {**trl.env, "SIMIA_TOKEN": TOKEN}
        env.pop("PYTHONPATH")
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        kept = server.read_kept()
    assert "customer_service, split train (remote)" in done.stdout
    assert len(kept) == STEPS * GROUP
    assert {trajectory.split for trajectory in kept} == {"train"}
    assert all(trajectory.evidence is not None for trajectory in kept), "the server scored them"
    groups = [kept[at : at + GROUP] for at in range(0, len(kept), GROUP)]
    assert all(len({trajectory.task_id for trajectory in group}) == 1 for group in groups)
    earned = [[each.reward.value or 0.0 for each in group if each.reward] for group in groups]
    run = Run.read_only(tmp_path / "runs", "trained")
    stored = [
        Trajectory.from_row(body["trajectory"]) for item in run.ledger.items() if (body := run.ledger.result(item.id))
    ]
    run.close()
    assert sorted(each.reward.value or 0.0 for each in stored if each.reward) == sorted(
        reward for rewards in earned for reward in rewards
    )
    logged = json.loads((tmp_path / "out" / f"checkpoint-{STEPS}" / "trainer_state.json").read_text())["log_history"]
    trained = [row for row in logged if "loss" in row]
    means = [math.fsum(rewards) / GROUP for rewards in earned]
    assert [row["rewards/environment_reward/mean"] for row in trained] == pytest.approx(means, rel=1e-4)
    assert [row["grad_norm"] > 0 for row in trained] == [len(set(rewards)) > 1 for rewards in earned]
    assert any(row["grad_norm"] > 0 for row in trained)
    shutil.rmtree(tmp_path / "out")  # gigabytes of weights
