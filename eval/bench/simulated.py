"""Measure the cost of a simulated step without the model's own time, and the share of its prompts that a prefix cache can serve.

    python eval/bench/simulated.py                  # 256 episodes of customer_service at 1 s a reply, half a minute
    python eval/bench/simulated.py --latency 0.2

The model is a sleep that answers every call: the remaining time is simia's (prompts, checks, ledger, sharing, journal in memory). The
bound is the time of the sleeps alone. Each episode plays its task's solution, in a world of its own.

Prints a table; the last line is one JSON object; the exit code is 1 where a step costs 3 ms or more, less than 60 % of the prompts
can be cached, or 128 episodes do not run at the endpoint's speed (1.5 times the bound).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os.path
import resource
import sys
import time

from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Reply, Request
from simia.reward import Reward
from simia.task import Task
from simia.trajectory import Trajectory

STEP_MS, CACHED, PACE = 3.0, 0.6, 1.5


class Sleeper:
    """Answers every call after a while."""

    alias, model, structured = "sleeper", "sleeper", False

    def __init__(self, latency: float) -> None:
        self.latency, self.prompts = latency, list[str]()

    async def start(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        text = "".join(str(message["content"]) for message in request.messages)
        self.prompts.append(text)
        await asyncio.sleep(self.latency)
        calls = text.rpartition("# Calls to answer now")[2].strip().splitlines()
        answers = [
            {"call": n, "outcome": "result", "content": {"ok": n}, "changes": []} for n, _ in enumerate(calls, start=1)
        ]
        return Reply(text=json.dumps({"answers": answers}))

    async def close(self) -> None: ...


class NoJudge:
    async def score(self, trajectory: Trajectory, task: Task) -> Reward:
        return Reward(value=0.0)


async def measure(episodes: int, latency: float) -> dict[str, float]:
    model = Sleeper(latency)
    limits = EngineLimits(concurrency=episodes, start=episodes)
    async with Engine(model, MemoryJournal(), limits) as engine:
        environment = await open_environment(
            "customer_service", backend="simulated", user=ScriptedUser, engine=engine, scorer=NoJudge()
        )
        tasks = [task for task in environment.tasks if task.actions]
        chosen = [tasks[n % len(tasks)] for n in range(episodes)]
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()

        async def one(number: int, task: Task) -> tuple[int, list[str]]:
            episode = await environment.reset(task, seed=number)
            await play(episode, ReferenceAgent(task))
            return sum(1 for message in episode.messages if message.calls), []

        turns = [steps for steps, _ in await asyncio.gather(*(one(n, task) for n, task in enumerate(chosen)))]
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "episodes": episodes, "steps": sum(turns), "wall_s": wall, "bound_s": max(turns) * latency,
        "step_ms": cpu / sum(turns) * 1e3, "cached": cached(model.prompts),
    }  # fmt: skip


def cached(prompts: list[str]) -> float:
    """Return the share of all characters that belong to a prefix which a request has in common with another one."""
    seen: list[str] = []
    shared = total = 0
    for prompt in sorted(prompts):  # in sorted order, neighbours share the longest prefixes
        if seen:
            shared += len(os.path.commonprefix([seen[-1], prompt]))  # noqa: RUF071 - of text, not of paths
        seen.append(prompt)
        total += len(prompt)
    return shared / total


async def main(episodes: int, latency: float) -> int:
    rows = [await measure(count, latency) for count in (128, episodes)]
    for row in rows:
        print(
            f"{row['episodes']:4.0f} episodes, {row['steps']:5.0f} steps: {row['wall_s']:6.2f} s, the endpoint alone {row['bound_s']:6.2f} s "
            f"({row['wall_s'] / row['bound_s']:.2f} times); {row['step_ms']:.2f} ms a step of ours; cacheable {row['cached']:.0%}"
        )
    print(json.dumps(rows[-1]))
    last = rows[-1]
    good = last["step_ms"] < STEP_MS and last["cached"] >= CACHED and rows[0]["wall_s"] < PACE * rows[0]["bound_s"]
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=256)
    parser.add_argument("--latency", type=float, default=1.0)
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.episodes, given.latency)))
