"""The seed-to-90k run, end to end: prompts, requests, replies on disk, parsing, checks, selection, acceptance.

    python eval/bench/amplify.py [--n 90000] [--keep FOLDER]

A fake endpoint in its own process answers with conversations of 10 to 16 KB, none twice, 5 % of them malformed. The run is the one
that `simia amplify` makes, with near-duplicates looked for: once with the checks of form alone, and once with a plan for each request
and all checks but that of goals. The prepared replies follow no plan and their values are not true, so the second run measures only
the cost of planning and checking. Printed with their bounds: accepted per second on 2 cores (800; with all checks 100 replies per
second, twice the rate of a rented endpoint), the peak of resident memory (400 MB), and whether memory is flat (last quarter against
the second); also the malformed replies with their outcomes. The last line is one JSON object; exit code 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import orjson
from endpoint import endpoint
from replies import templates

from simia.quality.truth.truth_checks import TruthChecks

PACKS = ("customer_service", "office")
FORM = [f"checks.{switch}=false" for switch in TruthChecks.model_fields]
PLANNED = ["prompt.scenarios=true", "checks.goals=false"]


def child(url: str, n: int, folder: Path, more: list[str]) -> None:
    from simia import event_loop
    from simia.amplification.session import start_amplification
    from simia.amplification.settings import AmplifyConfig
    from simia.config import load_config

    settings = [
        "llm.kind=openai",
        f"llm.base_url={url}",
        "llm.model=bench",
        "limits.start=128",
        "reply.form=json",
        *more,
    ]
    config = load_config(AmplifyConfig, "amplify/default", settings, n=n)
    samples: list[tuple[float, float]] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            samples.append((time.perf_counter(), pages * resource.getpagesize() / 2**20))

    watcher = threading.Thread(target=watch)
    watcher.start()
    used, started = time.process_time(), time.perf_counter()
    run = event_loop.run_command(start_amplification(config, runs=folder, name="bench", say=lambda _: None))
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    quarter = max(1, len(samples) // 4)
    mean = [
        sum(mb for _, mb in part) / max(1, len(part)) for part in (samples[quarter : 2 * quarter], samples[-quarter:])
    ]
    figures = {
        "accepted": run.progress.accepted,
        "stop": run.stop.kind,
        "seconds": seconds,
        "cpu_ms_each": 1000 * (time.process_time() - used) / max(1, run.progress.accepted),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "second_quarter_mb": mean[0],
        "last_quarter_mb": mean[1],
        "rejected": dict(run.progress.rejected),
        "replies": run.progress.replies,
    }
    print(json.dumps(figures))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=90_000)
    parser.add_argument("--keep", type=Path, help="leave the run there, for the report's benchmark")
    parser.add_argument("--url")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--set", action="append", default=[], dest="settings")
    args = parser.parse_args()
    if args.url:
        child(args.url, args.n, args.folder, args.settings)
        return 0
    form = measure("checks of form", args.n, args.keep, FORM, accepted=800)
    every = measure("plans and all checks", max(1, args.n // 10), None, PLANNED, replies=100)
    print(json.dumps({"form": form, "all": every}))
    return 1 if form["falls_short"] or every["falls_short"] else 0


def measure(
    title: str, n: int, keep: Path | None, settings: list[str], *, accepted: float = 0, replies: float = 0
) -> dict[str, Any]:
    """Run to n accepted with these settings, and print the figures with their bounds: accepted and replies per second."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = keep or Path(temporary)
        file = Path(temporary) / "replies.jsonl"
        # The policy's first words name the pack in a request; a customer's story needs a customer's tools.
        with file.open("wb") as out:
            for pack, word in zip(PACKS, ("get_order", "list_events"), strict=True):
                for pieces in templates(pack, 200):
                    out.write(orjson.dumps({"pack": word, "pieces": pieces}) + b"\n")
        with endpoint(latency=0.1, replies=file, malformed=0.05) as (url, counts):
            words = [sys.executable, __file__, "--url", url, "--n", str(n), "--folder", str(folder)]
            words += [word for setting in settings for word in ("--set", setting)]
            figures: dict[str, Any] = json.loads(
                subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
            )
        size = sum(path.stat().st_size for path in (folder / "bench").iterdir()) / 2**20
    rate = figures["accepted"] / figures["seconds"]
    grown = figures["last_quarter_mb"] / max(1.0, figures["second_quarter_mb"])
    peak = figures["peak_mb"]
    answered = figures["replies"] / figures["seconds"]
    bounds = [
        ("accepted/s", rate, accepted, rate >= accepted),
        ("replies/s", answered, replies, answered >= replies),
        ("peak MB", peak, 400, peak < 400),
        ("last quarter's memory by the second's", grown, 1.3, grown <= 1.3),
        ("accepted", figures["accepted"], n, figures["accepted"] == n),
    ]
    print(f"\n{title}")
    for name, value, bound, _ in bounds:
        print(f"{name:40}{value:>12,.2f}   bound {bound:,}")
    print(f"{'CPU ms an accepted trajectory':40}{figures['cpu_ms_each']:>12,.2f}")
    print(f"{'replies':40}{figures['replies']:>12,}   at the endpoint {counts['answered']:,}")
    print(f"{'rejected':40}{sum(figures['rejected'].values()):>12,}   {figures['rejected']}")
    print(f"{'run on disk, MB':40}{size:>12,.0f}")
    short = [name for name, _, _, fine in bounds if not fine]
    return {name: round(value, 3) for name, value, *_ in bounds} | {"falls_short": short}


if __name__ == "__main__":
    sys.exit(main())
