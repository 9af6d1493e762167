"""The tables of docs/cost.md, computed from `figures.json` and `configs/prices.yaml`: `python eval/cost/tables.py` writes them into the page.

Nothing is measured here. A line through two measured runs gives the fixed cost of a run and the cost per trajectory; the tables extrapolate
it. Memory is on the line through the larger of these runs and a run of 90,000, whose figure is in README.md. The page says that sizes
beyond the measured runs are extrapolated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia.amplification.cost_estimate import RequestGroup, estimate_writing
from simia.amplification.session import open_preview
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.llm.prices import Price, look_up_price

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "cost.md"
BEGIN, END = "<!-- computed by eval/cost/tables.py -->", "<!-- end of what is computed -->"
SIZES = (90_000, 1_000_000, 100_000_000)
EPISODES = 10_000
RATES = {50: "a rented endpoint, assumed", 489: "256 requests at once", 1709: "1,024 at once"}
"""Replies per second → the source of this rate. The last two are those of README.md, measured by eval/bench/engine.py at 0.5 s a reply."""
LARGE_RUN = {"n": 90_000, "peak_mb": 298.0, "accepted_per_second": 298.0}
"""The run of README.md, measured by eval/bench/amplify.py with the checks of form."""
MODELS = ("gpt-5-nano", "gpt-5-mini", "gpt-5")
ACCEPTED = 0.8
"""Share of the replies that is accepted. It depends on model and seeds; measure it with a first run of 100."""
MEMORY_GB = 16
"""Memory of the machine that coordinates."""


@dataclass(frozen=True)
class Line:
    """A straight line through two measured runs."""

    base: float
    each: float

    @classmethod
    def through(cls, runs: list[Mapping[str, float]], total: str) -> Line:
        """The line through the totals of two runs. `total`: `cpu_ms`, `memory_mb` or `disk_kb`."""
        low, high = ((run["n"], TOTALS[total](run)) for run in runs)
        each = (high[1] - low[1]) / (high[0] - low[0])
        return cls(base=low[1] - each * low[0], each=each)

    @classmethod
    def of_memory(cls, runs: list[Mapping[str, float]]) -> Line:
        """Resident megabytes: the line through the larger of the two runs and the run of 90,000."""
        return cls.through([runs[-1], LARGE_RUN], "memory_mb")

    def at(self, n: int) -> float:
        return self.base + self.each * n


TOTALS: dict[str, Any] = {
    "cpu_ms": lambda run: run["cpu_ms_each"] * run["n"],
    "memory_mb": lambda run: run["peak_mb"],
    "disk_kb": lambda run: run["disk_kb_each"] * run["n"],
}


def estimate_request() -> RequestGroup:
    """The mean request of `amplify/default`."""
    config = load_config(AmplifyConfig, "amplify/default", ["llm.kind=openai", "llm.model=gpt-5-mini"], n=1000)
    simulator, seeds = open_preview(config)
    return estimate_writing(config, seeds, simulator)[0]


def compute_price(requests: float, prompt: float, cached: float, reply: float, price: Price) -> tuple[float, float]:
    """Dollars with a prefix cache that serves the shared part of each prompt, and without one."""
    dollars = [
        requests * ((prompt - held) * price.input + held * price.cached + reply * price.output) / 1e6
        for held in (cached, 0.0)
    ]
    return dollars[0], dollars[1]


def compute_size(n: int, runs: list[Mapping[str, float]], request: RequestGroup, rate: int) -> dict[str, Any]:
    """Compute the cost of `n` accepted trajectories at an endpoint with this rate in replies per second. Hours are of one process."""
    replies = n / ACCEPTED
    endpoint = replies / rate / 3600
    processor = Line.through(runs, "cpu_ms").at(n) / 3_600_000
    memory = Line.of_memory(runs).at(n) / 1024
    bounds = ["the endpoint" if endpoint >= processor else "the processor of one process"]
    if memory > MEMORY_GB:
        bounds.append(f"memory, above {MEMORY_GB} GB")
    return {
        "replies": replies, "endpoint_h": endpoint, "cpu_h": processor, "memory_gb": memory,
        "disk_gb": Line.through(runs, "disk_kb").at(n) / 2**20, "bound": "; ".join(bounds),
        "prompt_g": replies * request.prompt / 1e9, "reply_g": replies * request.reply / 1e9,
    }  # fmt: skip


def format_hours(hours: float) -> str:
    if hours < 1 / 30:
        return f"{hours * 3600:.0f} s"
    return f"{hours * 60:.0f} min" if hours < 1 else f"{hours:.1f} h" if hours < 48 else f"{hours / 24:,.0f} days"


def format_size(gigabytes: float) -> str:
    return f"{gigabytes:,.1f} GB" if gigabytes >= 1 else f"{gigabytes * 1024:,.0f} MB"


def format_dollars(low: float, high: float) -> str:
    return f"${low:,.0f} to ${high:,.0f}"


def render(figures: Mapping[str, Any], request: RequestGroup) -> str:
    """All tables in Markdown."""
    runs, play = figures["runs"], figures["episodes"]
    at = {(n, rate): compute_size(n, runs, request, rate) for n in SIZES for rate in RATES}
    first = {n: at[n, min(RATES)] for n in SIZES}
    head = "| | " + " | ".join(f"{n:,}" for n in SIZES) + " |\n|---|" + "---|" * len(SIZES)
    rows = [
        ("replies, of which 80 % are accepted", [f"{first[n]['replies']:,.0f}" for n in SIZES]),
        ("prompt tokens, billion", [f"{first[n]['prompt_g']:,.1f}" for n in SIZES]),
        ("reply tokens, billion", [f"{first[n]['reply_g']:,.2f}" for n in SIZES]),
    ]
    for model in MODELS:
        price = look_up_price(model)
        assert price is not None
        cells = [
            format_dollars(*compute_price(n / ACCEPTED, request.prompt, request.static, request.reply, price))
            for n in SIZES
        ]
        rows.append((f"{model}, with and without a prefix cache", cells))
    rows += [
        (
            f"time at {rate:,} replies a second ({whose}), at least",
            [format_hours(max(at[n, rate]["endpoint_h"], at[n, rate]["cpu_h"])) for n in SIZES],
        )
        for rate, whose in RATES.items()
    ]
    rows += [
        ("processor time of one process", [format_hours(first[n]["cpu_h"]) for n in SIZES]),
        ("memory of one process, measured at 90,000", [format_size(first[n]["memory_gb"]) for n in SIZES]),
        ("disk", [format_size(first[n]["disk_gb"]) for n in SIZES]),
    ]
    rows += [(f"the bound at {rate:,} replies a second", [at[n, rate]["bound"] for n in SIZES]) for rate in RATES]
    body = "\n".join(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)
    requests = EPISODES * play["requests"]
    lines = [
        f"| requests to the simulator ({play['requests']:.1f} an episode) | {requests:,.0f} |",
        f"| prompt and reply tokens a request | {play['prompt']:,.0f}, of which {play['cached']:.0%} are shared; {play['reply']:,.0f} |",
    ]
    for model in MODELS:
        price = look_up_price(model)
        assert price is not None
        cost = compute_price(requests, play["prompt"], play["prompt"] * play["cached"], play["reply"], price)
        lines.append(f"| {model}, with and without a prefix cache | {format_dollars(*cost)} |")
    lines += [
        f"| time at {rate:,} replies a second ({whose}) | {format_hours(requests / rate / 3600)} |"
        for rate, whose in RATES.items()
    ]
    processor = EPISODES * play["calls"] * play["simulated_ms_a_call"] / 3_600_000
    lines.append(f"| processor time of simia | {format_hours(processor)} |")
    small, large = figures["stored"]
    grown = (large["peak_mb"] - small["peak_mb"]) / (large["episodes"] - small["episodes"])
    memory = large["peak_mb"] + grown * (EPISODES - large["episodes"])
    lines.append(
        f"| memory of simia, 64 episodes at once | {memory:,.0f} MB; measured: {large['peak_mb']:,.0f} MB after {large['episodes']:,} |"
    )
    each = large["replies_kb_each"] + large["rows_kb_each"]
    lines.append(
        f"| disk | {format_size(EPISODES * each / 2**20)}: {large['replies_kb_each']:.1f} KB of replies and "
        f"{large['rows_kb_each']:.1f} KB of trajectory an episode |"
    )
    table = "\n".join(lines)
    return f"### Amplification\n\n{head}\n{body}\n\n### {EPISODES:,} episodes of RL\n\n| | |\n|---|---|\n{table}"


def write_page(page: str, tables: str) -> str:
    """The page with these tables between its marks."""
    before, _, rest = page.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main() -> None:
    figures = json.loads((HERE / "figures.json").read_text(encoding="utf-8"))
    PAGE.write_text(write_page(PAGE.read_text(encoding="utf-8"), render(figures, estimate_request())), encoding="utf-8")


if __name__ == "__main__":
    main()
