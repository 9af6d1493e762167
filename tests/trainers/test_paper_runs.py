"""configs/ragen beside the authors' script, and runs on several nodes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simia.config import read_config_file
from simia.envs.config import EnvironmentConfig
from simia.envs.role_models import user_kind
from simia.pack import Pack
from simia.search_path import data_root
from simia.trainers.launch import look_up
from simia.trainers.verl.nodes import find_shared_filesystem

PAPER = data_root() / "configs" / "ragen" / "paper.yaml"
PUBLISHED: dict[str, Any] = {
    "model_path": "Simia-Agent/Simia-Tau-SFT-Qwen3-8B",
    "micro_batch_size_per_gpu": 1,
    "ppo_mini_batch_size": 8,
    "enable_response_mask": True,
    "actor_rollout_ref.actor.use_ref": True,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.kl_loss_coef": 0.001,
    "actor_rollout_ref.actor.kl_loss_type": "low_var_kl",
    "actor_rollout_ref.actor.entropy_coeff": 0.001,
    "actor_rollout_ref.actor.clip_ratio_low": 0.2,
    "actor_rollout_ref.actor.clip_ratio_high": 0.28,
    "actor_rollout_ref.actor.clip_ratio_c": 3.0,
    "actor_rollout_ref.actor.grad_clip": 1.0,
    "actor_rollout_ref.actor.optim.lr": 1e-6,
    "actor_rollout_ref.actor.optim.weight_decay": 0.01,
    "actor_rollout_ref.actor.optim.betas": [0.9, 0.999],
    "actor_rollout_ref.actor.optim.warmup_style": "constant",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": 0.0,
    "actor_rollout_ref.actor.fsdp_config.+model_dtype": "bfloat16",
    "actor_rollout_ref.ref.fsdp_config.+model_dtype": "bfloat16",
    "actor_rollout_ref.rollout.name": "vllm",
    "actor_rollout_ref.rollout.max_model_len": 9000,
    "actor_rollout_ref.rollout.max_num_batched_tokens": 9000,
    "actor_rollout_ref.rollout.response_length": 400,
    "actor_rollout_ref.rollout.temperature": 0.7,
    "actor_rollout_ref.rollout.top_p": 1.0,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
    "actor_rollout_ref.rollout.tp_size_check": False,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.5,
    "actor_rollout_ref.rollout.rollout_filter_ratio": 1.0,
    "actor_rollout_ref.rollout.val_kwargs": {"do_sample": True, "temperature": 0.7},
    "algorithm.adv_estimator": "grpo",
    "algorithm.gamma": 1.0,
    "algorithm.lam": 1.0,
    "trainer.total_training_steps": 64,
    "trainer.n_gpus_per_node": 8,
    "trainer.nnodes": 1,
    "trainer.val_before_train": False,
    "trainer.test_freq": 10000,
    "trainer.save_freq": 4,
    "trainer.logger": ["console", "wandb"],
    "agent_proxy.max_turn": 40,
    "agent_proxy.max_actions_per_turn": 1,
    "agent_proxy.max_context_window": -1,
    "agent_proxy.use_turn_scores": False,
    "agent_proxy.enable_think": True,
    "agent_proxy.reward_normalization.grouping": "state",
    "agent_proxy.reward_normalization.method": "identity",
    "es_manager.format_penalty": -0.1,
    "es_manager.train.env_groups": 16,
    "es_manager.train.group_size": 8,
    "es_manager.val.group_size": 4,
}
"""What the authors' run_simulated_env_RL.sh sets, over their RAGEN's base and verl's defaults. Names of a run are left out."""
OURS = ("system", "trainer.project_name")


