"""Runs inside a trainer's environment: TRL's GRPOTrainer plays a pack's episodes for three steps on a CPU, and what it trains on.

python grpo_probe.py MODEL PACK OUT.json
"""

import itertools
import json
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from simia import sync
from simia.environment import Environment
from simia.errors import Aborted, Code
from simia.pack import Pack
from simia.trainers.trl import environment_reward, rollout_func, sample_with_model, task_rows
from simia.users import ScriptedUser
from simia.worlds.executable import ExecutableBackend

LOST_AT_RESET, LOST_LATER = 11, 21  # which episodes lose their world: one in the second step, one in the third


class Unsteady:
    """A back end with a world that cannot be had and one that is lost at its first call."""

    def __init__(self, backend: ExecutableBackend) -> None:
        self._backend, self._numbers = backend, itertools.count(1)

    async def open(self, task: Any, **how: Any) -> Any:
        number = next(self._numbers)
        if number == LOST_AT_RESET:
            raise Aborted(Code.WORKER_LOST, "on purpose")
        world = await self._backend.open(task, **how)
        return Lost(world) if number == LOST_LATER else world

    async def close(self) -> None:
        await self._backend.close()


@dataclass
class Lost:
    world: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    async def call(self, *_: Any, **__: Any) -> Any:
        raise Aborted(Code.WORKER_LOST, "on purpose")


def taught(model: Any, tokenizer: Any, pack: Pack) -> None:
    """Over-fit on the pack's tasks solved well and badly, so that samples differ in their reward."""
    source, rows = random.Random(0), []
    tools = [{"type": "function", "function": tool.flat()} for tool in pack.tools]
    for task, wrong in itertools.product(pack.tasks, (False, True)):
        chat: list[dict[str, Any]] = [{"role": "system", "content": pack.policy}]
        for turn in task.script:
            if turn.calls:
                action = turn.calls[0]
                arguments = {**action.arguments, "on": action.arguments["on"] != wrong}
                call = {"type": "function", "function": {"name": action.name, "arguments": arguments}}
                chat += [{"role": "assistant", "content": "", "tool_calls": [call]}]
                chat += [{"role": "tool", "content": json.dumps(arguments, separators=(",", ":"))}]
            elif turn.user is not None:
                chat.append({"role": "user", "content": turn.user})
            else:
                chat.append({"role": "assistant", "content": turn.agent})
        rows.append(tokenizer.apply_chat_template(chat, tools=tools, return_dict=True)["input_ids"])
    width = max(map(len, rows))
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (width - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (width - len(row)) for row in rows])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(TAUGHT):
        some = source.sample(range(len(rows)), 4)
        model(input_ids=ids[some], labels=labels[some]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class Watched(GRPOTrainer):
    """Keeps what it trains on, as the trainer itself made it."""

    batches: list[dict[str, Any]] = []  # noqa: RUF012

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        out = super()._generate_and_score_completions(inputs)
        loss_mask = out["completion_mask"] * out["tool_mask"]
        self.batches.append(
            {
                "prompts": [i[m.bool()].tolist() for i, m in zip(out["prompt_ids"], out["prompt_mask"], strict=True)],
                "completions": [
                    i[m.bool()].tolist() for i, m in zip(out["completion_ids"], out["completion_mask"], strict=True)
                ],
                "trained": [
                    [(at, int(i[at])) for at in m.nonzero().flatten().tolist()]
                    for i, m in zip(out["completion_ids"], loss_mask, strict=True)
                ],
                "advantages": out["advantages"].tolist(),
            }
        )
        return out


TAUGHT = 200
model_path, pack_path, out = sys.argv[1:]
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(model_path)
model = AutoModelForCausalLM.from_pretrained(model_path)
pack = Pack.load(pack_path)
taught(model, tokenizer, pack)
before = {name: value.detach().clone() for name, value in model.named_parameters()}
environment = Environment(pack, Unsteady(ExecutableBackend(pack)), backend_name="executable", user=ScriptedUser)  # type: ignore[arg-type]
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


arguments = GRPOConfig(
    output_dir=out + ".d",
    max_steps=3,
    per_device_train_batch_size=8,
    num_generations=4,
    max_completion_length=256,
    learning_rate=2e-4,
    temperature=1.0,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    logging_steps=1,
    gradient_checkpointing=False,
    bf16=False,
    seed=0,
)
trainer = Watched(
    model=model,
    reward_funcs=[environment_reward],
    args=arguments,
    train_dataset=Dataset.from_list(task_rows(environment)),
    processing_class=tokenizer,
    rollout_func=kept,
)
trainer.train()
sync.run(environment.close())


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
