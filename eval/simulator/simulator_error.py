"""The experiment "how good must a simulator be?": GRPO in simulated worlds whose share of wrong answers, or of wrong verdicts, is known.

    nice env OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive python eval/simulator/simulator_error.py run      # hours on two cores
    python eval/simulator/simulator_error.py mark NAME DIFFERENCES.jsonl      # errors of a real simulator, from `simia fidelity --frozen`
    python eval/simulator/simulator_error.py report

docs/experiments/simulator-error.md fixes the comparison. Model, tasks, starts, trainer and test are those of the control experiment
(eval/loop/control.py). All files are under `~/.cache/simia/experiments/simulator-error` (`--work`); finished parts are skipped, and a
killed training resumes from its last checkpoint. `report` reads the outcomes from `eval/simulator/error.json` (`--results`), which `run`
writes.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
sys.path.append(str(Path(__file__).parents[1] / "loop"))

import control
import figures

from eval.simulator.stand_in import StandIn, serve
from simia.errors import UserError
from simia.pack import Pack
from simia.report.plots import PlotDot, PlotLine, PlotPanel, save_figure
from simia.search_path import cache_root
from simia.state import are_equal
from simia.statistics import compute_wilson_interval

RESULTS = Path(__file__).with_name("error.json")
MARKS = Path(__file__).with_name("marks.json")
ARMS = {
    "exact": {},
    "answers-30": {"answers": 0.3},
    "answers-10": {"answers": 0.1},
    "verdicts-20": {"verdicts": 0.2},
}
PRIMARY = ("exact", "answers-30")
PLANS = {"full": replace(control.PLANS["full"], seeds=2), "tiny": control.PLANS["tiny"]}


class SimulatorError(control.Control):
    """One experiment in one folder."""

    def __init__(self, work: Path, plan: control.Plan, model: Path | None, *, results: Path, workers: int) -> None:
        super().__init__(work, plan, model)
        self.results, self.workers = results, workers
        self.stand_ins: dict[str, StandIn] = {}
        self.told = self.work / "replies.json"
        known = json.loads(self.told.read_text()) if self.told.exists() else {}
        self.before = {arm: Counter[str](known.get(arm, {})) for arm in ARMS}
        """Replies of earlier starts: those of steps that a killed training repeats are counted twice."""

    def run(self) -> None:
        """Train and play every arm: the arms of the primary comparison with all training seeds first, then the starts."""
        self.prepare()
        others = [arm for arm in ARMS if arm not in PRIMARY]
        jobs = [(arm, seed) for arms in (PRIMARY, ["start"], others) for seed in range(self.plan.seeds) for arm in arms]
        with ExitStack() as stack:
            for arm, shares in ARMS.items():
                self.stand_ins[arm] = StandIn(Pack.load(self.pack), **shares)
                self.write_environment(arm, stack.enter_context(serve(self.stand_ins[arm])))
            with ThreadPoolExecutor(self.workers) as pool:
                starts = {seed: pool.submit(self.start, seed) for seed in range(self.plan.seeds)}
                for job in [pool.submit(self.work_on, arm, seed, starts[seed].result) for arm, seed in jobs]:
                    job.result()

    def work_on(self, arm: str, seed: int, started: object) -> None:
        assert callable(started)
        started()
        if arm != "start":
            self.train(arm, seed)
        self.play(self.model(arm, seed), "test", f"{arm}-{seed}")
        self.report()

    def environment(self, arm: str) -> Path:
        return self.work / (f"environment-{arm}.json" if arm in ARMS else "environment.json")

    def write_environment(self, arm: str, url: str) -> None:
        """Write the environment config of an arm: a simulated world that holds the state. The tasks' rules judge it, or the stand-in if
        the arm has wrong verdicts."""
        common = json.loads(self.environment("start").read_text())
        model = {"kind": "openai", "base_url": url, "model": arm, "reasoning_model": False}
        given = {
            **common, "backend": "simulated", "backend_settings": {"knowledge": "state"}, "simulator": model,
            "reward": "oracle" if "verdicts" in ARMS[arm] else "rules",
        }  # fmt: skip
        self.environment(arm).write_text(json.dumps(given, indent=1))

    def report(self) -> dict[str, Any]:
        """Store the results so far, in a small file."""
        found = super().report()
        replies = {arm: dict(self.before[arm] + stand_in.counts) for arm, stand_in in self.stand_ins.items()}
        if replies:
            self.told.write_text(json.dumps(replies, indent=1))
        if found["test"]:
            self.results.write_text(json.dumps({**found, "replies": replies}, indent=1) + "\n")
        return found


def write_table(found: dict[str, Any]) -> str:
    """Success of each arm and its difference from the exact simulator and from the start, with intervals."""
    arms = {arm: control.outcomes(found, arm) for arm in ("start", *ARMS)}
    lines = [
        "| arm | by training seed | success, % | over the start, points | over exact, points |",
        "|" + " --- |" * 5,
    ]
    for arm, rewards in arms.items():
        if not rewards:
            lines.append(f"| {arm} | not played | | | |")
            continue
        by_seed = ", ".join(f"{100 * fmean(tasks.values()):.1f}" for tasks in rewards.values())
        cells = [
            write_gain(rewards, arms[other]) if arm not in (other, "start") else "" for other in ("start", "exact")
        ]
        lines.append(f"| {arm} | {by_seed} | {100 * figures.mean(rewards):.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_wordings(found: dict[str, Any]) -> str:
    """The differences of `write_table` with intervals that draw the 20 wordings of the test tasks in place of single tasks."""
    arms = {arm: control.outcomes(found, arm) for arm in ("start", *ARMS)}
    lines = ["| wordings drawn | over the start, points | over exact, points |", "|" + " --- |" * 3]
    for arm, rewards in arms.items():
        if rewards and arm != "start":
            cells = [
                write_gain(rewards, arms[other], found["wordings"]) if arm != other else ""
                for other in ("start", "exact")
            ]
            lines.append(f"| {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_gain(rewards: figures.Rewards, base: figures.Rewards, units: figures.Units | None = None) -> str:
    """The difference of two arms over the training seeds that both have."""
    return figures.shown(figures.gain_from(rewards, base, units), signed=True) if rewards.keys() & base.keys() else ""


def write_signals(found: dict[str, Any]) -> str:
    """Write what GRPO learnt from: the reward in training, and how many groups had unequal rewards, the only ones with an advantage."""
    told, groups = found["training"], found["plan"]["steps"] * found["plan"]["groups"]
    lines = [
        f"| arm | reward, first and last ten steps | groups with unequal rewards, of {groups}, by training seed |",
        "|" + " --- |" * 3,
    ]
    for arm in ARMS:
        if seeds := [told[name] for seed in range(found["plan"]["seeds"]) if (name := f"{arm}-{seed}") in told]:
            first, last = (
                fmean(fmean(each["reward"][part]) for each in seeds) for part in (slice(10), slice(-10, None))
            )
            lines.append(
                f"| {arm} | {first:.2f}, {last:.2f} | {', '.join(str(sum(each['mixed'])) for each in seeds)} |"
            )
    return "\n".join(lines)


def refuse_early_look(found: dict[str, Any]) -> None:
    """Raise `UserError` before both arms of the primary comparison are played with all training seeds, as the plan says."""
    names = [f"{arm}-{seed}" for arm in PRIMARY for seed in range(found["plan"]["seeds"])]
    if missing := [name for name in names if name not in found["test"]]:
        raise UserError(f"not played yet: {', '.join(missing)}; results are read when these are there")


def mark(name: str, differences: Path, marks: Path = MARKS) -> None:
    """Store how many answers of a real simulator to the frozen calls are wrong, by kind, from the `differences.jsonl` of its measure."""
    rows = [json.loads(line) for line in differences.read_text().splitlines()]
    known = json.loads(marks.read_text()) if marks.exists() else {}
    known[name] = count_errors(rows)
    marks.write_text(json.dumps(known, indent=1) + "\n")


def count_errors(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Count the calls, the wrong answers, and these by kind, the most frequent first."""
    kinds = Counter(kind for kind in map(name_error, rows) if kind)
    return {"calls": len(rows), "wrong": kinds.total(), "kinds": dict(kinds.most_common())}


