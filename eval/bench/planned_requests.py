"""Search the requests of every shipped config for contradictions: a request must be possible to fulfil.

    python eval/bench/planned_requests.py [--n 3000] [--tools FILE]

Plans and renders the requests of each config in configs/amplify, as they are shipped, from seeds of its kind: our packs, conversations in
the manner of tau-bench (`--tools`: with real tool specifications), the rows of OfficeBench and AgentInstruct that the tests hold; of Chinese
conversations; and conversations without a policy. Each request is read with patterns that do not use the planner. Printed: the number of
contradictions of each kind, and their earlier number, when a request was not yet planned as a whole; the numbers of different
personas, events, sets of tools and values; and the time to plan and to render a request. The last line is one JSON object; exit code 1
if a contradiction is found.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from request_contradictions import CONTRADICTIONS, read_request
from request_seeds import make_chinese_seeds, make_tau_seeds

from simia import formats
from simia.amplification.model_mix import Writer
from simia.amplification.request_plan import RequestPlan
from simia.amplification.seeds import take_seeds
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.amplification.tool_counts import PlanCounts
from simia.config import load_config
from simia.pack import Pack
from simia.trajectory import Trajectory

ROWS = Path(__file__).parents[2] / "tests" / "formats" / "data"
# Shares of 3,000 requests of tau2-90k at aa8cad5, where length, tools, values and scenario were drawn independently; and µs to plan an item.
BEFORE = {
    "one set of tools, then calls of another": 0.994,
    "a value that no planned tool takes": 0.58,
    "longer than the plan can fill": 0.25,
    "shorter than the plan needs": 0.125,
    "calls without authentication": 0.2,
    "nothing is changed, and a change is planned": 0.057,
    "two calls in one turn against the policy": 0.033,
}
BEFORE_MICROSECONDS = 34
TAU_SEEDS = 120


def read_rows(name: str, *kinds: str) -> list[Trajectory]:
    rows = json.loads((ROWS / f"{name}.json").read_text(encoding="utf-8"))
    kept = [row for row in rows if not kinds or row["id"].startswith(kinds)]
    found = [formats.get(name).read(row) for row in kept]
    return [seed.model_copy(update={"pack": name, "task_id": f"{name}-{i}"}) for i, seed in enumerate(found)]


def list_cases(tools: Path | None) -> dict[str, tuple[str, list[str], list[Trajectory]]]:
    """Name → (config, settings, seeds)."""
    packs = [seed for pack in ("customer_service", "office") for seed in Pack.load(pack).seeds]
    tau = make_tau_seeds(TAU_SEEDS, tools)
    bare = [seed.model_copy(update={"system": None, "pack": "bare"}) for seed in tau]
    on = ["prompt.scenarios=true"]
    return {
        "default": ("amplify/default", [], packs),
        "default with scenarios": ("amplify/default", on, packs),
        "quickstart": ("amplify/quickstart", [], packs),
        "quickstart with scenarios": ("amplify/quickstart", on, packs),
        "tau2-90k": ("amplify/tau2-90k", [], tau),
        "officebench-30k": ("amplify/officebench-30k", [], read_rows("officebench")),
        "agentbench-15k": ("amplify/agentbench-15k", [], read_rows("agentinstruct")),
        "Chinese": ("amplify/default", on, make_chinese_seeds(20)),
        "without a policy": ("amplify/default", on, bare + make_chinese_seeds(20, policy=False)),
    }


def examine(config: AmplifyConfig, given: Sequence[Trajectory], n: int) -> dict[str, Any]:
    """Plan, render and read n requests."""
    seeds = take_seeds(given, config.seeds, config.checks)
    simulator = Simulator(config, seeds, writers=[Writer("fake", "fake", structured=True)])
    counts = PlanCounts(used=config.prompt.scenarios)
    planning = rendering = 0.0
    found: Counter[str] = Counter()
    examples: dict[str, str] = {}
    distinct: dict[str, set[Any]] = defaultdict(set)
    groups: dict[tuple[str, ...], list[Trajectory]] = defaultdict(list)
    for seed in seeds.order:
        groups[(seed.pack or "", *(tool.name for tool in seed.tools))].append(seed)
    for ord_ in range(n):
        started = time.process_time()
        item = simulator.item(ord_, counts.counts(ord_))
        plan = RequestPlan.from_spec(item.spec["plan"]) if "plan" in item.spec else RequestPlan()
        counts.note_plan(ord_, plan.calls)
        planned = time.process_time()
        prompt = simulator.prompt(item)
        rendering += time.process_time() - planned
        planning += planned - started
        counts.decided(ord_)
        seed = simulator.by_id[item.spec["seed"]]
        group = groups[(seed.pack or "", *(tool.name for tool in seed.tools))]
        for at, value in (
            ("personas", plan.persona),
            ("events", plan.twist),
            ("tool sets", tuple(sorted(set(plan.calls)))),
        ):
            distinct[at].add(value)
        distinct["values"] |= {str(value) for value in plan.values.values()}
        distinct["requests"].add(prompt.messages[-1]["content"])
        if config.prompt.request != "amplify/request.j2":
            continue
        request = read_request(prompt.messages[-1]["content"], seed, group)
        for kind, contradicts in CONTRADICTIONS.items():
            if contradicts(request):
                found[kind] += 1
                examples.setdefault(kind, request.text)
    return {
        "seeds": len(seeds.order),
        "contradictions": {kind: found[kind] for kind in CONTRADICTIONS},
        "examples": examples,
        "distinct": {name: len(values - {"", ()}) for name, values in distinct.items()},
        "plan_us": round(planning / n * 1e6),
        "render_us": round(rendering / n * 1e6),
    }


def run(n: int, tools: Path | None = None) -> dict[str, dict[str, Any]]:
    return {
        name: examine(load_config(AmplifyConfig, config, [*settings, "select.benchmarks={}"]), seeds, n)
        for name, (config, settings, seeds) in list_cases(tools).items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--n", type=int, default=3000, help="requests of each config")
    parser.add_argument("--tools", type=Path, help="a JSON file with the tool specifications of tau2's domains")
    options = parser.parse_args()
    results = run(options.n, options.tools)
    print(f"contradictions in {options.n:,} requests of each config (before: share at aa8cad5, tau2-90k)")
    for kind in CONTRADICTIONS:
        before = f"{BEFORE[kind]:.1%}" if kind in BEFORE else ""
        print(
            f"  {kind:48} {before:>6} | " + " ".join(f"{each['contradictions'][kind]:>5}" for each in results.values())
        )
    print("  columns: " + ", ".join(results))
    print(
        f"\n{'config':26} seeds personas events tool sets values requests   plan µs (before {BEFORE_MICROSECONDS})  render µs"
    )
    for name, each in results.items():
        d = each["distinct"]
        counted = f"{d['personas']:>8} {d['events']:>6} {d['tool sets']:>9} {d['values']:>6} {d['requests']:>8}"
        print(f"{name:26} {each['seeds']:>5} {counted} {each['plan_us']:>9} {each['render_us']:>20}")
    for name, each in results.items():
        for kind, text in each["examples"].items():
            print(f"\n{name}: {kind}\n{text}", file=sys.stderr)
        each.pop("examples")
    print(json.dumps({"n": options.n, "cases": results}))
    return int(any(sum(each["contradictions"].values()) for each in results.values()))


if __name__ == "__main__":
    sys.exit(main())
