"""The control experiment of docs/loop.md: its table and plot from the stored results, `python docs/control_plot.py [RESULTS.json] [FILE.svg]`.

The results are those that `python eval/loop/control.py --publish` wrote: the outcome of every test task, and the curves of the training.
Intervals of success are 95 % of a bootstrap over tasks and training seeds; a gain is the difference on the same tasks and training seeds. Its
second interval draws the 20 wordings of the tasks in place of single tasks.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

from simia.report.plots import PlotDot, PlotLine, PlotPanel, save_figure

sys.path.append(str(Path(__file__).parents[1] / "eval" / "loop"))
import figures
from control import PUBLISHED, outcomes

T95 = {
    2: 12.706,
    3: 4.303,
    4: 3.182,
    5: 2.776,
    6: 2.571,
}  # two-sided 95 % of Student's t, by the number of training seeds
ARMS = {"start": "start (SFT on the seeds)", "grpo": "GRPO", "shuffled": "GRPO, shuffled rewards"}


def measure(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Success of each arm that was played, and its gain over the start."""
    rows: dict[str, dict[str, Any]] = {}
    start = outcomes(found, "start")
    for arm in ARMS:
        if rewards := outcomes(found, arm):
            rows[arm] = {**figures.own(rewards), "by_seed": {s: sum(t.values()) / len(t) for s, t in rewards.items()}}
            rows[arm]["by_kind"] = figures.by_kind(rewards, found["kinds"])
            if arm != "start":
                rows[arm]["gain"] = figures.gain_from(rewards, start)
                if wordings := found.get("wordings"):
                    rows[arm]["over_wordings"] = figures.gain_from(rewards, start, wordings)
    return rows


def table(found: dict[str, Any], rows: dict[str, dict[str, Any]]) -> str:
    lines = ["| | by training seed | success | over the start | the same, wordings drawn |", "|---|---|---|---|---|"]
    for arm, row in rows.items():
        seeds = ", ".join(f"{100 * value:.1f}" for value in row["by_seed"].values())
        gains = [figures.shown(row[name], signed=True) if name in row else "" for name in ("gain", "over_wordings")]
        lines.append(f"| {ARMS[arm]} | {seeds} | {figures.shown(row)} | {' | '.join(gains)} |")
    kinds = sorted({kind for row in rows.values() for kind in row["by_kind"]})
    lines += ["", f"| by kind of task | {' | '.join(kinds)} |", f"|---|{'---|' * len(kinds)}"]
    for arm, row in rows.items():
        cells = [f"{row['by_kind'][kind]:.2f}" for kind in kinds]
        lines.append(f"| {ARMS[arm]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def make_curve(found: dict[str, Any], arm: str, colour: int) -> PlotLine:
    """Mean reward by step over the training seeds, of the last four steps each (a step has 32 episodes a seed), with the 95 % t interval
    over the training seeds. With three seeds it is wide: t is 4.3."""
    runs = [run["reward"] for name, run in found["training"].items() if name.rpartition("-")[0] == arm]
    points, bounds = list[tuple[float, float]](), list[tuple[float, float]]()
    for n in range(1, min(map(len, runs), default=0) + 1):
        means = [statistics.fmean(run[max(0, n - 4) : n]) for run in runs]
        mean = statistics.fmean(means)
        points.append((n, mean))
        if len(means) in T95:
            half = T95[len(means)] * statistics.stdev(means) / math.sqrt(len(means))
            bounds.append((max(0.0, mean - half), min(1.0, mean + half)))
    return PlotLine(ARMS[arm], points, colour, bounds)


def plot(found: dict[str, Any], rows: dict[str, dict[str, Any]]) -> list[PlotPanel]:
    colours = {arm: number for number, arm in enumerate(ARMS)}
    lines = [line for arm in ARMS if (line := make_curve(found, arm, colours[arm])).points]
    dots = [PlotDot(ARMS[arm], row["mean"], row["low"], row["high"], colours[arm]) for arm, row in rows.items()]
    title = f"Success on {found['plan']['test']} test tasks"
    if "gain" in rows.get("grpo", {}):
        title += f"; gain of GRPO {figures.shown(rows['grpo']['gain'], signed=True)} points"
    panels = [
        PlotPanel("Mean reward in training (four steps; 95 % over training seeds)", lines=lines, x="step"),
        PlotPanel(title, dots=dots),
    ]
    return [panel for panel in panels if panel.lines or panel.dots]


def main(results: Path, out: Path) -> None:
    if not results.is_file():
        sys.exit(f"{results}: no such file; run python eval/loop/control.py --publish first")
    found = json.loads(results.read_text(encoding="utf-8"))
    rows = measure(found)
    print(table(found, rows))
    save_figure(plot(found, rows), out)
    print(out)


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]]
    main(
        next((p for p in given if p.suffix == ".json"), PUBLISHED),
        next((p for p in given if p.suffix == ".svg"), Path(__file__).with_name("control.svg")),
    )
