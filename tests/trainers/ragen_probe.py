"""Runs in RAGEN's environment, on RAGEN's own source and the verl beside it: rollouts by its proxy, advantages and an update by its code.

python ragen_probe.py MODEL PACK URL OUT.json [local] [RUNS.json]

What a machine without a GPU lacks is stood in for here, and nothing else: vllm and flash_attn are modules that are imported and never
called; the current CUDA device, to which RAGEN's actor moves its batches, is the CPU, and has memory; and in place of Ray's group of workers verl's
HFRollout samples in this process.
"""

import json
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

STAND_INS = {
    "vllm/__init__.py": "__version__ = '0.8.2'\nclass LLM: ...\nclass SamplingParams: ...\n",
    "flash_attn/__init__.py": "",
    "flash_attn/bert_padding.py": "index_first_axis = pad_input = rearrange = unpad_input = None\n",
}
folder = Path(tempfile.mkdtemp())
for name, text in STAND_INS.items():
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text)
home = Path(os.environ["RAGEN_HOME"])
sys.path[:0] = [str(folder), str(home)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
import yaml  # noqa: E402
from outage import Unsteady  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from simia.errors import UserError  # noqa: E402
from simia.trainers.ragen import register  # noqa: E402
from simia.trainers.ragen.settings import count_done_steps  # noqa: E402
from simia.trainers.ragen.start import compose_config  # noqa: E402

register()
import ragen.env  # noqa: E402
import ragen.llm_agent.agent_proxy as proxies  # noqa: E402
import train  # noqa: E402
from ragen.llm_agent.ctx_manager import ContextManager  # noqa: E402
from ragen.trainer.agent_trainer import AdvantageEstimator, compute_advantage  # noqa: E402
from ragen.workers.actor.dp_actor import DataParallelPPOActor  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.single_controller.ray import RayWorkerGroup  # noqa: E402
from verl.trainer.ppo.metric_utils import process_validation_metrics  # noqa: E402
from verl.utils.checkpoint.checkpoint_manager import find_latest_ckpt_path  # noqa: E402
from verl.workers.rollout.hf_rollout import HFRollout  # noqa: E402

torch.cuda.current_device = lambda: "cpu"
torch.cuda.mem_get_info = lambda: (1, 1)  # for a line of its log
model_path, pack, url, out = sys.argv[1:5]
tokenizer = AutoTokenizer.from_pretrained(model_path)
model = AutoModelForCausalLM.from_pretrained(model_path)
torch.manual_seed(0)


class Local(RayWorkerGroup):  # type: ignore[misc]
    """RAGEN's proxy takes ids from such a group only. It keeps what was asked and sampled."""

    def __init__(self, config: Any) -> None:
        self._world_size, self.seen, self.batches = 1, list[tuple[list[int], list[int]]](), list[int]()
        self.rollout = HFRollout(model, config.actor_rollout_ref.rollout)

    def generate_sequences(self, prompts: Any) -> Any:
        ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
        prompts.meta_info = {**prompts.meta_info, **ends}  # as RAGEN's worker does
        found = self.rollout.generate_sequences(prompts)
        masks = prompts.batch["attention_mask"].bool()
        self.batches.append(len(masks))
        for ids, mask, said in zip(prompts.batch["input_ids"], masks, found.batch["responses"].tolist(), strict=True):
            self.seen.append((ids[mask].tolist(), said))
        return found


def validated(values: dict[str, Any]) -> Any:
    """As a run's script composes it, past RAGEN's own validation."""
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(values))
    return train.add_dependency_and_validate_config(compose_config(file, home))


