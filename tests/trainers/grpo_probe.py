"""Runs inside a trainer's environment: TRL's GRPOTrainer plays a pack's episodes for three steps on a CPU, and what it trains on.

python grpo_probe.py MODEL PACK OUT.json
"""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from grpo_watch import Watched, settings
from outage import Unsteady
from transformers import AutoModelForCausalLM, AutoTokenizer

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.users import ScriptedUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.trainers.trl import environment_reward, rollout_func, sample_with_model, task_rows

LOST_AT_RESET = 11  # the episode that gets no world: one of the second step
LOST_LATER = range(17, 25)  # the first of these that calls a tool loses its world: they are those of the third step

model_path, pack_path, out = sys.argv[1:]
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(model_path)
model = AutoModelForCausalLM.from_pretrained(model_path)
pack = Pack.load(pack_path)
before = {name: value.detach().clone() for name, value in model.named_parameters()}
unsteady = Unsteady(ExecutableBackend(pack), refused={LOST_AT_RESET}, lost=LOST_LATER, most=1)
environment = Environment(pack, unsteady, backend_name="executable", user=ScriptedUser)  # type: ignore[arg-type]
sampled: list[list[tuple[list[int], list[int]]]] = []
episodes: list[list[dict[str, Any]]] = []
gaps: list[float] = []


def sample(trainer: Any, contexts: list[list[int]], most: int) -> Any:
    """The library's own sampler, with an account of what it was given, drew, and how likely the model finds that by itself."""
    replies = sample_with_model(trainer, contexts, most)
    for context, (ids, logprobs) in zip(contexts, replies, strict=True):
        sampled[-1].append((context, ids))
        with torch.no_grad():
            logits = trainer.model(input_ids=torch.tensor([context + ids])).logits[0, len(context) - 1 : -1]
        own = logits.log_softmax(-1).gather(1, torch.tensor(ids)[:, None])[:, 0]
        gaps.append(float((own - torch.tensor(logprobs)).abs().max()))
    return replies


play = rollout_func(
    environment,
    at_once=6,
    sample=sample,
    on_trajectory=lambda trajectory: episodes[-1].append(trajectory.model_dump(mode="json")),
)
rolled: list[dict[str, Any]] = []


def kept(prompts: list[str], trainer: Any) -> dict[str, list[Any]]:
    sampled.append([])
    episodes.append([])
    rolled.append(play(prompts, trainer))
    return rolled[-1]


trainer = Watched(
    model=model,
    reward_funcs=[environment_reward],
    args=settings(out, max_completion_length=256),
    train_dataset=Dataset.from_list(task_rows(environment)),
    processing_class=tokenizer,
    rollout_func=kept,
)
trainer.train()
event_loop.run(environment.close())


def turns(ids: list[int]) -> list[str]:
    """The policy's ids as one text for each of its messages, read anew from where its end tokens stand."""
    ends = [at + 1 for at, token in enumerate(ids) if token == tokenizer.eos_token_id]
    return [tokenizer.decode(ids[a:b], skip_special_tokens=True) for a, b in itertools.pairwise([0, *ends])]


changed = [n for n, value in trainer.model.named_parameters() if not torch.equal(value.detach(), before[n])]
told = {
    "steps": trainer.state.global_step,
    "losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
    "logged": [row["rewards/environment_reward/mean"] for row in trainer.state.log_history if "loss" in row],
    "finite": all(bool(value.isfinite().all()) for value in trainer.model.parameters()),
    "changed": [len(changed), len(before)],
    "batches": trainer.batches,
    "policy": [
        [
            turns([i for i, m in zip(ids, mask, strict=True) if m])
            for ids, mask in zip(r["completion_ids"], r["env_mask"], strict=True)
        ]
        for r in rolled
    ],
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
    "gap": max(gaps),
}
Path(out).write_text(json.dumps(told))
