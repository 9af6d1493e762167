"""GRPO with TRL on a pack, on one page: an environment, TRL's trainer, and nothing patched between them.

    python -m simia.venvs trl       # once: prints the PYTHON of an environment with TRL; then
    PYTHON -m pip install .         # in a clone: simia is on no package index yet (docs/install.md)
    PYTHON examples/grpo.py Qwen/Qwen3-0.6B customer_service executable
    PYTHON examples/grpo.py Qwen/Qwen3-0.6B customer_service simulated     # no code of the pack is run: a model plays its tools
    PYTHON -m torch.distributed.run --standalone --nproc-per-node 8 examples/grpo.py ...       # on 8 GPUs

The policy plays whole conversations, tool calls and a user among them. What it sampled is what is trained, token for token; what tools
and user say has mask 0. A simulated world asks the endpoint of OPENAI_API_KEY, or else the small local model.
"""

import os
import sys
from pathlib import Path

import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from simia import event_loop
from simia.envs.opening import open_environment
from simia.trainers.trl import environment_reward, rollout_func, task_rows


def main(model: str, pack: str, backend: str, out: str, steps: int) -> None:
    # 1. The environment: a pack, and by one word who answers the tools' calls. Replies that were paid for are kept in `store`.
    llm = {"kind": "openai", "model": "gpt-5-mini"} if os.environ.get("OPENAI_API_KEY") else {"kind": "embedded"}
    stage = {"pack": pack, "backend": backend, "user": "scripted", "llm": llm}
    environment = event_loop.run(open_environment(stage, store=Path(out) / "replies"))

    # 2. The trainer: TRL's own. A row of the data set is a task's id; `rollout_func` plays it; its reward comes with it.
    trainer = GRPOTrainer(
        model=model,
        train_dataset=Dataset.from_list(task_rows(environment)),
        rollout_func=rollout_func(
            environment, max_turn_tokens=256, on_trajectory=lambda t: print(t.task_id, t.reward.value)
        ),
        reward_funcs=[environment_reward],
        args=GRPOConfig(
            output_dir=out,
            max_steps=steps,
            num_generations=4,  # a group: episodes of one task, which share the simulator's answers
            per_device_train_batch_size=8,
            max_completion_length=2048,  # of an episode, the environment's words included
            learning_rate=1e-6,
            logging_steps=1,
            report_to=[],
            bf16=torch.cuda.is_available(),
            use_cpu=not torch.cuda.is_available(),
        ),
    )
    trainer.train()
    trainer.save_model()
    event_loop.run(environment.close())


if __name__ == "__main__":
    given = [*sys.argv[1:], *["Qwen/Qwen3-0.6B", "customer_service", "executable", "grpo", "64"][len(sys.argv) - 1 :]]
    main(*given[:4], steps=int(given[4]))