def configured(at_once: int | None = None, **stage: Any) -> Any:
    values = {
        "model_path": model_path,
        "micro_batch_size_per_gpu": 2,
        "ppo_mini_batch_size": 8,
        "actor_rollout_ref": {
            "actor": {"use_ref": False, "use_torch_compile": False, "entropy_coeff": 0.0, "optim": {"lr": 1.0e-3}},
            "rollout": {
                "name": "hf", "top_k": 0, "max_model_len": 1024, "response_length": 64, "rollout_filter_ratio": 1,
            },
        },
        "algorithm": {"adv_estimator": "grpo"},
        "agent_proxy": {
            "max_turn": 8, "enable_think": False, "reward_normalization": {"grouping": "state", "method": "mean_std"},
        },
        "es_manager": {
            "format_penalty": 0.0,
            "train": {"env_groups": 2, "group_size": 4, "env_configs": {"tags": ["Lamps"], "n_groups": [2]}},
            "val": {"env_groups": 2, "group_size": 1, "env_configs": {"tags": ["Lamps"], "n_groups": [2]}},
        },
        "custom_envs": {
            "Lamps": {
                "env_type": "simia", "max_actions_per_traj": 8,
                "env_config": {
                    "stage": {"pack": pack, "user": "scripted", **stage}, "train": None, "val": None, "at_once": at_once,
                },
            }
        },
    }  # fmt: skip
    return validated(values)


def rolled(config: Any, *, refused: Any = (), lost: Any = (), val: bool = False) -> tuple[Any, dict[str, Any]]:
    """One rollout by RAGEN's proxy, and all that a test may want to know of it."""
    group = Local(config)
    proxy = proxies.LLMAgentProxy(config, group, tokenizer)
    manager = proxy.val_es_manager if val else proxy.train_es_manager
    environment = manager.envs[0]["env"].lease.environment
    backend = environment.backend
    environment.backend = Unsteady(backend, refused=refused, lost=lost)
    try:
        batch = proxy.rollout(DataProto(), val=val)
    except UserError:
        for each in (proxy.train_es_manager, proxy.val_es_manager):
            each.close()
        raise
    finally:
        environment.backend = backend
    envs = [entry["env"] for entry in manager.envs]
    scores = [env.reward for env in envs]
    told = {
        "classes": [type(each).__module__ for each in (proxy, proxy.train_ctx_manager, manager)],
        "environments": len({id(env.lease.environment) for env in envs}),
        "input_ids": batch.batch["input_ids"].tolist(),
        "attention_mask": batch.batch["attention_mask"].tolist(),
        "position_ids": batch.batch["position_ids"].tolist(),
        "responses": batch.batch["responses"].tolist(),
        "loss_mask": batch.batch["loss_mask"].int().tolist(),
        "rm_scores": batch.batch["rm_scores"].tolist(),
        "original": batch.batch["original_rm_scores"].sum(-1).tolist(),
        "groups": [int(group) for group in batch.non_tensor_batch["group_ids"]],
        "metrics": {name: float(value) for name, value in batch.meta_info["metrics"].items()},
        "scores": scores,
        "end": tokenizer.eos_token_id,
        "seeds": [entry["status"].seed for entry in manager.envs],
        "episodes": [env.playing.trajectory.model_dump(mode="json") for env in envs],
        "sampled": group.seen,
        "batches": group.batches,
    }
    if val:  # as RAGEN's trainer reports it
        rewards = train.DummyRewardManager(tokenizer, 0)(batch).sum(-1).tolist()
        figures = process_validation_metrics(["unknown"] * len(envs), [""] * len(envs), {"reward": rewards})
        told["core"] = {name: float(value) for name, value in figures["unknown"]["reward"].items()}
    if all(score is not None for score in scores):
        states = [{"group_id": entry["group_id"]} for entry in manager.envs]
        own = ContextManager._normalize_score_tensor(proxy.train_ctx_manager, torch.tensor(scores)[:, None], states)
        told["ragens_own"] = own[:, -1].tolist()
    for each in (proxy.train_es_manager, proxy.val_es_manager):
        each.close()
    return batch, told


def ended(config: Any, **how: Any) -> str:
    """The line that ends a training at this step."""
    try:
        rolled(config, **how)
    except UserError as error:
        return str(error)
    return "nothing was said"


