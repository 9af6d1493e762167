"""Post-processing alone: parse, repair, check, hash and store one reply after the other, on one core.

    python eval/bench/post.py [--profile]

Selection is not included; the figure with the near-duplicate signature is printed too (its own bench is near.py).
Prints trajectories per second and core for JSON and tagged replies of 10 to 16 KB, with the bound of 2,000, and as the lower bound of
the cost the time in which orjson reads the same text and pydantic builds the same trajectory. The bound is for the checks of form; with
the checks of truth, which read every result, it is 300: six times the rate of a rented endpoint. The last line is one JSON object; exit
code 1 below a bound.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import time
from collections.abc import Callable
from typing import Any

import orjson
from replies import replies

from simia.amplification.model_mix import Writer
from simia.amplification.seeds import load_seed_packs
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.garbage_collection import collect_rarely
from simia.llm.types import Reply
from simia.quality.truth.truth_checks import TruthChecks
from simia.trajectory import Trajectory

BOUND, TRUE_BOUND = 2000, 300
FORM = dict.fromkeys(TruthChecks.model_fields, False)
PACK = "office"


def best(work: Callable[[], Any], n: int, rounds: int = 3) -> float:
    rates = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        rates.append(n / (time.process_time() - started))
    return max(rates)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    config = AmplifyConfig.model_validate({"seeds": {"packs": [PACK]}, "select": {"near": None}, "checks": FORM})
    simulator = Simulator(
        config, load_seed_packs(config.seeds, config.checks), writers=[Writer("fake", "fake", structured=False)]
    )
    items = [simulator.item(i) for i in range(args.n)]
    out: dict[str, Any] = {}
    short = []
    for form in ("json", "tagged"):
        texts = [Reply(text=text) for text in replies(args.n, form=form, pack=PACK)]
        passed: list[bool] = []

        def judge(texts: list[Reply] = texts, passed: list[bool] = passed) -> None:
            passed.clear()
            for item, reply in zip(items, texts, strict=True):
                result = simulator.judge(item, reply, keys=["k"], files={})
                result.body()
                passed.append(not result.issues)

        if args.profile:
            with cProfile.Profile() as profile:
                judge()
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)
        with collect_rarely():
            rate = best(judge, args.n)
        size = sum(len(reply.text) for reply in texts) / args.n
        floor = ""
        if form == "json":
            rows = [
                r.trajectory.to_row()
                for r in (simulator.judge(i, t, keys=["k"], files={}) for i, t in zip(items, texts, strict=True))
                if r.trajectory
            ]
            raw = [reply.text for reply in texts if reply.text.endswith("}]}")]

            def bare(rows: list[Any] = rows, raw: list[str] = raw) -> None:
                for text in raw:
                    try:
                        orjson.loads(text)
                    except orjson.JSONDecodeError:
                        continue
                for row in rows:
                    Trajectory.model_validate(row)

            floor = f"; reading the JSON and building the objects alone: {best(bare, args.n):,.0f}/s"
        print(
            f"{form}: {rate:,.0f} trajectories/s a core ({size / 1000:.1f} KB, {sum(passed)} of {args.n} pass){floor}"
        )
        config.select.near = 0.75
        with collect_rarely():
            selected = best(judge, args.n)
        config.select.near = None
        for switch in FORM:
            setattr(config.checks, switch, True)
        with collect_rarely():
            true = best(judge, args.n)
        for switch in FORM:
            setattr(config.checks, switch, False)
        print(f"  with the checks of truth: {true:,.0f}/s")
        print(f"  and with the signature that finds near-duplicates: {selected:,.0f}/s")
        out |= {
            f"{form}_per_s": round(rate),
            f"{form}_with_truth_per_s": round(true),
            f"{form}_with_signature_per_s": round(selected),
        }
        if rate < BOUND:
            short.append(f"{form}: {rate:.0f}/s, bound {BOUND}")
        if true < TRUE_BOUND:
            short.append(f"{form} with truth: {true:.0f}/s, bound {TRUE_BOUND}")
    print(json.dumps(out | {"falls_short": short}))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