def name_error(row: Mapping[str, Any]) -> str:
    """Name the kind of a wrong answer, the first that applies; empty if it is right. The words of a refusal do not count.

    `unreadable`: there is no answer. `let through`, `refused`: the outcome differs. `forgotten`, `other changes`: the changes differ, and
    none or some are named. `other value`: a value of the result differs.
    """
    real, told = row["real"], row.get("simulated")
    if not told:
        return "unreadable"
    if real["failed"] != told["failed"]:
        return "let through" if real["failed"] else "refused"
    step = row["transition"]
    if not step["exact"]:
        return "other changes" if step["simulated"] else "forgotten"
    return "" if real["failed"] or are_equal(real["content"], told["content"]) else "other value"


def write_marks(marks: Mapping[str, Mapping[str, Any]]) -> str:
    """Write real simulators' shares of wrong answers, with Wilson's intervals, and their kinds."""
    lines = ["| simulator | wrong answers to the frozen calls |", "| --- | --- |"]
    for name, told in marks.items():
        low, high = compute_wilson_interval(told["wrong"], told["calls"])
        kinds = ", ".join(f"{count} {kind}" for kind, count in told["kinds"].items())
        lines.append(f"| {name} | {told['wrong']} of {told['calls']} [{low:.2f}, {high:.2f}]{kinds and f': {kinds}'} |")
    return "\n".join(lines) + "\n"


