"""Truth checks: the share of corrupted and of right trajectories that they reject, by kind and language, and what each check costs.

    python eval/bench/truth.py                  # tests/quality/data/truth/seen
    python eval/bench/truth.py FOLDER

The folder holds `right.jsonl` and `corrupted.jsonl`: one object a line with `id`, `language`, `kind`, `note` and `trajectory` (a row
in simia's own dialect). Intervals are Wilson's, 95 %. All other rules run as well, with their default switches: a row's `plan` gives its
goals, and the first right row of its language (`seed_language` where it has one) stands for its seed's language. The findings of
`--only-truth` are those of the truth checks alone. Every right trajectory that is rejected and every corrupted one that is not
is listed. Prints tables; the last line is one JSON object; the exit code is 1 where a right trajectory is rejected or fewer than
70 % of the corrupted ones are.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simia.errors import Issue
from simia.quality.check import Checks, check_trajectory
from simia.quality.goals import PlannedGoal, find_unaddressed_goals
from simia.quality.language import find_other_language
from simia.quality.trajectory_view import TrajectoryView
from simia.quality.truth.facts import TruthView
from simia.quality.truth.truth_checks import CHECKS, TruthChecks, find_untruths
from simia.statistics import compute_wilson_interval
from simia.trajectory import Trajectory

SEEN = Path(__file__).parents[2] / "tests" / "quality" / "data" / "truth" / "seen"
WANTED = 0.70
Row = tuple[dict[str, Any], Trajectory]


def read_rows(path: Path) -> list[Row]:
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [(row, Trajectory.model_validate(row["trajectory"])) for row in rows]


def find_all(
    row: dict[str, Any], t: Trajectory, seeds: dict[str, list[Trajectory]], only_truth: bool, checks: Checks
) -> list[Issue]:
    """Return the findings of one row. `seeds`: right trajectories by language."""
    view = TrajectoryView(t)
    if only_truth:
        return find_untruths(view, checks)
    issues = check_trajectory(t, checks, view=view)
    if not issues:
        goals = [PlannedGoal(tools[-1], before=tuple(tools[:-1])) for tools in row.get("plan", {}).get("goals", [])]
        issues += find_unaddressed_goals(t, goals)
    if not issues:
        language = row.get("seed_language", row["language"])
        issues += find_other_language(view, next(seed for seed in seeds[language] if seed is not t))
    return issues


def show_table(title: str, counts: dict[str, tuple[int, int]]) -> None:
    print(f"\n{title}")
    for name, (rejected, n) in counts.items():
        low, high = compute_wilson_interval(rejected, n)
        print(f"  {name:<24} {rejected:>3} of {n:<3} {rejected / n:6.1%}  [{low:.3f}, {high:.3f}]")


def measure(rows: list[Row], check: Callable[[Trajectory], object], rounds: int = 5) -> float:
    """Microseconds of CPU per trajectory; the best of several rounds, since other processes only add time."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        for _, t in rows:
            check(t)
        times.append(time.process_time() - start)
    return min(times) / len(rows) * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=SEEN)
    parser.add_argument("--only-truth", action="store_true")
    parser.add_argument("--every", action="store_true", help="also the truth checks that are off by default")
    args = parser.parse_args()
    checks = Checks(**dict.fromkeys(TruthChecks.model_fields, True)) if args.every else Checks()  # type: ignore[arg-type]
    summary: dict[str, Any] = {}
    rows = {name: read_rows(args.folder / f"{name}.jsonl") for name in ("corrupted", "right")}
    seeds: dict[str, list[Trajectory]] = defaultdict(list)
    for row, t in rows["right"]:
        seeds[row["language"]].append(t)
    for name, given in rows.items():
        by: dict[str, list[bool]] = defaultdict(list)
        codes: Counter[str] = Counter()
        for row, t in given:
            issues = find_all(row, t, seeds, args.only_truth, checks)
            codes.update({issue.code.value for issue in issues})
            for key in (row["kind"], row["language"], "all"):
                by[key].append(bool(issues))
            if bool(issues) != (name == "corrupted"):
                print(f"{row['id']}: {issues[0] if issues else 'not rejected'}: {row['note']}")
        show_table(f"{name}: rejected", {key: (sum(found), len(found)) for key, found in sorted(by.items())})
        print("  codes:", ", ".join(f"{code} {n}" for code, n in codes.most_common()) or "none")
        rejected, n = sum(by["all"]), len(by["all"])
        summary[name] = {"rejected": rejected, "n": n, "high": round(compute_wilson_interval(rejected, n)[1], 4)}
    everything = [*rows["right"], *rows["corrupted"]]
    base = measure(everything, lambda t: TruthView(TrajectoryView(t)).steps)
    print(f"\nmicroseconds a trajectory, beyond {base:.0f} for the view and the parsed results")
    for switch, find in CHECKS:
        cost = measure(everything, lambda t, find=find: list(find(TruthView(TrajectoryView(t)))))  # type: ignore[misc]
        print(f"  {switch:<24} {max(0.0, cost - base):6.0f}")
    summary["microseconds"] = round(measure(everything, lambda t: find_untruths(TrajectoryView(t), checks)))
    print(f"  {'all together':<24} {summary['microseconds']:6}")
    print(json.dumps(summary))
    right, corrupted = summary["right"], summary["corrupted"]
    return int(right["rejected"] > 0 or corrupted["rejected"] < WANTED * corrupted["n"])


if __name__ == "__main__":
    raise SystemExit(main())