def flatten(section: dict[str, Any], at: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in section.items():
        place = f"{at}{name}"
        nested = isinstance(value, dict) and place not in PUBLISHED and place not in OURS
        found |= flatten(value, f"{place}.") if nested else {place: value}
    return found


def find_line(name: str) -> str:
    """The line that sets a value: the last one with its name whose section is right, by the order of the file."""
    lines, at = PAPER.read_text(encoding="utf-8").splitlines(), 0
    for part in name.split("."):
        at = next(
            n for n in range(at, len(lines)) if re.search(rf"(^|[\s{{]){re.escape(part)}:", lines[n].split(" #")[0])
        )
    return lines[at]


def test_every_difference_from_the_authors_script_is_commented() -> None:
    ours = flatten(read_config_file("ragen/paper"))
    assert ours.keys() - set(OURS) == PUBLISHED.keys(), "a setting whose published value this test does not know"
    for name, published in PUBLISHED.items():
        line = find_line(name)
        comment = line.partition(" # ")[2]
        if ours[name] == published:
            assert "[published]" not in comment or "{" in line.split(" #")[0], line
            assert "[ours]" not in comment, f"the script gives it: {line}"
        else:
            assert "[published]" in comment, line
    text = PAPER.read_text(encoding="utf-8")
    assert "[published] RAGEN b6146567" in text
    assert "[published] The simulator is gpt-5" in text
    assert "40 [published] 60" in text


@pytest.mark.parametrize("name", ["tau_simulated", "tau_executable", "officebench_simulated", "officebench_executable"])
def test_rounds_end_an_episode_before_the_actions_do(name: str) -> None:
    values = read_config_file(f"ragen/{name}")
    actions = {entry["max_actions_per_traj"] for entry in values["custom_envs"].values()}
    assert actions == {look_up(values, "agent_proxy.max_turn")}


ATTEMPTS, REPLY = 3, 16_000


@pytest.mark.parametrize(
    "name", ["ragen/tau_simulated", "ragen/tau_executable", "ragen/officebench_simulated", "verl/simia", "trl/seeds"]
)
def test_models_of_the_world_have_the_authors_attempts_and_room_to_think(name: str) -> None:
    """retry_attempts: 3 of the authors counts the first one; max_tokens is a reply's limit, where simia's defaults are short."""
    values = read_config_file(name)
    entries = values.get("custom_envs", {}).values()
    stages = [entry["env_config"]["stage"] for entry in entries] or [values.get("simia", values)["stage"]]
    for values in stages:
        stage = EnvironmentConfig.model_validate(values)
        assert stage.limits.retries + 1 == ATTEMPTS
        if user_kind(stage, Pack(name="p")) == "llm":
            assert stage.user_settings.max_tokens == REPLY
        if stage.backend == "simulated":
            assert stage.backend_settings["max_tokens"] == REPLY
            assert stage.reward != "oracle" or stage.oracle.max_tokens == REPLY
    text = PAPER.read_text(encoding="utf-8")
    assert "[published] 60000, sent as max_completion_tokens" in text
    assert "APIGen_5k_processed.json" in text


VERL = {
    "actor_rollout_ref.rollout.tensor_model_parallel_size",
    "trainer.save_freq",
    "trainer.test_freq",
    "trainer.logger",
}


def test_verls_config_calls_nothing_ours_that_the_authors_script_has() -> None:
    text = (data_root() / "configs" / "verl" / "simia.yaml").read_text(encoding="utf-8")
    values = read_config_file("verl/simia")
    for name in VERL:
        (line,) = [line for line in text.splitlines() if line.strip().startswith(f"{name.rpartition('.')[2]}:")]
        assert "[ours]" not in line, line
        assert look_up(values, name) == PUBLISHED[name] or "published: " in line, line


# -- several nodes --------------------------------------------------------------------------------------------------------


MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /data rw shared:2 - nfs4 server:/data rw
31 30 8:2 / /data/local\040disk rw - xfs /dev/sdb rw
32 22 0:41 / /mine rw - fuse.sshfs me@there: rw
33 22 0:42 / /big rw - lustre 10.0.0.1@tcp:/big rw
34 22 0:43 / /virtual rw - fuse.glusterfs there:/v rw
"""


def test_the_file_system_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mounts").write_text(MOUNTS)
    kinds = {
        "/data/run/replies": "nfs4", "/data/local disk/replies": None, "/tmp/replies": None, "/big/x": "lustre",
        "/mine/x": None, "/virtual/x": "fuse.glusterfs", "/database": None,
    }  # fmt: skip
    assert {path: find_shared_filesystem(Path(path), tmp_path / "mounts") for path in kinds} == kinds
    assert find_shared_filesystem(Path("/data"), tmp_path / "none") is None, "not known is not refused"


def test_a_mounted_folder_of_this_machine_is_read() -> None:
    assert find_shared_filesystem(Path("/")) is None
