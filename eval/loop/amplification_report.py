"""Tables and figure of the amplification experiment from its stored results: `python eval/loop/amplification_report.py [FOLDER]`.

The folder has a JSON file for each arm and training seed, which `amplification.py` wrote. Nothing is trained or played.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from amplification_failures import FAILURES
from amplification_figures import compare_arms, measure_arm
from figures import Rewards, by_kind, shown

from simia.errors import UserError
from simia.report.plots import NO_PLOTS, PlotDot, PlotPanel, can_plot, save_figure

ARMS = {
    "seeds": "seeds",
    "swapped": "swapped",
    "amplified": "amplified",
    "real": "real",
    "local": "amplified, local",
    "growth": "growth",
}
COMPARISONS = (
    ("amplified", "swapped"),
    ("amplified", "seeds"),
    ("swapped", "seeds"),
    ("growth", "amplified"),
    ("local", "real"),
    ("real", "swapped"),
    ("local", "swapped"),
)
"""The first is the primary comparison."""
FOLDER = Path(__file__).with_name("amplification")


def load_results(folder: Path) -> dict[str, dict[int, dict[str, Any]]]:
    """Arm → training seed → the stored file, in the order of `ARMS`. Dev runs are not among them."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for arm in ARMS:
        for path in sorted(folder.glob(f"{arm}-*.json")):
            told = json.loads(path.read_text(encoding="utf-8"))
            found.setdefault(arm, {})[int(told["seed"])] = told
    if not found:
        raise UserError(f"{folder}: no results; run python eval/loop/amplification.py run first")
    names = {tuple(sorted(told["tasks"])) for seeds in found.values() for told in seeds.values()}
    if len(names) > 1 or len({told.get("test") for seeds in found.values() for told in seeds.values()}) > 1:
        raise UserError(f"{folder}: the files are of different test tasks; remove those of another run")
    return found


def read_rewards(seeds: Mapping[int, Mapping[str, Any]]) -> Rewards:
    return {
        seed: {task: float(row["reward"]) for task, row in told["tasks"].items()}
        for seed, told in sorted(seeds.items())
    }


def measure(found: Mapping[str, Mapping[int, Mapping[str, Any]]], level: float = 0.95) -> dict[str, Any]:
    """Success, comparisons, success by kind and failures by kind, as data."""
    tasks = next(iter(next(iter(found.values())).values()))["tasks"]
    wordings = {task: row["wording"] for task, row in tasks.items()}
    kinds = {task: row["kind"] for task, row in tasks.items()}
    rewards = {arm: read_rewards(seeds) for arm, seeds in found.items()}
    arms = {
        arm: {
            **measure_arm(rewards[arm], wordings),
            "by_seed": {seed: sum(values.values()) / len(values) for seed, values in rewards[arm].items()},
            "by_kind": by_kind(rewards[arm], kinds),
            "rate": next(iter(seeds.values()))["rate"],
            "rows": next(iter(seeds.values()))["rows"],
            "failures": count_failures(seeds),
        }
        for arm, seeds in found.items()
    }
    compared = {
        f"{one} - {other}": compare_arms(rewards[one], rewards[other], wordings, level if place == 0 else 0.95)
        for place, (one, other) in enumerate(COMPARISONS)
        if one in rewards and other in rewards
    }
    return {"tasks": len(tasks), "arms": arms, "comparisons": compared}


def count_failures(seeds: Mapping[int, Mapping[str, Any]]) -> dict[str, int]:
    """Solved episodes and failures of each kind, over all training seeds."""
    counts = Counter(row.get("failure", "solved") for told in seeds.values() for row in told["tasks"].values())
    return {name: counts[name] for name in ("solved", *FAILURES)}


def render_tables(told: Mapping[str, Any], *, second: bool = False) -> str:
    """The tables in Markdown: success, comparisons, kinds of task, failures."""
    arms = told["arms"]
    lines = ["| arm | rows | rate | by training seed | success, % |", "|---|---|---|---|---|"]
    for arm, row in arms.items():
        seeds = ", ".join(f"{100 * value:.1f}" for value in row["by_seed"].values())
        lines.append(f"| {ARMS[arm]} | {row['rows']} | {row['rate']:g} | {seeds} | {shown(row)} |")
    lines += ["", "| comparison | difference, points |", "|---|---|"]
    for pair, row in told["comparisons"].items():
        one, other = (ARMS[arm] for arm in pair.split(" - "))
        note = f" (primary{', interval of 97.5 %' if second else ''})" if pair == " - ".join(COMPARISONS[0]) else ""
        lines.append(f"| {one} over {other}{note} | {shown(row, signed=True)} |")
    kinds = sorted({kind for row in arms.values() for kind in row["by_kind"]})
    lines += ["", f"| success by kind | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for arm, row in arms.items():
        shares = " | ".join(f"{row['by_kind'][kind]:.2f}" for kind in kinds)
        lines.append(f"| {ARMS[arm]} | {shares} |")
    names = ("solved", *FAILURES)
    lines += ["", f"| episodes | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    lines += [f"| {ARMS[arm]} | {' | '.join(str(row['failures'][n]) for n in names)} |" for arm, row in arms.items()]
    return "\n".join(lines)


def make_panels(told: Mapping[str, Any]) -> list[PlotPanel]:
    """Success of each arm with its interval, the comparisons, and success by kind of task."""
    colours = {arm: number for number, arm in enumerate(ARMS)}
    dots = [PlotDot(ARMS[arm], row["mean"], row["low"], row["high"], colours[arm]) for arm, row in told["arms"].items()]
    title = f"Success on {told['tasks']} test tasks"
    if primary := told["comparisons"].get(" - ".join(COMPARISONS[0])):
        title += f"; amplified over swapped {shown(primary, signed=True)} points"
    panels = [PlotPanel(title, dots=dots)]
    pairs = [(pair.split(" - "), row) for pair, row in told["comparisons"].items()]
    if pairs:
        most = max(0.1, *(abs(row[end]) for _, row in pairs for end in ("low", "high")))
        gaps = [
            PlotDot(f"{ARMS[a]} over {ARMS[b]}", row["mean"], row["low"], row["high"], colours[a])
            for (a, b), row in pairs
        ]
        panels.append(PlotPanel("Differences on the same tasks", dots=gaps, bottom=-most, top=most))
    for kind in sorted({kind for row in told["arms"].values() for kind in row["by_kind"]}):
        shares = [(arm, row["by_kind"][kind]) for arm, row in told["arms"].items()]
        panels.append(PlotPanel(kind, dots=[PlotDot(ARMS[arm], s, s, s, colours[arm]) for arm, s in shares]))
    return panels


def report(folder: Path = FOLDER, *, second: bool = False) -> str:
    """Write results.md, results.json and, with matplotlib, results.svg beside the stored results, and return the tables."""
    told = measure(load_results(folder), 0.975 if second else 0.95)
    text = render_tables(told, second=second)
    (folder / "results.md").write_text(text + "\n", encoding="utf-8")
    (folder / "results.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    if not can_plot():
        return f"{text}\n\n{NO_PLOTS}"
    save_figure(make_panels(told), folder / "results.svg")
    return text


if __name__ == "__main__":
    try:
        print(report(*(Path(name) for name in sys.argv[1:2])))
    except UserError as error:
        sys.exit(f"amplification: {error}")
