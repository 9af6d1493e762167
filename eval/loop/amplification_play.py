"""Play a split of tasks greedily, in float32. Runs in TRL's environment.

    python amplification_play.py MODEL PACK SPLIT OUT.json

Episodes are played together, turn by turn. Ended episodes are stored in OUT.json.part, so that a restarted run plays only the others.
The common prefix of all contexts is computed once, and keys and values of each episode are kept from turn to turn.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from control_play import read_part
from prefix_sampler import PrefixSampler
from shared_prefix import share_prefix
from student import ERRORS, TURN_TOKENS, TURNS, write
from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found,unused-ignore]

from simia import event_loop
from simia.envs.environment import Environment, EpisodeLimits
from simia.envs.opening import open_environment
from simia.trainers.tokens import ChatText, TokenRow, find_end_ids

TOGETHER = 60
Sample = Callable[[Any, list[list[int]], int], list[tuple[list[int], list[float]]]]
"""(owner of the model, contexts, most tokens) → tokens of each reply with their log-probabilities."""


class GreedyPlayer:
    """Plays tasks together, turn by turn, so that the batches do not depend on time."""

    def __init__(self, model: Any, tokenizer: Any, environment: Environment) -> None:
        share_prefix(model)
        self._text = ChatText(tokenizer)
        self._environment = environment
        self._owner = SimpleNamespace(
            model=model, eos_token_ids=find_end_ids(tokenizer), state=SimpleNamespace(global_step=0),
            accelerator=SimpleNamespace(autocast=contextlib.nullcontext), args=SimpleNamespace(temperature=1.0),
        )  # fmt: skip

    def play(self, tasks: list[Any], sample: Sample | None = None) -> list[TokenRow]:
        """Play the tasks to their ends and return their episodes in this order. `sample`: None for a greedy `PrefixSampler`."""
        sample = sample or PrefixSampler(greedy=True)
        rows = event_loop.run(self._open(tasks))
        live = [row for row in rows if row.episode.end is None]
        while live:
            replies = sample(self._owner, [row.context for row in live], TURN_TOKENS)
            event_loop.run(self._act(live, [ids for ids, _ in replies]))
            live = [row for row in live if row.episode.end is None]
        return rows

    async def _open(self, tasks: list[Any]) -> list[TokenRow]:
        episodes = await asyncio.gather(*(self._environment.reset(task, seed=0) for task in tasks))
        return list(await asyncio.gather(*(self._text.open_row(episode) for episode in episodes)))

    async def _act(self, rows: list[TokenRow], replies: list[list[int]]) -> None:
        await asyncio.gather(*(self._text.act(row, ids) for row, ids in zip(rows, replies, strict=True)))


def describe_episode(row: TokenRow) -> dict[str, Any]:
    """Return reward, ending and calls of an ended episode. Exits if it was aborted, which is not a failure of the model."""
    t = row.episode.trajectory
    if t.reward is None or t.end.kind == "aborted":
        raise SystemExit(f"{row.episode.task.id} was aborted ({t.end.code}): start again")
    calls = [[call.name, call.arguments] for _, _, call in t.calls()]
    return {
        "task": row.episode.task.id,
        "reward": t.reward.value,
        "end": t.end.code,
        "calls": calls,
        "tokens": sum(row.mask),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Play a split greedily.")
    parser.add_argument("model", type=Path)
    parser.add_argument("pack", type=Path)
    parser.add_argument("split")
    parser.add_argument("out", type=Path)
    parser.add_argument("--together", type=int, default=TOGETHER, help="episodes in a batch")
    parser.add_argument("--take", type=int, help="play only so many tasks of the split")
    given = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    model = AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
    limits = EpisodeLimits(turns=TURNS, errors=ERRORS)
    environment = event_loop.run(
        open_environment(str(given.pack), backend="executable", user="scripted", episode=limits)
    )
    tasks = [task for task in environment.tasks if task.split == given.split][: given.take]
    part = given.out.with_name(f"{given.out.name}.part")
    played, began = read_part(part), time.monotonic()
    player = GreedyPlayer(model, tokenizer, environment)
    wanted = [task for task in tasks if task.id not in played]
    for start in range(0, len(wanted), given.together):
        rows = [describe_episode(row) for row in player.play(wanted[start : start + given.together])]
        with part.open("a") as out:
            out.write("".join(json.dumps(row) + "\n" for row in rows))
        played |= {row["task"]: row for row in rows}
        print(f"{len(played)} of {len(tasks)} played, {time.monotonic() - began:.0f} s", flush=True)
    event_loop.run(environment.close())
    write(given.out, {"tasks": {task.id: played[task.id] for task in tasks}})
    part.unlink(missing_ok=True)
    print(
        f"{given.out.name}: {sum(row['reward'] for row in played.values()) / len(tasks):.3f} of {len(tasks)}",
        flush=True,
    )


if __name__ == "__main__":
    main()
