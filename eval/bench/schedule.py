"""Measure the time of a batch of episodes when some replies of the simulator are slow: TRL's rollout and RAGEN's manager, and as the
lower bound a loop for each episode.

    python eval/bench/schedule.py                  # 156 episodes, 0.6 s a reply, 5 % of them 6 s: two minutes

The policy answers at once and plays its task's solution; the simulator is a sleep. `each` plays every episode in a coroutine of its
own, which is the bound. `rounds` waits in each round for the slowest reply, as a batch sampler without a schedule does. `ragen` is our
manager over the tests' stand-in for RAGEN.

Prints a table; the last line is one JSON object; the exit code is 1 where TRL or RAGEN takes more than 1.15 times the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from simia import event_loop
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.users import NoUser
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Reply, Request
from simia.reward import Reward
from simia.task import Task
from simia.trainers.tokens import ChatText, TokenRow
from simia.trainers.trl.rollout import Rollout
from simia.trajectory import Trajectory

ALLOWED, END, TURNS, GROUP = 1.15, 3, 8, 2
QUERY = re.compile(r"tea (\d+ \d+)")


class SlowAtTimes:
    """A simulator that answers after `usual` seconds, and with probability `share` after `slow` seconds. The delay depends only on the
    query, so that all ways of playing wait for the same replies."""

    alias, model, structured = "sleeper", "sleeper", False

    def __init__(self, usual: float, slow: float, share: float) -> None:
        self.usual, self.slow, self.share = usual, slow, share

    async def start(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        asked = QUERY.findall(str(request.messages[-1]["content"]))[-1]
        await asyncio.sleep(self.slow if random.Random(asked).random() < self.share else self.usual)
        return Reply(text='{"answers": [{"call": 1, "outcome": "result", "content": {"ok": 1}, "changes": []}]}')

    async def close(self) -> None: ...


class NoJudge:
    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        return Reward(value=0.0)


class Characters:
    """A tokenizer whose tokens are characters."""

    eos_token_id = END

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [END if char == "\x03" else ord(char) for char in text]}

    def decode(self, ids: list[int], skip_special_tokens: bool = False, **_: Any) -> str:
        return "".join("" if skip_special_tokens and i == END else chr(i) for i in ids)

    def apply_chat_template(self, rows: list[dict[str, Any]], tools: Any = None, **_: Any) -> str:
        parts = [f"by <tool_call>: {json.dumps(tools)}\n"] if tools else []
        for row in rows:
            calls = "".join(
                f"<tool_call>{json.dumps(call['function'])}</tool_call>" for call in row.get("tool_calls", ())
            )
            parts.append(f"{row['role']}: {row['content']}{calls}\x03\n")
        return "".join(parts) + "assistant: "


TOKENIZER = Characters()
TRAINER = SimpleNamespace(
    args=SimpleNamespace(max_completion_length=10**6),
    processing_class=TOKENIZER,
    eos_token_ids=[END],
    state=SimpleNamespace(global_step=0),
    accelerator=SimpleNamespace(process_index=0),
    model=SimpleNamespace(training=True),
)


def choose_reply(context: list[int]) -> list[int]:
    """Return the policy's next call. It differs for each task and turn, so that the simulator never gets the same query again."""
    opening = zlib.crc32(TOKENIZER.decode(context[: context.index(END, context.index(END) + 1)]).encode())
    call = {"name": "search_products", "arguments": {"query": f"tea {opening} {context.count(END)}"}}
    return [*TOKENIZER(f"<tool_call>{json.dumps(call)}</tool_call>")["input_ids"], END]


def answer_at_once(trainer: Any, contexts: list[list[int]], most: int) -> list[tuple[list[int], list[float]]]:
    replies = [choose_reply(context) for context in contexts]
    return [(ids, [0.0] * len(ids)) for ids in replies]


def play_each(environment: Environment, tasks: list[str]) -> None:
    """Play every episode in a coroutine of its own."""
    text = ChatText(TOKENIZER, [END])

    async def play(number: int, task: str) -> None:
        episode = await environment.reset(task, seed=0, group=task, name=f"each {number}")
        row = text.begin(episode)
        while episode.end is None:
            await text.act(row, choose_reply(row.context))
        await episode.close()

    event_loop.run_together(play(number, task) for number, task in enumerate(tasks))


