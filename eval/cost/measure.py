"""Measure the inputs of the cost page, and write `figures.json`: CPU, memory and disk of a trajectory and of a simulated episode.

    python eval/cost/measure.py                     # five minutes or so on two cores
    python eval/cost/measure.py --only stored       # measure one part again; the others stay

Amplification: the run of `eval/bench/amplify.py` with plans and all checks, at two sizes, which separates the fixed cost of a run from
the cost per trajectory. Episodes: the solutions of customer_service, played in a simulated world whose model answers at once with the
results of the executable world. For memory and disk the same answers come over HTTP from a fake endpoint, 64 episodes are played at
once, and replies and trajectories are written to disk, as in a training. No judge is called. Tokens are simia's estimate. CPU is process
time, which depends least on other load of the machine.
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
sys.path += [str(BENCH), str(HERE.parents[1])]
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
from simia.task import Task  # noqa: E402
from tests.fake_endpoint import FakeEndpoint  # noqa: E402

PACK = "customer_service"
RESULTS = "SIMIA_COST_RESULTS"
AT_ONCE = 64


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


def answer_calls(text: str, results: dict[str, list[str]]) -> str:
    """Answer the calls of a prompt with what the executable world returned for the same tools."""
    calls = text.rpartition("# Calls to answer now")[2].strip().splitlines()
    answers = []
    for number, line in enumerate(calls, start=1):
        known = next((found for name, found in results.items() if name in line), ["{}"])
        content = json.loads(known[number % len(known)])
        answers.append({"call": number, "outcome": "result", "content": content, "changes": []})
    return json.dumps({"answers": answers})


def respond(body: dict[str, Any]) -> str:
    """Reply of the fake endpoint: answers to the calls, from the results in the file that the environment variable names."""
    results = json.loads(Path(os.environ[RESULTS]).read_text(encoding="utf-8"))
    return answer_calls("".join(str(message["content"]) for message in body["messages"]), results)


class Recorder:
    """A model that answers each call with what the executable world returned for it."""

    alias, model, structured = "recorder", "recorder", False

    def __init__(self, results: dict[str, list[str]]) -> None:
        self.results, self.prompts, self.replies = results, list[str](), list[str]()

    async def start(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        text = "".join(str(message["content"]) for message in request.messages)
        reply = answer_calls(text, self.results)
        self.prompts.append(text)
        self.replies.append(reply)
        return Reply(text=reply)

    async def close(self) -> None: ...


class NoJudge:
    async def score(self, trajectory: Any, task: Any) -> Reward:
        return Reward(value=0.0)


async def collect_results(episodes: int) -> tuple[list[Task], dict[str, list[str]], int]:
    """Play the solutions in the executable world. Returns the tasks, the results by tool, and the number of calls."""
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
    return chosen, results, calls


async def measure_episodes(episodes: int) -> dict[str, float]:
    """Calls, and tokens of requests and replies, of a simulated episode; CPU of simia for a call."""
    chosen, results, calls = await collect_results(episodes)
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


async def play_stored(url: str, episodes: int, folder: Path) -> None:
    """Play simulated episodes as a training does: replies and trajectories are written to the folder."""
    environment = await open_environment(
        PACK, backend="simulated", user=ScriptedUser, scorer=NoJudge(), store=folder / "replies",  # type: ignore[arg-type]
        llm={"kind": "openai", "base_url": url, "model": "bench"}, limits={"concurrency": AT_ONCE, "start": AT_ONCE},
    )  # fmt: skip
    tasks = [task for task in environment.tasks if task.actions]
    free = asyncio.Semaphore(AT_ONCE)
    with (folder / "trajectories.jsonl").open("w", encoding="utf-8") as rows:

        async def play_one(number: int) -> None:
            async with free:
                task = tasks[number % len(tasks)]
                trajectory = await play(await environment.reset(task, seed=number), ReferenceAgent(task))
                rows.write(json.dumps(trajectory.to_row()) + "\n")

        await asyncio.gather(*(play_one(number) for number in range(episodes)))
    await environment.close()


def read_footprint(episodes: int, folder: Path) -> dict[str, float]:
    """The peak of this process's resident memory, and what the episodes take on disk."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    replies = sum(path.stat().st_size for path in (folder / "replies").rglob("*") if path.is_file())
    rows = sum(path.stat().st_size for path in folder.glob("*.jsonl"))
    return {
        "episodes": episodes, "peak_mb": int(status.partition("VmHWM:")[2].split()[0]) / 1024,
        "replies_kb_each": replies / episodes / 1024, "rows_kb_each": rows / episodes / 1024,
    }  # fmt: skip


def measure_stored(episodes: int) -> dict[str, float]:
    """Measure memory and disk of the given number of simulated episodes, in a process of its own."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        results = folder / "results.json"
        results.write_text(json.dumps(asyncio.run(collect_results(78))[1]), encoding="utf-8")
        os.environ[RESULTS] = str(results)
        served = FakeEndpoint("--respond", "eval.cost.measure:respond")
        (folder / "played").mkdir()
        try:
            words = [sys.executable, __file__, "--play", served.url, str(episodes), str(folder / "played")]
            done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
        finally:
            served.stop()
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs=2, default=(2_000, 8_000), help="accepted trajectories of the two runs"
    )
    parser.add_argument("--episodes", type=int, default=78)
    parser.add_argument(
        "--stored",
        type=int,
        nargs=2,
        default=(256, 1_024),
        help="simulated episodes of the two runs for memory and disk",
    )
    parser.add_argument(
        "--only", choices=("runs", "episodes", "stored"), help="measure this part, and keep the others of --out"
    )
    parser.add_argument("--out", type=Path, default=HERE / "figures.json")
    parser.add_argument("--play", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.play:
        url, episodes, folder = given.play[0], int(given.play[1]), Path(given.play[2])
        asyncio.run(play_stored(url, episodes, folder))
        print(json.dumps(read_footprint(episodes, folder)))
        return
    figures = json.loads(given.out.read_text(encoding="utf-8")) if given.only else {}
    if given.only in (None, "runs"):
        figures["runs"] = []
        for n in given.sizes:
            with tempfile.TemporaryDirectory() as folder:
                figures["runs"].append(measure_run(n, Path(folder)))
            print(figures["runs"][-1], flush=True)
    if given.only in (None, "episodes"):
        figures["episodes"] = asyncio.run(measure_episodes(given.episodes))
        print(figures["episodes"])
    if given.only in (None, "stored"):
        figures["stored"] = [measure_stored(episodes) for episodes in given.stored]
        print(figures["stored"])
    given.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
