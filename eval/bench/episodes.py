"""Measure the cost of a thousand simulated episodes in one training worker: time against the endpoint's, event-loop pauses, CPU and memory.

    python eval/bench/episodes.py                   # 256 and 1,024 episodes of 8 turns at 1 s a reply, two steps each: two minutes
    python eval/bench/episodes.py --episodes 64 --latency 0.2

Episodes are played as verl's agent loop plays them: tokens in and tokens out, with a real tokenizer and chat template. A fake endpoint,
in a process of its own and over HTTP, simulates the tools and judges the episodes; every reply is stored before it is used. The policy
answers at once. Eight episodes are a group of one task, and each sends other queries to the simulator, so no reply is shared. The ideal
time is the endpoint's alone: a reply for each turn and a verdict. In the first step the limiter finds how many requests the endpoint
accepts; the second step shows the speed of a training.

CPU is that of the process, all threads. Tokenising (chat template, encode and decode) is measured separately, by repeating the same
work. A pause is the delay of a 5 ms timer; on a busy machine it includes the time of other processes, so the CPU time of the loop's
thread within it is shown as well. Runs in TRL's environment, for its tokenizer. Prints a table and a profile of one more step of 256
episodes; the last line is one JSON object; the exit code is 1 if the second step misses a bound: 1,024 episodes in 1.5 times the ideal,
256 in 1.15 times, a pause of 100 ms, 1 ms of CPU a turn without tokenising.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import json
import os
import pstats
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[2]
sys.path.append(str(Path(__file__).parent))
sys.path.append(str(REPOSITORY / "tests" / "trainers"))
TURNS, GROUP, TICK, LEARNED_TOKENS = 8, 8, 0.005, 16_384
ALLOWED = {256: 1.15, 1024: 1.5}  # times the ideal, by the number of episodes
PAUSE_MS, CPU_MS = 100.0, 1.0
REPLY = {
    "answers": [{"call": 1, "outcome": "result", "content": {"products": [], "total": 0, "page": 1}, "changes": []}],
    "why": "The agent searched and found nothing.",
    "solved": False,
}


def restart_with_tokenizer() -> None:
    """Go on in TRL's environment, which has transformers."""
    from simia.venvs import ensure_environment, make_python_path

    python = ensure_environment("trl", print)
    env = {**os.environ, "PYTHONPATH": make_python_path(python), "TOKENIZERS_PARALLELISM": "false"}
    os.execve(python, [str(python), *sys.argv], {**env, "HF_HUB_OFFLINE": "1"})


@dataclass
class RecordingTokenizer:
    """A tokenizer that records what it renders, encodes and decodes, so that this can be timed later. Attributes are the tokenizer's."""

    tokenizer: Any
    work: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.work.append((self.tokenizer, args, kwargs))
        return self.tokenizer(*args, **kwargs)

    def decode(self, *args: Any, **kwargs: Any) -> Any:
        self.work.append((self.tokenizer.decode, args, kwargs))
        return self.tokenizer.decode(*args, **kwargs)

    def apply_chat_template(self, *args: Any, **kwargs: Any) -> Any:
        self.work.append((self.tokenizer.apply_chat_template, args, kwargs))
        return self.tokenizer.apply_chat_template(*args, **kwargs)

    def measure(self) -> float:
        """Do the recorded work once more, and return its CPU time in seconds. Measuring each call would cost more than the call."""
        work, self.work = self.work, []
        start = time.process_time()
        for call, args, kwargs in work:
            call(*args, **kwargs)
        return time.process_time() - start


def read_resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@dataclass
class LoopWatch:
    """Wakes every 5 ms and notes the longest delay, with the CPU time of the loop's thread in it, and the largest memory."""

    longest: float = 0.0
    longest_cpu: float = 0.0
    memory: int = 0

    async def watch(self) -> None:
        page, woken, before, cpu = os.sysconf("SC_PAGE_SIZE"), 0, time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(TICK)
            now, used = time.perf_counter(), time.thread_time()
            self.longest, self.longest_cpu = max(self.longest, now - before - TICK), max(self.longest_cpu, used - cpu)
            before, cpu = now, used
            woken += 1
            if woken % 50 == 1:
                self.memory = max(self.memory, read_resident_pages() * page)


