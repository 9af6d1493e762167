"""Runs inside TRL's environment: GRPOTrainer plays several packs with tasks of format 2 for three steps, one pass over six tasks.

Every second episode gets planned replies, by what the user said last; the others are sampled from the model.

python new_tasks_probe.py MODEL PLAN.json OUT.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from grpo_watch import Watched, settings
from transformers import AutoModelForCausalLM, AutoTokenizer

from simia import event_loop
from simia.envs.opening import open_environment
from simia.trainers.trl import environment_reward, rollout_func, sample_with_model, task_rows

USER = "<|im_start|>user\n"
MOST = 48  # tokens of a message that the model samples

model_path, plan_path, out = sys.argv[1:]
plan = json.loads(Path(plan_path).read_text())
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(model_path)
environment = event_loop.run(open_environment(plan["stage"]))
sampled: list[list[tuple[list[int], list[int]]]] = []
episodes: list[list[dict[str, Any]]] = []
rolled: list[dict[str, Any]] = []
planned: list[list[int]] = []


def write_reply(trainer: Any, context: list[int]) -> tuple[list[int], list[float]]:
    """The planned reply, and how likely the model finds it."""
    last = tokenizer.decode(context).rpartition(USER)[2]
    text = next(reply for words, reply in plan["replies"] if words in last)
    ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    with torch.no_grad():
        logits = trainer.model(input_ids=torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
    planned.append(context + ids)
    return ids, logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0].tolist()


def sample(trainer: Any, contexts: list[list[int]], most: int) -> Any:
    opening = not sampled[-1]
    plans = [
        number % 2 == 0 if opening else any(context[: len(before)] == before for before in planned)
        for number, context in enumerate(contexts)
    ]
    own = [context for context, is_planned in zip(contexts, plans, strict=True) if not is_planned]
    drawn = iter(sample_with_model(trainer, own, min(most, MOST)) if own else ())
    replies = [
        write_reply(trainer, context) if is_planned else next(drawn)
        for context, is_planned in zip(contexts, plans, strict=True)
    ]
    sampled[-1] += [(context, ids) for context, (ids, _) in zip(contexts, replies, strict=True)]
    return replies


play = rollout_func(
    environment,
    sample=sample,
    on_trajectory=lambda trajectory: episodes[-1].append(trajectory.model_dump(mode="json")),
)


def kept(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
    sampled.append([])
    episodes.append([])
    rolled.append(play(prompts, trainer))
    return rolled[-1]


trainer = Watched(
    model=AutoModelForCausalLM.from_pretrained(model_path),
    reward_funcs=[environment_reward],
    args=settings(out, max_completion_length=1024),
    train_dataset=Dataset.from_list(task_rows(environment)),
    processing_class=tokenizer,
    rollout_func=kept,
)
trainer.train()
event_loop.run(environment.close())
told = {
    "tasks": [task.id for task in environment.tasks],
    "losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
    "batches": trainer.batches,
    "prompts": [[tokenizer.decode(ids) for ids in rows["prompt_ids"]] for rows in rolled],
    "completions": [[tokenizer.decode(ids) for ids in rows["completion_ids"]] for rows in rolled],
    "between": [
        [
            tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if not m])
            for ids, mask in zip(rows["completion_ids"], rows["env_mask"], strict=True)
        ]
        for rows in rolled
    ],
    "rolled": rolled,
    "sampled": sampled,
    "episodes": episodes,
}
Path(out).write_text(json.dumps(told))
