"""Check that episodes played together equal episodes played alone, for any trained model. Runs in TRL's environment.

    python amplification_check.py MODEL PACK SPLIT COUNT OUT.json

Plays the first tasks of a split together by `PrefixSampler` and one by one by the model's own `generate`, and compares every token.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from amplification_play import GreedyPlayer
from student import ERRORS, TURNS, write
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.environment import EpisodeLimits
from simia.envs.opening import open_environment
from simia.trainers.tokens import TokenRow


def describe(row: TokenRow) -> dict[str, Any]:
    reward = row.episode.reward
    return {
        "tokens": row.completion_ids,
        "reward": reward.value if reward else None,
        "turns": row.turns,
        "lengths": sum(row.mask),
    }


def generate_alone(owner: Any, contexts: list[list[int]], most: int) -> list[tuple[list[int], list[float]]]:
    """Sample the likeliest tokens after each context, without a common prefix or kept keys."""
    replies = []
    for context in contexts:
        ids = torch.tensor([context])
        found = owner.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=most, eos_token_id=list(owner.eos_token_ids)
        )  # fmt: skip
        replies.append((found[0, len(context) :].tolist(), []))
    return replies


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare episodes played together with episodes played alone.")
    for name in ("model", "pack"):
        parser.add_argument(name, type=Path)
    parser.add_argument("split")
    parser.add_argument("count", type=int)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    limits = EpisodeLimits(turns=TURNS, errors=ERRORS)
    environment = event_loop.run(
        open_environment(str(given.pack), backend="executable", user="scripted", episode=limits)
    )
    whole = [task for task in environment.tasks if task.split == given.split]
    tasks = whole[:: max(1, len(whole) // given.count)][: given.count]
    player = GreedyPlayer(model, tokenizer, environment)
    began = time.process_time()
    together = [describe(row) for row in player.play(tasks)]
    middle = time.process_time()
    alone = [describe(row) for task in tasks for row in player.play([task], sample=generate_alone)]
    seconds = {"together": middle - began, "alone": time.process_time() - middle}
    event_loop.run(environment.close())
    pairs = list(zip(together, alone, strict=True))
    told = {
        "episodes": len(tasks),
        "same_tokens": sum(a["tokens"] == b["tokens"] for a, b in pairs),
        "same_rewards": sum(a["reward"] == b["reward"] for a, b in pairs),
        "solved": sum(a["reward"] == 1 for a in together),
        "turns": [a["turns"] for a in together],
        "generated": sum(a["lengths"] for a in together),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
    }
    write(given.out, told)
    print(told)


if __name__ == "__main__":
    main()
