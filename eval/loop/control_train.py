"""GRPO of the control experiment, in the executable world with its state as reward. Runs in TRL's environment.

    python control_train.py MODEL ENVIRONMENT.json OUT --steps 40 --groups 8 --group 4 --rate 5e-6 --warmup 4 --seed 0

Environment, rows, reward and rollouts are simia's (`rollout_func`, `environment_reward`); the trainer is TRL's. Two optimizations change
no gradient: common prefixes are computed once (`shared_prefix`), and episodes with an advantage of 0 are skipped.
A killed run resumes from the last checkpoint of OUT.trl. `--reward shuffled` shuffles the rewards among the episodes of a step.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]
from prefix_sampler import PrefixSampler
from shared_prefix import share_prefix
from student import TURN_TOKENS, device, write
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]
from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.opening import open_environment
from simia.trainers.trl import environment_reward, rollout_func, task_rows
from simia.trainers.trl.resume import find_last_checkpoint, make_order_callback
from simia.trajectory import Trajectory

EPISODE_TOKENS = 400
PARTS = 4  # a step's episodes go through the model in this many parts; with 2, a process took up to 14 GB


class ControlTrainer(GRPOTrainer):  # type: ignore[misc,unused-ignore]
    """TRL's trainer without the computation of rows whose advantage is 0. Their gradient is zero, since there is no KL term; the loss is
    still divided by the tokens of all rows."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        advantages = inputs["advantages"]
        if not (learns := advantages != 0).any():
            return sum(p.flatten()[0] for p in model.parameters()) * 0.0
        kept = {name: v[learns] if is_by_row(v, len(advantages)) else v for name, v in inputs.items()}
        return super().compute_loss(model, kept, return_outputs, num_items_in_batch)


def is_by_row(value: Any, rows: int) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() > 0 and len(value) == rows


class EpisodeLog:
    """Outcomes of the training episodes, a line each, with the step. Lines of steps that a resumed run repeats are dropped."""

    def __init__(self, path: Path, done: int) -> None:
        self._path = path
        kept = [row for row in self.rows() if row["step"] <= done]
        path.write_text("".join(json.dumps(row) + "\n" for row in kept))

    def rows(self) -> list[dict[str, Any]]:
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def add(self, step: int, trajectory: Trajectory) -> None:
        reward = trajectory.reward.value if trajectory.reward else None
        row = {
            "step": step, "task": trajectory.task_id, "reward": reward, "end": trajectory.end.code,
            "calls": [[call.name, call.arguments] for _, _, call in trajectory.calls()],
        }  # fmt: skip
        with self._path.open("a") as out:
            out.write(json.dumps(row) + "\n")


def shuffled_reward(*, reward: list[float | None], trainer_state: Any, **_: Any) -> list[float | None]:
    """Shuffle the rewards among a step's episodes: the number of successes stays, but they no longer depend on the actions."""
    known = [value for value in reward if value is not None]
    random.Random(f"shuffled/{trainer_state.global_step}/{known}").shuffle(known)
    return [None if value is None else known.pop() for value in reward]


def main() -> None:
    parser = argparse.ArgumentParser(description="GRPO of the control experiment.")
    parser.add_argument("model", type=Path)
    parser.add_argument("environment", type=Path)
    parser.add_argument("out", type=Path)
    for name, default in (("steps", 40), ("groups", 8), ("group", 4), ("warmup", 4), ("seed", 0), ("save", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=5e-6)
    parser.add_argument("--reward", choices=("state", "shuffled"), default="state")
    given = parser.parse_args()
    checkpoints = given.out.with_name(f"{given.out.name}.trl")
    checkpoints.mkdir(parents=True, exist_ok=True)
    lock = (checkpoints / "lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)  # a process may outlive the experiment that started it
    if given.out.exists():
        return
    last = find_last_checkpoint(checkpoints, print)
    torch.manual_seed(given.seed)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    share_prefix(model)
    environment = event_loop.run(open_environment(json.loads(given.environment.read_text())))
    done = int(last.name.partition("-")[2]) if last else 0
    log = EpisodeLog(checkpoints / "episodes.jsonl", done)
    began = time.monotonic()

    def keep(trajectory: Trajectory) -> None:
        log.add(trainer.state.global_step + 1, trajectory)

    arguments = GRPOConfig(
        output_dir=str(checkpoints),
        max_steps=given.steps,
        per_device_train_batch_size=given.groups * given.group // PARTS,
        gradient_accumulation_steps=PARTS,
        num_generations=given.group,
        max_completion_length=EPISODE_TOKENS,
        learning_rate=given.rate,
        warmup_steps=given.warmup,
        lr_scheduler_type="constant_with_warmup",
        temperature=1.0,
        beta=0.0,
        loss_type="dapo",
        bf16=True,  # weights and optimizer stay float32; only products are computed in bfloat16
        use_cpu=device() == "cpu",
        gradient_checkpointing=False,
        report_to=[],
        save_steps=given.save,
        save_total_limit=1,
        logging_steps=1,
        seed=given.seed,
        disable_tqdm=True,
    )
    kinds = {task.id: task.tags[0] for task in environment.tasks}
    trainer = ControlTrainer(
        model=model,
        reward_funcs=[environment_reward if given.reward == "state" else shuffled_reward],
        args=arguments,
        train_dataset=Dataset.from_list(task_rows(environment)),
        processing_class=tokenizer,
        rollout_func=rollout_func(
            environment, seed=given.seed, max_turn_tokens=TURN_TOKENS, sample=PrefixSampler(), on_trajectory=keep
        ),
        callbacks=[make_order_callback()],
    )
    trainer.train(resume_from_checkpoint=str(last) if last else None)
    event_loop.run(environment.close())
    draft = given.out.with_name(f".{given.out.name}.{os.getpid()}")
    trainer.model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    episodes = [{**row, "kind": kinds[row["task"]]} for row in log.rows()]
    told = {"log": trainer.state.log_history, "episodes": episodes, "seconds_of_last_start": time.monotonic() - began}
    write(given.out.with_name(f"{given.out.name}.json"), told)
    draft.rename(given.out)
    shutil.rmtree(checkpoints)  # 1.6 GB each, which nothing reads any more


if __name__ == "__main__":
    main()
