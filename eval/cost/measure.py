"""Measure what the cost page computes with, and write `figures.json`: CPU, memory and disk of a trajectory, and the prompts of simulated episodes.

    python eval/cost/measure.py                     # five minutes or so on two cores

Amplification: the run of `eval/bench/amplify.py` with plans and all checks, at two sizes, so that what a run needs at all and what each
trajectory adds come apart. Episodes: the solutions of customer_service, played in a simulated world whose model answers at once with
what the executable world returns. Tokens are simia's estimate. CPU is process time, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os.path
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BENCH = HERE.parent / "bench"
sys.path.append(str(BENCH))
from amplify import PACKS, PLANNED  # noqa: E402
from endpoint import endpoint  # noqa: E402
from replies import templates  # noqa: E402

from simia.envs.opening import open_environment  # noqa: E402
from simia.envs.play.baseline_agents import ReferenceAgent  # noqa: E402
from simia.envs.play.player import play  # noqa: E402
from simia.envs.users import ScriptedUser  # noqa: E402
from simia.llm.engine import Engine, EngineLimits, MemoryJournal  # noqa: E402
from simia.llm.types import Reply, Request  # noqa: E402
from simia.quality.fast_tokens import estimate_text_tokens  # noqa: E402
from simia.reward import Reward  # noqa: E402

PACK = "customer_service"


def measure_run(n: int, folder: Path) -> dict[str, float]:
    """One amplification to `n` accepted: CPU seconds, resident megabytes at the end, bytes on disk, by trajectory where it says so."""
    replies = folder / "replies.jsonl"
    with replies.open("w", encoding="utf-8") as out:
        for pack, word in zip(PACKS, ("get_order", "list_events"), strict=True):
            out.writelines(json.dumps({"pack": word, "pieces": pieces}) + "\n" for pieces in templates(pack, 200))
    with endpoint(latency=0.1, replies=replies, malformed=0.05) as (url, _):
        words = [sys.executable, str(BENCH / "amplify.py"), "--url", url, "--n", str(n), "--folder", str(folder)]
        words += [word for setting in PLANNED for word in ("--set", setting)]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    figures = json.loads(done.stdout.splitlines()[-1])
    size = sum(path.stat().st_size for path in (folder / "bench").iterdir())
    return {
        "n": n, "replies": figures["replies"], "cpu_ms_each": figures["cpu_ms_each"], "peak_mb": figures["peak_mb"],
        "disk_kb_each": size / n / 1024,
    }  # fmt: skip


class Recorder:
    """A model that answers each call with what the executable world returned for it."""

    alias, model, structured = "recorder", "recorder", False

    def __init__(self, results: dict[str, list[str]]) -> None:
        self.results, self.prompts, self.replies = results, list[str](), list[str]()

    async def start(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        text = "".join(str(message["content"]) for message in request.messages)
        calls = text.rpartition("# Calls to answer now")[2].strip().splitlines()
        answers = []
        for number, line in enumerate(calls, start=1):
            known = next((found for name, found in self.results.items() if name in line), ["{}"])
            content = json.loads(known[number % len(known)])
            answers.append({"call": number, "outcome": "result", "content": content, "changes": []})
        reply = json.dumps({"answers": answers})
        self.prompts.append(text)
        self.replies.append(reply)
        return Reply(text=reply)

    async def close(self) -> None: ...


class NoJudge:
    async def score(self, trajectory: Any, task: Any) -> Reward:
        return Reward(value=0.0)


async def measure_episodes(episodes: int) -> dict[str, float]:
    """Calls, and tokens of requests and replies, of a simulated episode; CPU of simia for a call."""
    results: dict[str, list[str]] = {}
    environment = await open_environment(PACK, backend="executable", user=ScriptedUser)
    tasks = [task for task in environment.tasks if task.actions]
    chosen = [tasks[n % len(tasks)] for n in range(episodes)]
    try:
        calls = 0
        for task in chosen:
            episode = await environment.reset(task, seed=0)
            trajectory = await play(episode, ReferenceAgent(task))
            calls += sum(1 for _ in trajectory.calls())
            for message in trajectory.messages:
                if message.role == "tool" and message.name and message.text.startswith(("{", "[")):
                    results.setdefault(message.name, []).append(message.text)
    finally:
        await environment.close()
    model = Recorder(results)
    async with Engine(model, MemoryJournal(), EngineLimits(concurrency=episodes, start=episodes)) as engine:  # type: ignore[arg-type]
        simulated = await open_environment(
            PACK, backend="simulated", user=ScriptedUser, engine=engine, scorer=NoJudge()  # type: ignore[arg-type]
        )  # fmt: skip
        used = time.process_time()
        for number, task in enumerate(chosen):
            await play(await simulated.reset(task, seed=number), ReferenceAgent(task))
        used = time.process_time() - used
        await simulated.close()
    prompts = [estimate_text_tokens(text) for text in model.prompts]
    ordered = sorted(model.prompts)
    shared = sum(len(os.path.commonprefix(list(pair))) for pair in itertools.pairwise(ordered))  # noqa: RUF071
    return {
        "episodes": episodes, "calls": calls / episodes, "requests": len(prompts) / episodes,
        "prompt": sum(prompts) / len(prompts), "reply": sum(map(estimate_text_tokens, model.replies)) / len(prompts),
        "cached": shared / sum(map(len, ordered)), "simulated_ms_a_call": 1000 * used / calls,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs=2, default=(2_000, 8_000), help="accepted trajectories of the two runs"
    )
    parser.add_argument("--episodes", type=int, default=78)
    parser.add_argument("--out", type=Path, default=HERE / "figures.json")
    given = parser.parse_args()
    runs = []
    for n in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measure_run(n, Path(folder)))
        print(runs[-1], flush=True)
    episodes = asyncio.run(measure_episodes(given.episodes))
    print(episodes)
    given.out.write_text(json.dumps({"runs": runs, "episodes": episodes}, indent=1) + "\n")


if __name__ == "__main__":
    main()