def resumed(config: Any) -> list[Any]:
    """The step that verl's trainer reads off a checkpoint's folder, the one that we read, and the first seed after it."""
    checkpoints = Path(tempfile.mkdtemp())
    config.trainer.default_local_dir = str(checkpoints)
    (checkpoints / "global_step_3").mkdir()
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("3")
    read = int(str(find_latest_ckpt_path(str(checkpoints))).split("global_step_")[-1])
    manager = proxies.EnvStateManager(config, "train")
    manager.reset()
    seed = manager.envs[0]["status"].seed
    manager.get_rollout_states()
    manager.close()
    return [read, count_done_steps(config), seed]


def updated(config: Any, batch: Any) -> dict[str, Any]:
    """RAGEN's trainer between rollout and checkpoint: rewards, advantages, log-probabilities, one step of its actor."""
    batch.non_tensor_batch["uid"] = np.array([str(uuid.uuid4()) for _ in range(len(batch.batch))], dtype=object)
    batch.batch["response_mask"] = batch.batch["loss_mask"]
    rewards = train.DummyRewardManager(tokenizer, 0)(batch)
    batch.batch["token_level_scores"] = batch.batch["token_level_rewards"] = rewards
    batch.meta_info |= {"micro_batch_size": 2, "temperature": 1.0, "use_dynamic_bsz": False}
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.actor_rollout_ref.actor.optim.lr)
    actor = DataParallelPPOActor(config.actor_rollout_ref.actor, model, optimizer)
    batch.batch["old_log_probs"], _ = actor.compute_log_prob(batch, no_lora=True)
    batch = compute_advantage(batch, AdvantageEstimator.GRPO, multi_turn=True)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    metrics = actor.update_policy(batch)
    with torch.no_grad():
        logits = model(batch.batch["input_ids"], attention_mask=batch.batch["attention_mask"]).logits
    return {
        "advantages": batch.batch["advantages"].tolist(),
        "metrics": {name: np.asarray(value).tolist() for name, value in metrics.items()},
        "changed": sum(not torch.equal(value.detach(), before[name]) for name, value in model.named_parameters()),
        "parameters": len(before),
        "finite": bool(logits.isfinite().all()),
    }


told: dict[str, Any] = {
    "registered": ragen.env.REGISTERED_ENVS["simia"].__module__,
    "others": sorted(set(ragen.env.REGISTERED_ENVS) - {"simia"}),
}
runs = json.loads(Path(sys.argv[-1]).read_text()) if sys.argv[-1].endswith("runs.json") else {}
told["runs"] = {}
for name, values in runs.items():
    run = validated(values)
    told["runs"][name] = [run.algorithm.adv_estimator, run.trainer.total_training_steps, run.data.train_batch_size]
executable = configured()
narrow = configured(at_once=3)
_, told["lost"] = rolled(narrow, refused=[2], lost=[6])
narrow.actor_rollout_ref.rollout.max_model_len = 65
told["narrow"] = ended(narrow)
for _ in range(8):  # until one is solved
    _, told["val"] = rolled(executable, val=True)
    if any(told["val"]["scores"]):
        break
# Before the policy is trained for real, after which nobody knows what it says.
fake = configured(backend="simulated", llm={"kind": "openai", "base_url": url, "model": "fake"})
_, told["simulated"] = rolled(fake)
if "local" in sys.argv:
    short = {"backend_settings": {"max_tokens": 200, "examples": 0}, "oracle": {"max_tokens": 200}}
    small = configured(backend="simulated", llm={"kind": "embedded", "threads": 2}, **short)
    small.es_manager.train.group_size, small.agent_proxy.max_turn = 2, 3
    _, told["local"] = rolled(small)
for seed in (0, 100, 200, 300):
    executable.seed.train = seed
    batch, told["executable"] = rolled(executable)
    if any(told["executable"]["rm_scores"][i][-1] for i in range(8)):
        break
told["update"] = updated(executable, batch)
cut = configured()
cut.agent_proxy.max_turn = 1
_, told["cut"] = rolled(cut)
told["resumed"] = resumed(configured())
told["dark"] = ended(executable, refused=range(1, 9))
Path(out).write_text(json.dumps(told))
