"""Play a split of tasks greedily, in float32, with the functions that GRPO uses for its rollouts. Runs in TRL's environment.

    python control_play.py MODEL ENVIRONMENT.json SPLIT OUT.json

Every ended episode is stored in OUT.json.part, so a restarted run plays only the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from prefix_sampler import PrefixSampler
from shared_prefix import share_prefix
from student import TURN_TOKENS, write
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.opening import open_environment
from simia.trainers.tokens import find_end_ids
from simia.trainers.trl import rollout_func
from simia.trajectory import Trajectory

EPISODE_TOKENS = 400  # as in training
TOGETHER = 50


def main() -> None:
    parser = argparse.ArgumentParser(description="Play a split greedily.")
    parser.add_argument("model", type=Path)
    parser.add_argument("environment", type=Path)
    parser.add_argument("split")
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    share_prefix(model)
    settings = json.loads(given.environment.read_text()) | {"split": given.split}
    environment = event_loop.run(open_environment(settings))
    kinds = {task.id: task.tags[0] for task in environment.tasks}
    part = given.out.with_name(f"{given.out.name}.part")
    played = read_part(part)

    def keep(t: Trajectory) -> None:
        if t.reward is None or t.end.kind == "aborted":
            raise SystemExit(f"{t.task_id} was aborted ({t.end.code}): start again")
        calls = [[call.name, call.arguments] for _, _, call in t.calls()]
        row = {"task": t.task_id, "reward": t.reward.value, "kind": kinds[t.task_id], "end": t.end.code, "calls": calls}
        played[t.task_id] = row
        with part.open("a") as out:
            out.write(json.dumps(row) + "\n")

    player = SimpleNamespace(
        args=SimpleNamespace(max_completion_length=EPISODE_TOKENS, temperature=1.0), use_vllm=False, model=model,
        processing_class=tokenizer, eos_token_ids=find_end_ids(tokenizer), state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(process_index=0, autocast=contextlib.nullcontext),
    )  # fmt: skip
    roll = rollout_func(environment, max_turn_tokens=TURN_TOKENS, sample=PrefixSampler(greedy=True), on_trajectory=keep)
    wanted = [name for name in kinds if name not in played]
    for start in range(0, len(wanted), TOGETHER):
        player.state.global_step = start  # the sampler forgets the keys of earlier episodes
        roll(wanted[start : start + TOGETHER], player)
        print(f"{len(played)} of {len(kinds)} played", flush=True)
    event_loop.run(environment.close())
    mean = sum(row["reward"] for row in played.values()) / len(played)
    write(given.out, {"mean": mean, "tasks": {name: played[name] for name in kinds}})
    part.unlink(missing_ok=True)
    print(f"{given.out.name}: {mean:.3f} of {len(played)}", flush=True)


def read_part(path: Path) -> dict[str, dict[str, Any]]:
    """Rows of an interrupted run; its last line may be incomplete."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("}")]
    return {row["task"]: row for row in rows}


if __name__ == "__main__":
    main()
