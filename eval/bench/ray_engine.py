"""Compare the cost of Ray's nodes with a single process at equal limits: seconds of the same amplification, with replies as slow as a model's.

    python eval/bench/ray_engine.py [--n 1000] [--concurrency 32] [--latency 1.0] [--workers 2] [--rounds 3]

Ray runs on this machine, with one node, in the environment `ray`, and so does the single process. A fake endpoint in a process of its own
answers after `--latency` seconds. Both ways alternate. The measured time is from the first reply, when all workers are ready, to the last
accepted trajectory; the time to the first reply is printed separately. Printed with the bound of 1.1: the ratio of seconds with Ray to
seconds of the single process, medians of the rounds. The last line is one JSON object; exit code 1 above the bound.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BOUND = 1.1
ROOT = Path(__file__).parents[2]


def child(url: str, folder: Path, args: argparse.Namespace) -> None:
    from simia.amplification.session import start_amplification
    from simia.amplification.settings import AmplifyConfig
    from simia.config import load_config

    settings = [
        "llm.kind=openai",
        f"llm.base_url={url}",
        "llm.model=bench",
        "seeds.packs=[customer_service]",
        f"limits.start={args.concurrency}",
        f"limits.concurrency={args.concurrency}",
    ]
    if args.workers:
        settings += ["engine.kind=ray", "engine.address=local", f"engine.workers={args.workers}", "engine.cpus=0"]
        settings += [f"engine.store={folder / 'stores'}"]
    begun = time.perf_counter()
    config = load_config(AmplifyConfig, "amplify/default", settings, n=args.n)
    marks: list[tuple[float, int]] = []

    def watch(progress: Any) -> None:
        if not marks or progress.accepted != marks[-1][1]:
            marks.append((time.perf_counter(), progress.accepted))

    done = asyncio.run(start_amplification(config, runs=folder, name="bench", say=lambda line: None, on_progress=watch))
    (first, _), last = marks[0], next(at for at, accepted in marks if accepted >= args.n)
    figures = {
        "stop": done.stop.kind,
        "accepted": done.progress.accepted,
        "replies": done.progress.replies,
        "start": first - begun,
        "seconds": last - first,
    }
    print(json.dumps(figures))


def measure(python: Path, args: argparse.Namespace, workers: int) -> dict[str, Any]:
    """One amplification; `workers` 0: in a single process."""
    from tests.fake_endpoint import FakeEndpoint

    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory", "--latency", str(args.latency), "--no-log")
    try:
        with tempfile.TemporaryDirectory() as folder:
            words = ["--url", endpoint.url, "--folder", folder, "--workers", str(workers), "--n", str(args.n)]
            words += ["--concurrency", str(args.concurrency)]
            token = {
                "RAY_AUTH_MODE": "token",
                "RAY_AUTH_TOKEN": secrets.token_hex(32),
            }  # else Ray writes one to the home folder
            env = {**os.environ, "PYTHONPATH": str(ROOT), **token}
            done = subprocess.run([python, __file__, *words], check=True, stdout=subprocess.PIPE, text=True, env=env)
    finally:
        endpoint.stop()
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["stop"] == "complete", found
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url")
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    if args.url:
        child(args.url, args.folder, args)
        return 0
    sys.path.insert(0, str(ROOT))
    from simia.venvs import ensure_environment

    python = ensure_environment("ray", say=print)
    rows: dict[str, list[dict[str, Any]]] = {"alone": [], "ray": []}
    for _ in range(args.rounds):
        rows["alone"].append(measure(python, args, 0))
        rows["ray"].append(measure(python, args, args.workers))
    seconds = {way: statistics.median(row["seconds"] for row in found) for way, found in rows.items()}
    least = rows["alone"][0]["replies"] * args.latency / args.concurrency
    ratio = seconds["ray"] / seconds["alone"]
    print(f"{'lower bound: replies by the limit, s':40}{least:>10.1f}")
    for way, found in rows.items():
        each = " ".join(f"{row['seconds']:.1f}" for row in found)
        print(f"{way + ', s':40}{seconds[way]:>10.1f}   rounds {each}")
    print(f"{'to the first reply with Ray, s':40}{statistics.median(row['start'] for row in rows['ray']):>10.1f}")
    print(f"{'with Ray by the single process':40}{ratio:>10.2f}   bound {BOUND}")
    print(json.dumps({**seconds, "least": least, "ratio": round(ratio, 3)}))
    return 1 if ratio > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
