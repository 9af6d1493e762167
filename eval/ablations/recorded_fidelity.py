"""Measure how the simulator's knowledge and its ledger change the fidelity of recorded answers; store and draw the figures.

    python -m eval.ablations.recorded_fidelity knowledge
    python -m eval.ablations.recorded_fidelity ledger

The data is the conversation of docs/simulated.md: 25 calls of customer_service, in prompts that are too small for the whole history. A
strong model that saw schema, reference or tables answered them, with the ledger and without it. Gains compare two arms call by call.
Intervals are a bootstrap over the calls of one conversation, so they are too narrow.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simia.errors import UserError
from simia.evaluation.fidelity import Fidelity, estimate_gain
from simia.report.fidelity_plot import make_fidelity_panels
from simia.report.plots import PlotDot, PlotPanel, save_figure
from simia.statistics import Estimate

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results"
MEASURES = ("value_f1", "memory")


Both = tuple[Fidelity, Fidelity]
"""With the ledger, and without it."""
Estimates = dict[str, dict[str, Estimate]]
"""Arm, or pair of arms → measure → estimate."""


def choose(found: dict[str, Both], what: str) -> dict[str, Fidelity]:
    """`knowledge`: what is known, with the ledger. `ledger`: with and without it, for all that is known."""
    if what == "knowledge":
        return {way: both[0] for way, both in found.items()}
    if what == "ledger":
        return {
            f"{way}, {name}": each
            for way, both in found.items()
            for name, each in zip(("ledger", "no ledger"), both, strict=True)
        }
    raise UserError(f"unknown comparison {what!r}; choose knowledge or ledger")


def list_pairs(found: dict[str, Both], what: str) -> dict[str, Both]:
    """List the pairs of arms to compare. `reference, free` continues from its own answers, so it has no pair in `knowledge`."""
    if what == "ledger":
        return {f"{way}: ledger or none": both for way, both in found.items()}
    return {f"{way} or schema": (found[way][0], found["schema"][0]) for way in ("reference", "state")}


def estimate_arms(chosen: dict[str, Fidelity]) -> Estimates:
    found = {name: {measure: each.interval(measure) for measure in MEASURES} for name, each in chosen.items()}
    return {name: {key: each for key, each in row.items() if each is not None} for name, row in found.items()}


def estimate_gains(pairs: dict[str, Both]) -> Estimates:
    found = {name: {measure: estimate_gain(*both, measure) for measure in MEASURES} for name, both in pairs.items()}
    return {name: {key: each for key, each in row.items() if each is not None} for name, row in found.items()}


def measure(what: str) -> tuple[dict[str, Fidelity], Estimates, Estimates]:
    """The arms, their figures, and the gains."""
    script = runpy.run_path(str(ROOT / "docs" / "fidelity.py"), run_name="fidelity")
    found: dict[str, Both] = asyncio.run(script["gathered"]())
    chosen = choose(found, what)
    return chosen, estimate_arms(chosen), estimate_gains(list_pairs(found, what))


def make_gain_panels(gains: Estimates) -> list[PlotPanel]:
    titles = {"value_f1": "Gain of F1, the same calls", "memory": "Gain of earlier values that are repeated"}
    panels = []
    for name, title in titles.items():
        rows = {pair: row[name] for pair, row in gains.items() if name in row}
        dots = [PlotDot(pair, each.value, each.low, each.high) for pair, each in rows.items()]
        panels.append(PlotPanel(title, dots=dots, bottom=-0.25, top=0.5))
    return panels


def make_body(arms: Estimates, gains: Estimates) -> dict[str, Any]:
    """Make the stored object: the figures of the arms, and the gains."""
    return {
        key: {name: {measure: asdict(each) for measure, each in row.items()} for name, row in found.items()}
        for key, found in (("arms", arms), ("gains", gains))
    }


def draw(chosen: dict[str, Fidelity], gains: Estimates, out: Path) -> None:
    save_figure([*make_fidelity_panels(chosen), *make_gain_panels(gains)], out)


def main(what: str) -> None:
    chosen, arms, gains = measure(what)
    for name, row in (*arms.items(), *gains.items()):
        print(name, *(f"{measure} {each}" for measure, each in row.items()), sep="; ")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"own_{what}.json").write_text(json.dumps(make_body(arms, gains), indent=1) + "\n", encoding="utf-8")
    draw(chosen, gains, RESULTS / f"own_{what}.svg")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "")
    except UserError as error:
        sys.exit(f"ablation: {error}")
