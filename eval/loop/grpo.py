"""A short GRPO of the student in one world, executable or simulated. Runs in TRL's environment.

    python grpo.py MODEL STAGE.json OUT --steps 6 --groups 4 --group 4 --seed 0

STAGE.json holds the arguments of `open_environment`: pack, back end, models. The trained weights are written to OUT, the figures of
each step (rewards, endings, tokens) to OUT.json.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from datasets import Dataset  # type: ignore[import-not-found,unused-ignore]
from student import TURN_TOKENS, device, write
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]
from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.opening import open_environment
from simia.trainers.trl import environment_reward, rollout_func, task_rows
from simia.trajectory import Trajectory

EPISODE_TOKENS = 400


def main() -> None:
    parser = argparse.ArgumentParser(description="A short GRPO.")
    parser.add_argument("model", type=Path)
    parser.add_argument("stage", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--store", type=Path, help="where a simulator's replies are kept")
    for name, default in (("steps", 6), ("groups", 4), ("group", 4), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--rate", type=float, default=2e-5)
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32)
    environment = event_loop.run(open_environment(json.loads(given.stage.read_text()), store=given.store))
    episodes: list[dict[str, Any]] = []

    def seen(t: Trajectory) -> None:
        reward = t.reward.value if t.reward else None
        episodes.append({"task": t.task_id, "reward": reward, "end": t.end.code, "issues": [i.code for i in t.issues]})

    cpu = device() == "cpu"
    batch = given.groups * given.group
    arguments = GRPOConfig(
        output_dir=str(given.out.with_name(f"{given.out.name}.trl")),
        max_steps=given.steps,
        per_device_train_batch_size=given.group,  # logits over the vocabulary take most of the memory
        gradient_accumulation_steps=given.groups,
        num_generations=given.group,
        max_completion_length=EPISODE_TOKENS,
        learning_rate=given.rate,
        lr_scheduler_type="constant",
        temperature=1.0,
        beta=0.0,
        bf16=True,
        use_cpu=cpu,
        gradient_checkpointing=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        seed=given.seed,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[environment_reward],
        args=arguments,
        train_dataset=Dataset.from_list(task_rows(environment)),
        processing_class=tokenizer,
        rollout_func=rollout_func(environment, seed=given.seed, max_turn_tokens=TURN_TOKENS, on_trajectory=seen),
    )
    trainer.train()
    event_loop.run(environment.close())
    steps = [episodes[i : i + batch] for i in range(0, len(episodes), batch)]
    means = [mean([e["reward"] for e in step]) for step in steps]
    mixed = [
        sum(len({e["reward"] for e in step if e["task"] == t} - {None}) > 1 for t in {e["task"] for e in step})
        for step in steps
    ]
    draft = given.out.with_name(f".{given.out.name}.{os.getpid()}")
    trainer.model.save_pretrained(
        draft
    )  # in float32: in bfloat16 most weights would be rounded back to where they began
    tokenizer.save_pretrained(draft)
    told = {"rewards": means, "mixed_groups": mixed, "log": trainer.state.log_history, "episodes": episodes}
    write(given.out.with_name(f"{given.out.name}.json"), told)
    draft.rename(given.out)
    print(f"{given.out.name}: rewards by step {means}, groups with a difference {mixed}", flush=True)


def mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 4) if known else None


if __name__ == "__main__":
    main()
