"""Measure the cost of a world that holds the state, without the model's own time, and the tokens of its prompts.

    python eval/bench/stateful.py                   # 256 and 1,024 episodes of customer_service at 1 s a reply, a minute
    python eval/bench/stateful.py --episodes 64 --latency 0.3

The model runs the pack's tools on the state in the prompt, once for each prompt before the clock starts; then it sleeps and gives that
reply. The remaining time is simia's: prompts, checks of changes, the pack's code in the sandbox, the evidence for the rules. The upper
bound is the time of the longest episode's sleeps, since all run at once. Each episode plays its task's solution, and must score 1.

Tokens are of the prompts of all solutions, with a state shown in whole and in part, of two packs.

The bounds are those of episodes.py: 1,024 episodes in 1.5 times the upper bound, 256 in 1.15 times, a pause of the event loop of 100 ms,
1 ms of CPU a call in the process. The CPU of the sandbox is printed beside it.

Prints tables; the last line is one JSON object; the exit code is 1 if an episode does not score 1, or a bound is missed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from eval.bench.episodes import ALLOWED, CPU_MS, PAUSE_MS, LoopWatch
from eval.simulator.code_simulator import CodeSimulator, cut_section
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.play.player import play
from simia.envs.users import ScriptedUser
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.types import Reply, Request
from simia.pack import Pack
from simia.quality.fast_tokens import estimate_text_tokens

PACKS = ("customer_service", "job_seeking")
WHOLE = 1_000_000  # tokens of a state


class RememberingSimulator(CodeSimulator):
    """Computes each prompt's answer once; later it gives it after `latency` seconds."""

    def __init__(self, pack: Pack) -> None:
        super().__init__(pack)
        self.known: dict[str, Reply] = {}
        self.computed = 0

    async def complete(self, request: Request, *, draw: str) -> Reply:
        prompt = str(request.messages[1]["content"])
        if prompt not in self.known:
            self.computed += 1
            self.known[prompt] = Reply(text=json.dumps({"answers": [{"call": 1, **self.answer(prompt)}]}))
        self.asked.append(request)
        await asyncio.sleep(self.latency)
        return self.known[prompt]


async def play_solutions(model: RememberingSimulator, count: int | None = None, **settings: Any) -> dict[str, float]:
    """Play `count` episodes at once, of the tasks in turn; None: each task once, one after the other."""
    limits = EngineLimits(concurrency=count or 1, start=count or 1)
    async with Engine(model, MemoryJournal(), limits) as engine:
        how = {"knowledge": "code", "reward": "rules", "engine": engine, **settings}
        environment = await open_environment(model.pack, backend="simulated", user=ScriptedUser, **how)
        async with environment:
            tasks = [task for task in environment.tasks if task.actions]
            chosen = tasks if count is None else [tasks[n % len(tasks)] for n in range(count)]
            before, sandbox = resource.getrusage(resource.RUSAGE_SELF), measure_descendants()
            start = time.perf_counter()

            async def one(number: int) -> tuple[int, float]:
                trajectory = await play(
                    await environment.reset(chosen[number], seed=0, group=str(number)), ReferenceAgent(chosen[number])
                )
                value = trajectory.reward.value if trajectory.reward else None
                return sum(len(message.calls) for message in trajectory.messages), value or 0.0

            places, watch = range(len(chosen)), LoopWatch()
            watching = asyncio.create_task(watch.watch())
            rows = [await one(n) for n in places] if count is None else await asyncio.gather(*map(one, places))
            wall = time.perf_counter() - start
            watching.cancel()
            after, theirs = resource.getrusage(resource.RUSAGE_SELF), measure_descendants() - sandbox
    steps = sum(calls for calls, _ in rows)
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "episodes": len(rows), "steps": steps, "longest": max(calls for calls, _ in rows), "wall_s": wall,
        "pause_ms": watch.longest * 1e3, "pause_cpu_ms": watch.longest_cpu * 1e3,
        "step_ms": own / steps * 1e3, "sandbox_ms": theirs / steps * 1e3, "solved": sum(value == 1.0 for _, value in rows),
    }  # fmt: skip


