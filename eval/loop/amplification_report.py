"""Tables and figure of the amplification experiment from its stored results: `python eval/loop/amplification_report.py [FOLDER]`.

The folder has a JSON file for each arm and training seed, which `amplification.py` wrote. Nothing is trained or played. The files name the
try, and the try determines the level of the primary interval.
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
PRIMARY = ("swapped", "amplified")
TRAINING_SEEDS = 6
"""Of each primary arm."""
LEVELS = {1: 0.95, 2: 0.975}
"""Try → level of the primary interval."""
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
    same = {(told.get("test"), told["attempt"]) for seeds in found.values() for told in seeds.values()}
    if len(names) > 1 or len(same) > 1:
        raise UserError(f"{folder}: the files are of different test tasks; remove those of another run")
    return found


def check_complete(found: Mapping[str, Mapping[int, Any]], seeds: int = TRAINING_SEEDS) -> None:
    """Raise `UserError` until each primary arm has been tested with this number of training seeds, so that no difference is seen before."""
    for arm in PRIMARY:
        if (there := len(found.get(arm, {}))) < seeds:
            raise UserError(
                f"{arm} is tested with {there} of {seeds} training seeds; results are read when all are there"
            )


def read_attempt(found: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> int:
    """Return the try that the stored files name: 1 or 2."""
    return int(next(iter(next(iter(found.values())).values()))["attempt"])


def read_rewards(seeds: Mapping[int, Mapping[str, Any]]) -> Rewards:
    return {
        seed: {task: float(row["reward"]) for task, row in told["tasks"].items()}
        for seed, told in sorted(seeds.items())
    }


def measure(found: Mapping[str, Mapping[int, Mapping[str, Any]]]) -> dict[str, Any]:
    """Success, comparisons, success by kind and failures by kind, as data. The primary interval has the level of the files' try, all others
    95 %."""
    level = LEVELS[read_attempt(found)]
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
    told = {"tasks": len(tasks), "arms": arms, "comparisons": compared}
    if set(PRIMARY) <= set(rewards):
        told["without_both"] = compare_without(rewards, wordings, kinds, "both")
    return told


def compare_without(
    rewards: Mapping[str, Rewards], wordings: Mapping[str, str], kinds: Mapping[str, str], kind: str
) -> dict[str, Any]:
    """Compare the primary arms on the tasks of all other kinds, with an interval of 95 %."""
    swapped, amplified = (
        {
            seed: {task: value for task, value in row.items() if kinds[task] != kind}
            for seed, row in rewards[arm].items()
        }
        for arm in PRIMARY
    )
    return compare_arms(amplified, swapped, wordings)


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
        rate = f"{row['rate']:.0e}".replace("e-0", "e-")
        lines.append(f"| {ARMS[arm]} | {row['rows']} | {rate} | {seeds} | {shown(row)} |")
    lines += ["", "| comparison | difference, points |", "|---|---|"]
    for pair, row in told["comparisons"].items():
        one, other = (ARMS[arm] for arm in pair.split(" - "))
        note = f" (primary{', interval of 97.5 %' if second else ''})" if pair == " - ".join(COMPARISONS[0]) else ""
        lines.append(f"| {one} over {other}{note} | {shown(row, signed=True)} |")
    if "without_both" in told:
        lines.append(f"| amplified over swapped, without `both` | {shown(told['without_both'], signed=True)} |")
    kinds = sorted({kind for row in arms.values() for kind in row["by_kind"]})
    lines += ["", f"| success by kind | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for arm, row in arms.items():
        shares = " | ".join(f"{row['by_kind'][kind]:.2f}" for kind in kinds)
        lines.append(f"| {ARMS[arm]} | {shares} |")
    names = ("solved", *FAILURES)
    lines += ["", f"| episodes | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for arm, row in arms.items():
        counts = " | ".join(f"{row['failures'][name]:,}" for name in names)
        lines.append(f"| {ARMS[arm]} | {counts} |")
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


def report(folder: Path = FOLDER, seeds: int = TRAINING_SEEDS) -> str:
    """Write results.md, results.json and, with matplotlib, results.svg beside the stored results, and return the tables.

    Raises:
        UserError: The folder has no results, those of different tasks, or fewer than `seeds` training seeds of a primary arm.
    """
    found = load_results(folder)
    check_complete(found, seeds)
    told = measure(found)
    text = render_tables(told, second=read_attempt(found) == 2)
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