def play_rounds(environment: Environment, tasks: list[str]) -> None:
    """Play round after round, each as long as its slowest reply."""
    text = ChatText(TOKENIZER, [END])
    episodes = event_loop.run_together(
        environment.reset(task, seed=0, group=task, name=f"rounds {number}") for number, task in enumerate(tasks)
    )
    live: list[TokenRow] = [text.begin(episode) for episode in episodes]
    while live:
        event_loop.run_together(text.act(row, choose_reply(row.context)) for row in live)
        live = [row for row in live if row.episode.end is None]
    event_loop.run_together(episode.close() for episode in episodes)


def play_trl(environment: Environment, tasks: list[str]) -> None:
    """Play as TRL's rollout function does."""
    Rollout(environment, TRAINER, answer_at_once, 0, None).run(tasks, len(tasks))


def play_ragen(environment: Environment, tasks: list[str]) -> None:
    """Play as RAGEN's proxy does; its first seeds are all tasks of the pack once."""
    sys.path.append(str(Path(__file__).parents[2]))
    import pytest

    from tests.trainers import ragen_standin

    pack = environment.pack.root
    assert pack is not None
    with pytest.MonkeyPatch.context() as patch:
        whole = ragen_standin.config(pack, groups=len(tasks) // GROUP, size=GROUP, rounds=TURNS)
        whole |= ragen_standin.ns({"seed": {"train": 10_000, "val": 123}, "trainer": {}})
        manager = ragen_standin.our_manager(patch)(whole)
        leases = [entry["env"].lease for entry in manager.envs]
        for entry in manager.envs:
            entry["env"].lease = SimpleNamespace(environment=environment, seed=0, close=lambda: None)
        text = ChatText(TOKENIZER, [END])
        running = manager.begin()
        while running:
            envs = [manager.envs[row["env_id"]]["env"] for row in running]
            rows = [env.row or env.opening(text, 10**6) for env in envs]
            said = [
                {"env_id": row["env_id"], "llm_response": "", "llm_raw_response": "", "actions": [""]}
                for row in running
            ]
            for each, row in zip(said, rows, strict=True):
                each["ids"] = choose_reply(row.context)
            running = manager.advance(said)
        states = manager.get_rollout_states()
        assert len(states) == len(tasks)
        assert all(entry["env"].turns == TURNS for entry in manager.envs)
        manager.close()
        for lease in leases:
            lease.close()


def measure(play: Callable[[Environment, list[str]], None], model: SlowAtTimes) -> tuple[float, int]:
    async def prepare() -> tuple[Engine, Environment]:
        engine = Engine(model, MemoryJournal(), EngineLimits(concurrency=1024, start=1024))
        opened = await open_environment(
            "customer_service", backend="simulated", user=NoUser, engine=engine, scorer=NoJudge(),
            episode={"turns": TURNS},
        )  # fmt: skip
        return engine, opened

    engine, environment = event_loop.run(prepare())
    tasks = [task.id for task in environment.tasks for _ in range(GROUP)]
    start = time.perf_counter()
    play(environment, tasks)
    seconds = time.perf_counter() - start
    event_loop.run(environment.close())
    engine.gate.close()
    return seconds, len(tasks)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--usual", type=float, default=0.6, help="seconds of a usual reply")
    parser.add_argument("--slow", type=float, default=6.0, help="seconds of a slow reply")
    parser.add_argument("--share", type=float, default=0.05, help="share of slow replies")
    given = parser.parse_args()
    measured = {
        play.__name__.removeprefix("play_"): measure(play, SlowAtTimes(given.usual, given.slow, given.share))
        for play in (play_each, play_trl, play_ragen, play_rounds)
    }
    seconds, episodes = {name: each for name, (each, _) in measured.items()}, measured["each"][1]
    bound = seconds["each"]
    print(f"{episodes} episodes of {TURNS} turns, {given.usual} s a reply, {given.share:.0%} of them {given.slow} s")
    for name, each in seconds.items():
        print(f"{name:8} {each:7.1f} s   {each / bound:5.2f} of the bound")
    ratios = {name: seconds[name] / bound for name in ("trl", "ragen", "rounds")}
    print(json.dumps({**ratios, "seconds": seconds}))
    return 0 if max(ratios["trl"], ratios["ragen"]) <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
