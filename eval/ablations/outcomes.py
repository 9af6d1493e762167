"""Results of an ablation: the reward of every task of every arm as JSON, and the figure with intervals that is drawn from it.

Intervals are 95 %, by a bootstrap over tasks and training seeds (`eval/loop/figures.py`). Tasks of one scenario are drawn together. All tasks of a
suite weigh alike; `simia eval` averages its parts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from eval.ablations.ablation import Ablation, Size, Step
from eval.loop import figures
from simia.errors import UserError
from simia.evaluation.scores import Scenarios, collect_rewards, find_scenario, read_episodes
from simia.jobs import Run
from simia.report.plots import PlotDot, PlotLine, PlotPanel, save_figure
from simia.statistics import compute_wilson_interval

Rewards = dict[str, float]
"""Task → mean reward of its trials."""


def write_results(path: Path, name: str, plan: Ablation, size: Size, steps: Sequence[Step], runs: Path) -> None:
    """Store the rewards of the evaluations. Raises `UserError` for an arm without a result."""
    rows = []
    for step in steps:
        if step.result:
            tasks, scenarios = read_rewards(step.result, size, runs)
            if not tasks:
                raise UserError(f"{step.arm.name}: no episode of {step.result} has a reward")
            arm = {"arm": step.arm.name, "line": step.arm.line or step.arm.name, "x": step.arm.x}
            rows.append({**arm, "seed": step.seed, "suite": step.suite, "tasks": tasks, "scenarios": scenarios})
    head = {"ablation": name, "title": plan.title, "source": plan.source, "size": size, "x": plan.x}
    path.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", encoding="utf-8")


def read_rewards(result: str, size: Size, runs: Path) -> tuple[Rewards, Scenarios]:
    """The rewards of one evaluation, and the scenarios of tasks that have one: from a file of the tiny student, or a run of simia."""
    if size == "tiny":
        found = json.loads(Path(result).read_text(encoding="utf-8"))["tasks"]
        return {task: row["reward"] for task, row in found.items() if row["reward"] is not None}, {}
    with closing(Run.read_only(runs, result)) as run:
        episodes = list(read_episodes(run))
    parts = collect_rewards(episodes)
    scenarios = {f"{each.part}/{each.task}": name for each in episodes if (name := find_scenario(each))}
    known = {
        f"{part}/{task}": [value for value in values if value is not None]
        for part, tasks in parts.items()
        for task, values in tasks.items()
    }
    return {task: sum(values) / len(values) for task, values in known.items() if values}, scenarios


def read_results(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path}: no results yet; run the ablation first")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def draw_outcomes(found: Mapping[str, Any], out: Path) -> None:
    """Draw a panel for each suite, and print the same figures."""
    panels = []
    for suite in dict.fromkeys(row["suite"] for row in found["rows"]):
        arms = collect_arms(row for row in found["rows"] if row["suite"] == suite)
        for name, (_, _, own) in arms.items():
            print(f"{suite}, {name}: {figures.shown(own)} ({own['tasks']} tasks, {own['seeds']} training seeds)")
        title = f"{found['title']}: reward on {suite} ({found['size']})"
        panels.append(make_panel(title, arms, found["x"]))
    save_figure(panels, out)
    print(out)


def collect_arms(rows: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, float | None, dict[str, Any]]]:
    """Arm → its line, its place, and mean with interval."""
    rewards: dict[str, dict[int, Rewards]] = {}
    units: dict[str, str] = {}
    places: dict[str, tuple[str, float | None]] = {}
    for row in rows:
        rewards.setdefault(row["arm"], {})[row["seed"]] = row["tasks"]
        units |= {task: row.get("scenarios", {}).get(task, task) for task in row["tasks"]}
        places[row["arm"]] = (row["line"], row["x"])
    return {name: (*places[name], figures.own(keep_common(own), units)) for name, own in rewards.items()}


def keep_common(rewards: Mapping[int, Rewards]) -> dict[int, Rewards]:
    """The tasks that have a reward with every training seed."""
    common = set.intersection(*(set(tasks) for tasks in rewards.values()))
    return {seed: {task: tasks[task] for task in sorted(common)} for seed, tasks in rewards.items()}


def make_panel(title: str, arms: Mapping[str, tuple[str, float | None, dict[str, Any]]], x: str) -> PlotPanel:
    if not x:
        dots = [PlotDot(name, o["mean"], o["low"], o["high"], n) for n, (name, (_, _, o)) in enumerate(arms.items())]
        return PlotPanel(title, dots=dots)
    points: dict[str, list[tuple[float, dict[str, Any]]]] = {}
    for line, place, own in arms.values():
        points.setdefault(line, []).append((place or 0.0, own))
    lines = []
    for n, (line, found) in enumerate(points.items()):
        found.sort(key=lambda each: each[0])
        bounds = [(own["low"], own["high"]) for _, own in found]
        lines.append(PlotLine(line, [(place, own["mean"]) for place, own in found], n, bounds))
    return PlotPanel(title, lines=lines, x=x)


def save_counts(name: str, title: str, counts: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Store and draw counts at the level of accepted tasks: rows with `arm`, `measure`, `count`, `of`. Intervals are Wilson's."""
    folder.mkdir(parents=True, exist_ok=True)
    body = {"ablation": name, "title": title, "rows": list(counts)}
    (folder / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
    draw_counts(body, folder / f"{name}.svg")


def draw_counts(found: Mapping[str, Any], out: Path) -> None:
    panels = []
    arms = list(dict.fromkeys(row["arm"] for row in found["rows"]))
    for measure in dict.fromkeys(row["measure"] for row in found["rows"]):
        dots = []
        for row in (row for row in found["rows"] if row["measure"] == measure and row["of"]):
            low, high = compute_wilson_interval(row["count"], row["of"])
            share = row["count"] / row["of"]
            label = f"{row['arm']} ({row['count']:,} of {row['of']:,})"
            dots.append(PlotDot(label, share, low, high, arms.index(row["arm"])))
            print(f"{measure}; {label}: {share:.3f} [{low:.3f}, {high:.3f}]")
        panels.append(PlotPanel(f"{found['title']}: {measure}" if not panels else measure, dots=dots))
    save_figure(panels, out)
    print(out)