@dataclass
class Policy:
    """The policy of one episode: its next call, prepared."""

    replies: list[list[int]]

    async def __call__(self, context: list[int], most: int) -> Any:
        from simia.trainers.verl.play import PolicyReply

        ids = self.replies.pop()
        return PolicyReply(ids, [-0.5] * len(ids))


def prepare_replies(tokenizer: Any, episodes: int) -> list[list[list[int]]]:
    """Each turn of each episode: another query."""
    texts = [
        f'<tool_call>\n{{"name": "search_products", "arguments": {{"query": "tea {number} {turn}"}}}}\n</tool_call><|im_end|>'
        for number in range(episodes)
        for turn in range(TURNS)
    ]
    ids = tokenizer(texts, add_special_tokens=False)["input_ids"]
    return [ids[number * TURNS : (number + 1) * TURNS] for number in range(episodes)]


async def play_step(worker: Any, replies: list[list[list[int]]], step: int, latency: float) -> dict[str, float]:
    """Play all episodes of a step and measure it."""
    tokenizer, tasks = worker.tokenizer, worker.environment.tasks
    policies = [Policy(list(each)) for each in replies]
    gc.collect()
    watch = LoopWatch()
    watching = asyncio.create_task(watch.watch())
    await asyncio.sleep(0.05)
    memory, watch.longest, watch.longest_cpu = watch.memory, 0.0, 0.0
    tokenizer.work.clear()
    cpu, start = time.process_time(), time.perf_counter()

    async def play(number: int) -> Any:
        group = f"{step}/{number // GROUP}"
        task = tasks[number // GROUP % len(tasks)].id
        return await worker.play(policies[number], task, seed=0, group=group, name=f"{group}/{number}")

    played = await asyncio.gather(*(play(number) for number in range(len(replies))))
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    watching.cancel()
    with suppress(asyncio.CancelledError):
        await watching
    turns = sum(each.row.turns for each in played)
    ends = {(each.end, each.reward) for each in played}
    assert ends == {("truncated", 0.0)}, ends
    assert turns == len(replies) * TURNS, turns
    tokenising = tokenizer.measure()
    return {
        "episodes": len(replies), "step": step, "seconds": seconds, "ratio": seconds / ((TURNS + 1) * latency),
        "pause_ms": watch.longest * 1e3, "pause_cpu_ms": watch.longest_cpu * 1e3, "cpu_ms": (cpu - tokenising) / turns * 1e3,
        "tokenising_ms": tokenising / turns * 1e3,
        "memory_mb": (watch.memory - memory) / len(replies) / 1e6, "load": os.getloadavg()[0],
    }  # fmt: skip


async def measure(tokenizer: RecordingTokenizer, url: str, episodes: int, steps: int, given: argparse.Namespace) -> Any:
    """Open a worker's environment and play steps in it. Returns a row for each, and a profile if `steps` is 0."""
    from simia.envs.opening import open_environment
    from simia.trainers.tokens import ChatText
    from simia.trainers.verl.play import PolicyPlayer
    from simia.trainers.verl.settings import PlaySettings

    replies = prepare_replies(tokenizer.tokenizer, episodes)
    profile = cProfile.Profile()
    with tempfile.TemporaryDirectory() as store:
        environment = await open_environment(
            "customer_service", backend="simulated", user="none", llm={"kind": "openai", "base_url": url, "model": "b"},
            store=Path(store), episode={"turns": TURNS}, limits={"concurrency": episodes}, say=lambda _: None,
        )  # fmt: skip
        async with environment:
            text = ChatText(tokenizer, [tokenizer.eos_token_id])
            player = PolicyPlayer(environment, tokenizer, text, PlaySettings(), 8192, 8192)
            player.tokenizer = tokenizer
            rows = [await play_step(player, replies, step, given.latency) for step in range(1, steps + 1)]
            if not steps:
                profile.enable()
                await play_step(player, replies, 1, given.latency)
                profile.disable()
    return rows or profile


def print_profile(profile: cProfile.Profile, turns: int) -> None:
    """Print where the loop's thread spent its time, by module and by function. The profiler makes all of it slower."""
    if path := os.environ.get("SIMIA_BENCH_PROFILE"):
        profile.dump_stats(path)
    entries: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    modules: dict[str, float] = defaultdict(float)
    functions = []
    for (file, line, name), (_, calls, own, _, _) in entries.items():
        if "'poll' of 'select.epoll'" in name:
            continue
        parts = Path(file).parts
        at = next((n for n in range(len(parts) - 1, -1, -1) if parts[n] in ("simia", "site-packages")), len(parts) - 2)
        where = "/".join(parts[at + (parts[at] == "site-packages") :][:3]) if len(parts) > 1 else "C functions"
        modules[where] += own
        functions.append((own, calls, f"{where}:{line} {name}"))
    whole = sum(modules.values())
    print(f"\nprofile of the loop's thread: {whole / turns * 1e3:.2f} ms a turn under the profiler")
    for where, own in sorted(modules.items(), key=lambda each: -each[1])[:14]:
        print(f"  {own / whole:4.0%}  {where}")
    print("by function, own time:")
    for own, calls, name in sorted(functions, reverse=True)[:14]:
        print(f"  {own / whole:4.0%}  {calls / turns:7.1f} calls a turn  {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--episodes", type=int, nargs="*", default=[256, 1024])
    parser.add_argument("--latency", type=float, default=1.0, help="seconds of a reply")
    parser.add_argument("--steps", type=int, default=2, help="steps of each; the first one is not judged")
    given = parser.parse_args()
    try:
        import transformers  # type: ignore[import-not-found,unused-ignore] # noqa: F401
    except ImportError:
        restart_with_tokenizer()
    import tiny_model  # type: ignore[import-not-found]
    from endpoint import endpoint

    tiny_model.LEARNED_TOKENS = LEARNED_TOKENS
    learned = sorted((REPOSITORY / "seeds").glob("*/seeds.jsonl"))
    tokenizer = RecordingTokenizer(tiny_model.make_tokenizer(learned))
    found = []
    with tempfile.TemporaryDirectory() as folder:
        replies = Path(folder) / "replies.jsonl"
        replies.write_text(json.dumps({"pack": "", "pieces": [json.dumps(REPLY)]}))
        with endpoint(latency=given.latency, replies=replies) as (url, _):
            for episodes in given.episodes:
                rows = asyncio.run(measure(tokenizer, url, episodes, given.steps, given))
                for row in rows:
                    print(
                        f"{row['episodes']:5} episodes, step {row['step']}: {row['seconds']:6.2f} s, {row['ratio']:.2f} × ideal; "
                        f"longest pause {row['pause_ms']:.0f} ms ({row['pause_cpu_ms']:.0f} ms CPU); CPU a turn {row['cpu_ms']:.2f} ms "
                        f"and {row['tokenising_ms']:.2f} ms tokenising; {row['memory_mb']:.2f} MB an episode; load {row['load']:.1f}",
                        flush=True,
                    )
                later = rows[1:] or rows
                names = ("ratio", "pause_ms", "pause_cpu_ms", "cpu_ms", "tokenising_ms", "memory_mb", "load")
                found.append(
                    {"episodes": episodes, **{name: statistics.median(row[name] for row in later) for name in names}}
                )
            print_profile(asyncio.run(measure(tokenizer, url, 256, 0, given)), 256 * TURNS)
    print(json.dumps(found))
    good = all(
        row["ratio"] <= ALLOWED.get(row["episodes"], float("inf"))
        and row["pause_ms"] < PAUSE_MS
        and row["cpu_ms"] <= CPU_MS
        for row in found
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