def measure_descendants() -> float:
    """CPU seconds of all processes below this one, which are the sandbox's."""
    parents, times = dict[int, int](), dict[int, float]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(fields[1])
            times[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    found, new = set[int](), {os.getpid()}
    while new := {pid for pid, parent in parents.items() if parent in new} - found:
        found |= new
    return sum(times[pid] for pid in found)


async def measure_speed(sizes: list[int], latency: float) -> list[dict[str, float]]:
    """Play each number of episodes at once, at `latency` seconds a reply."""
    model = RememberingSimulator(Pack.load("customer_service"))
    await play_solutions(model)
    model.latency, rows = latency, []
    for episodes in sizes:
        model.computed = 0
        found = await play_solutions(model, episodes)
        bound = found["longest"] * latency
        rows.append({**found, "bound_s": bound, "ratio": found["wall_s"] / bound, "computed": model.computed})
    return rows


def list_missed_bounds(row: dict[str, float]) -> list[str]:
    """Name the bounds that the episodes of one size miss. A size without a bound of its own has only those of pause and CPU."""
    allowed = ALLOWED.get(int(row["episodes"]), float("inf"))
    found = {
        f"{allowed:g} times the endpoint's time": row["ratio"] > allowed,
        f"a pause of {PAUSE_MS:g} ms": row["pause_ms"] >= PAUSE_MS,
        f"{CPU_MS:g} ms of CPU a call": row["step_ms"] > CPU_MS,
        "every episode solved": row["solved"] < row["episodes"],
    }
    return [name for name, missed in found.items() if missed]


async def measure_tokens(name: str) -> dict[str, float]:
    """Mean tokens of a prompt and of the state in it, with the state in whole and in part."""
    found: dict[str, float] = {}
    for way, limit in (("whole", WHOLE), ("part", None)):
        model = RememberingSimulator(Pack.load(name))
        settings = {"knowledge": "state", **({"state_tokens": limit, "context": WHOLE} if limit else {})}
        figures = await play_solutions(model, **settings)
        prompts = [str(request.messages[1]["content"]) for request in model.asked]
        system = estimate_text_tokens(str(model.asked[0].messages[0]["content"]))
        states = [estimate_text_tokens(cut_section(prompt, "The system's data now")) for prompt in prompts]
        whole = [estimate_text_tokens(prompt) + system for prompt in prompts]
        found |= {
            "calls": len(prompts), f"{way}_state": sum(states) / len(states), f"{way}_prompt": sum(whole) / len(whole),
            f"{way}_most": max(states), f"{way}_solved": figures["solved"], "tasks": figures["episodes"],
        }  # fmt: skip
    return found


async def main(sizes: list[int], latency: float) -> int:
    tokens = {name: await measure_tokens(name) for name in PACKS}
    for name, row in tokens.items():
        print(
            f"{name}: {row['calls']:.0f} calls of {row['tasks']:.0f} solutions; the state takes {row['whole_state']:,.0f} tokens of "
            f"{row['whole_prompt']:,.0f} in whole, {row['part_state']:,.0f} of {row['part_prompt']:,.0f} in part (at most "
            f"{row['part_most']:,.0f}); solved {row['whole_solved']:.0f} and {row['part_solved']:.0f}"
        )
    speed = await measure_speed(sizes, latency)
    for row in speed:
        print(
            f"{row['episodes']:.0f} episodes, {row['steps']:.0f} calls at {latency:g} s: {row['wall_s']:.2f} s, the endpoint alone "
            f"{row['bound_s']:.2f} s ({row['ratio']:.2f} times); longest pause {row['pause_ms']:.0f} ms ({row['pause_cpu_ms']:.0f} ms CPU); "
            f"{row['step_ms']:.2f} ms of CPU a call of ours, {row['sandbox_ms']:.2f} ms of CPU in the sandbox; solved {row['solved']:.0f}; "
            f"missed: {', '.join(list_missed_bounds(row)) or 'nothing'}"
        )
    print(json.dumps({"tokens": tokens, "speed": speed}))
    solved = all(row["part_solved"] == row["tasks"] for row in tokens.values())
    return 0 if solved and not any(map(list_missed_bounds, speed)) else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, nargs="*", default=[256, 1024])
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of a reply")
    given = parser.parse_args()
    sys.exit(asyncio.run(main(given.episodes, given.latency)))