def draw(found: dict[str, Any], marks: Mapping[str, Mapping[str, Any]]) -> list[PlotPanel]:
    """Draw success in the executable world against the share of wrong answers, and below it real simulators on the same axis."""
    by_share = {0: "exact", 10: "answers-10", 30: "answers-30"}
    lines = []
    for seed in range(found["plan"]["seeds"]):
        points = [
            (float(share), 100 * fmean(tasks[seed].values()))
            for share, arm in by_share.items()
            if seed in (tasks := control.outcomes(found, arm))
        ]
        lines.append(PlotLine(f"training seed {seed}", points, colour=seed))
    start = 100 * figures.mean(control.outcomes(found, "start"))
    lines.append(PlotLine("start, no GRPO", [(0.0, start), (100.0, start)], colour=2))
    dots = []
    for name, told in marks.items():
        low, high = compute_wilson_interval(told["wrong"], told["calls"])
        dots.append(PlotDot(name, 100 * told["wrong"] / told["calls"], 100 * low, 100 * high, colour=3))
    return [
        PlotPanel("success in the executable world, %", lines=lines, top=80.0, bottom=30.0),
        PlotPanel("wrong answers of real simulators, % of 40 frozen calls", dots=dots, top=100.0, x="wrong answers, %"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="How good must a simulator be?")
    parser.add_argument("verb", choices=["run", "mark", "report"])
    parser.add_argument(
        "words", nargs="*", metavar="NAME DIFFERENCES", help="of mark: the simulator's name, and the file"
    )
    parser.add_argument("--plan", choices=PLANS, default="full")
    parser.add_argument("--work", type=Path, default=cache_root() / "experiments" / "simulator-error")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--model", type=Path, help="a prepared model, in place of SmolLM2-135M-Instruct")
    parser.add_argument("--workers", type=int, default=2, help="trainings at once")
    parser.add_argument("--plot", type=Path, help="of report: also draw the figure into this .svg or .png")
    given = parser.parse_args()
    if len(given.words) != (2 if given.verb == "mark" else 0):
        parser.error("mark takes NAME and DIFFERENCES.jsonl; run and report take nothing")
    if given.verb == "mark":
        mark(given.words[0], Path(given.words[1]))
    if given.verb in ("mark", "report") and MARKS.exists():
        print(write_marks(json.loads(MARKS.read_text())))
    if given.verb == "mark":
        return
    if given.verb == "report":
        if not given.results.exists():
            raise UserError(f"there is no {given.results}: run the experiment first")
        found = json.loads(given.results.read_text())
        refuse_early_look(found)
        print(write_table(found), write_wordings(found), write_signals(found), sep="\n\n")
        if given.plot:
            save_figure(draw(found, json.loads(MARKS.read_text())), given.plot)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    given.work.mkdir(parents=True, exist_ok=True)
    with (given.work / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(
                f"another process runs the experiment in {given.work}: wait for its end or stop it"
            ) from None
        SimulatorError(given.work, PLANS[given.plan], given.model, results=given.results, workers=given.workers).run()


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"simulator_error: {error}")
