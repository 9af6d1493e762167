"""The amplification experiment: does a small model learn more from amplified trajectories than from seeds with other values?

    nice python eval/loop/amplification.py prepare --strong RUN      # rows of each arm, tasks, the check that nothing is shared
    nice python eval/loop/amplification.py run                       # dev runs, trainings, test tasks, in the order of the plan
    python eval/loop/amplification.py report                         # tables and figure from eval/loop/amplification

The stages of `run` are also verbs: dev, train, test. docs/experiments/amplification.md fixes the comparison. Rows, models and logs are
under `~/.cache/simia/experiments/amplification` (`--work`), results in `eval/loop/amplification` (`--results`), a file for each arm and
training seed. Finished parts are skipped, so the same command resumes a killed run: training at its last checkpoint, playing at its
last batch.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import amplification_report
import tasks
from amplification_data import draw_arms, load_amplified, load_rollouts
from amplification_failures import classify_failure
from amplification_report import PRIMARY
from amplification_tasks import check_apart, render_task
from run import HERE, SIZES, Loop

import simia
from simia.errors import UserError
from simia.pack import Pack
from simia.search_path import cache_root
from simia.trajectory import Trajectory

TUNING_SEED = 1000
RESULTS = HERE / "amplification"


@dataclass(frozen=True)
class Plan:
    """Size of the experiment. `arms`: arm → training seeds, in the order of training; `rows`: number of trajectories besides the seeds."""

    arms: Mapping[str, int] = field(
        default_factory=lambda: {"swapped": 6, "amplified": 6, "seeds": 6, "real": 6, "local": 6, "growth": 2}
    )
    rows: int = 70
    growth: int = 210
    steps: int = 60
    batch: int = 4
    rates: tuple[float, ...] = (5e-4, 2e-4)
    tasks: Mapping[str, int] = field(default_factory=dict)


PLANS = {
    "full": Plan(),
    "tiny": Plan(
        arms={"swapped": 1, "amplified": 1, "seeds": 1},
        rows=10,
        steps=2,
        batch=2,
        tasks={"test": 6, "dev": 2, "train": 4},
    ),
}


class Experiment:
    """One experiment in one folder. `attempt`: 1, or 2 for the second try of the plan; `tuned`: results of the try whose dev runs chose the rates."""

    def __init__(
        self,
        work: Path,
        results: Path,
        plan: Plan,
        *,
        model: Path | None = None,
        workers: int = 1,
        attempt: int = 1,
        tuned: Path | None = None,
    ) -> None:
        self.work, self.results, self.plan, self.attempt = work.resolve(), results, plan, attempt
        self.tuned = tuned or results
        self.loop = Loop(self.work, SIZES["small"], python=None, model=model, workers=workers, worlds=[])
        self.pack = self.work / "pack"

    # -- data -------------------------------------------------------------------------------------------------------

    def prepare(self, runs: Mapping[str, Path]) -> None:
        """Write the rows of the arms and the tasks, and check that they share nothing. `runs`: strong, real, local → folder of a run."""
        seeds = list(Pack.load(HERE / "pack").seeds)
        if not self.rows("amplified").exists():
            if "strong" not in runs:
                raise UserError("the amplified arm has no rows; name the run of the strong model with --strong")
            plan = self.plan
            made = draw_arms(runs["strong"], seeds, self.pack, rows=plan.rows, attempt=self.attempt, counts=plan.tasks)
            for arm, rows in made.items():
                self.write_rows(arm, rows)
        held = self.read_tasks()
        apart = set[str]().union(*(tasks.entities(render_task(row)) for s in ("test", "dev") for row in held[s]))
        if self.attempt == 1 and "strong" in runs and "growth" in self.plan.arms:
            found = load_amplified(runs["strong"], None, apart)[: self.plan.growth]
            grown = len(self.read_rows("growth")) - len(seeds) if self.rows("growth").exists() else self.plan.rows
            if len(found) > grown:  # the run has more trajectories than before
                self.write_rows("growth", [*seeds, *found])
        if {"real", "local"} <= set(runs) and not self.rows("real").exists():
            real = load_rollouts(runs["real"], self.plan.rows)
            self.write_rows("local", [*seeds, *load_amplified(runs["local"], len(real), apart)])
            self.write_rows("real", [*seeds, *real])
        arms = {arm: self.read_rows(arm) for arm in self.ready()}
        found_shared = check_apart({split: held[split] for split in ("test", "dev")}, arms)
        (self.work / "apart.json").write_text(json.dumps(found_shared, indent=1) + "\n")
        for pair, shared in found_shared.items():
            print(f"shared by {pair}: {len(shared['entities'])} values, {len(shared['requests'])} requests")
        self.loop.prepare()

    def write_rows(self, arm: str, rows: Sequence[Trajectory]) -> None:
        folder = self.rows(arm).parent
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trajectories.jsonl").write_text("".join(json.dumps(row.to_row()) + "\n" for row in rows))
        report = simia.export(list(rows), folder, to="trl")
        if report.rows != len(rows):
            self.rows(arm).unlink()
            raise UserError(f"{folder}: {report.rows} of {len(rows)} trajectories could be exported: {report.refused}")

    def read_rows(self, arm: str) -> list[Trajectory]:
        lines = (self.rows(arm).parent / "trajectories.jsonl").read_text().splitlines()
        return [Trajectory.from_row(json.loads(line)) for line in lines]

    def read_tasks(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {"test": [], "dev": [], "train": [], "seed": []}
        for line in (self.pack / "tasks.jsonl").read_text().splitlines():
            row = json.loads(line)
            found[row["split"]].append(row)
        return found

    def ready(self) -> list[str]:
        """The plan's arms that have rows, in the order of training. The second try has the primary arms only."""
        arms = self.plan.arms if self.attempt == 1 else PRIMARY
        return [arm for arm in arms if self.rows(arm).exists()]

    # -- stages -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for arms in (PRIMARY, ("seeds",), ("real", "local"), ("growth",)):
            wanted = [arm for arm in arms if arm in self.ready()]
            if self.tuned == self.results:
                self.tune(wanted)
            self.do_all([
                lambda arm=arm, seed=seed: self.train_and_test(arm, seed)
                for arm, seed in self.list_models(wanted)
            ])  # fmt: skip

    def train_and_test(self, arm: str, seed: int) -> None:
        """Train one model and play the test tasks with it, so that no worker waits for another arm."""
        if not self.result(arm, seed).exists():
            self.learn(arm, self.choose_rate(arm), seed, self.model(arm, seed))
            self.test_one(arm, seed)

    def tune(self, arms: Sequence[str]) -> None:
        """Train each arm with each rate and the tuning seed, and play the dev tasks."""
        jobs = [(arm, rate) for arm in arms if arm != "growth" for rate in self.plan.rates]
        self.do_all([lambda arm=arm, rate=rate: self.try_rate(arm, rate) for arm, rate in jobs])

    def try_rate(self, arm: str, rate: float) -> None:
        out = self.results / f"dev-{arm}-{rate:g}.json"
        if out.exists():
            return
        model = self.work / "models" / f"dev-{arm}-{rate:g}"
        self.learn(arm, rate, TUNING_SEED, model)
        self.play(model, "dev", out, {"arm": arm, "rate": rate, "seed": TUNING_SEED})
        shutil.rmtree(model)

    def choose_rate(self, arm: str) -> float:
        """Return the rate that solves most dev tasks; of equal rates, the first in the plan."""
        arm = "amplified" if arm == "growth" else arm
        paths = {rate: self.tuned / f"dev-{arm}-{rate:g}.json" for rate in self.plan.rates}
        if missing := [path for path in paths.values() if not path.exists()]:
            raise UserError(f"{missing[0]}: no such file; run the stage dev first")
        solved = {
            rate: sum(row["reward"] for row in read_result(path)["tasks"].values()) for rate, path in paths.items()
        }
        return max(solved, key=lambda rate: solved[rate])

    def train(self, arms: Sequence[str]) -> None:
        """Train the arms, seed by seed. A trained model that was tested is not trained again."""
        rates = {arm: self.choose_rate(arm) for arm in arms}
        self.do_all([
            lambda arm=arm, seed=seed: self.learn(arm, rates[arm], seed, self.model(arm, seed))
            for arm, seed in self.list_models(arms)
            if not self.result(arm, seed).exists()
        ])  # fmt: skip

    def test(self, arms: Sequence[str]) -> None:
        """Play the test tasks with each trained model and store the outcomes, which `report` reads when the primary arms have all of theirs."""
        jobs = self.list_models(arms)
        for arm, seed in jobs:
            if not (self.model(arm, seed).exists() or self.result(arm, seed).exists()):
                raise UserError(f"{arm} is not trained with seed {seed}; run the stage train first")
        self.do_all([lambda arm=arm, seed=seed: self.test_one(arm, seed) for arm, seed in jobs])

    def list_models(self, arms: Sequence[str]) -> list[tuple[str, int]]:
        """Arms and training seeds of the plan, seed by seed."""
        most = max((self.plan.arms[arm] for arm in arms), default=0)
        return [(arm, seed) for seed in range(most) for arm in arms if seed < self.plan.arms[arm]]

    def test_one(self, arm: str, seed: int) -> None:
        out = self.result(arm, seed)
        if not out.exists():
            facts: dict[str, Any] = {"arm": arm, "seed": seed, "rate": self.choose_rate(arm)}
            facts |= {"rows": len(self.read_rows(arm)), "test": digest_tasks(self.read_tasks()["test"])}
            self.play(self.model(arm, seed), "test", out, {**facts, "attempt": self.attempt})

    def learn(self, arm: str, rate: float, seed: int, out: Path) -> None:
        out.parent.mkdir(parents=True, exist_ok=True)
        plan = self.plan
        words: list[Any] = ["--data", self.rows(arm), "--steps", plan.steps, "--batch", plan.batch, "--rate", rate]
        words += ["--seed", seed, "--checkpoint", out.with_name(f".{out.name}.pt"), "--keep", out]
        self.loop.once(out, lambda: self.loop.student("learn", self.loop.model, self.pack, *words, log=out.name))

    def play(self, model: Path, split: str, out: Path, facts: Mapping[str, Any]) -> None:
        """Play a split and write a small file: of each task whether it is solved, its kind and wording, and why it failed."""
        played = self.work / "played" / out.name
        played.parent.mkdir(exist_ok=True)
        words = [self.loop.python, HERE / "amplification_play.py", model, self.pack, split, played]
        self.loop.once(played, lambda: self.loop.run(words, f"{out.stem}-play", self.loop.env))
        rows = {row["id"]: row for row in self.read_tasks()[split]}
        told = {name: summarise(rows[name], row) for name, row in json.loads(played.read_text())["tasks"].items()}
        out.parent.mkdir(parents=True, exist_ok=True)
        draft = out.with_name(f".{out.name}.{os.getpid()}")
        lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(row)}" for name, row in told.items())
        draft.write_text(f'{json.dumps(dict(facts))[:-1]}, "tasks": {{\n{lines}\n}}}}\n')
        draft.replace(out)

    # -- paths ------------------------------------------------------------------------------------------------------

    def do_all(self, jobs: Sequence[Callable[[], None]]) -> None:
        with ThreadPoolExecutor(self.loop.workers) as pool:
            waiting = [pool.submit(job) for job in jobs]
            try:
                for job in waiting:
                    job.result()
            except BaseException:
                for job in waiting:
                    job.cancel()
                raise

    def rows(self, arm: str) -> Path:
        return self.work / "data" / arm / "data.jsonl"

    def model(self, arm: str, seed: int) -> Path:
        return self.work / "models" / f"{arm}-{seed}"

    def result(self, arm: str, seed: int) -> Path:
        return self.results / f"{arm}-{seed}.json"


def digest_tasks(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a digest of the tasks: results of different machines belong together only if theirs are equal."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]


def summarise(task: Mapping[str, Any], played: Mapping[str, Any]) -> dict[str, Any]:
    """The published outcome of one task."""
    kind, *wording = task["tags"]
    solved = int(played["reward"])
    failure = {} if solved else {"failure": classify_failure(task, played["calls"])}
    return {"reward": solved, "kind": kind, **({"wording": wording[0]} if wording else {}), **failure}


def read_result(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description="The amplification experiment.")
    parser.add_argument("stage", choices=("prepare", "dev", "train", "test", "run", "report"))
    parser.add_argument("--strong", type=Path, help="run folder of simia amplify with the strong model")
    parser.add_argument("--local", type=Path, help="run folder of simia amplify with the local model")
    parser.add_argument(
        "--real",
        type=Path,
        help="run folder of simia rollout with the local model on the training tasks, or a file of its trajectories",
    )
    parser.add_argument("--arms", default="", help="for dev, train and test: only these arms, separated by commas")
    parser.add_argument("--plan", choices=PLANS, default="full")
    parser.add_argument(
        "--attempt", type=int, choices=(1, 2), default=1, help="2: the second try, in folders of its own"
    )
    parser.add_argument("--work", type=Path, help="folder of rows, models and logs")
    parser.add_argument("--results", type=Path, help="folder of the results")
    parser.add_argument("--model", type=Path, help="a prepared model in place of SmolLM2-135M-Instruct")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="trainings at once")
    given = parser.parse_args()
    suffix = "" if given.attempt == 1 else f"-{given.attempt}"
    work = given.work or cache_root() / "experiments" / f"amplification{suffix}"
    results = given.results or RESULTS.with_name(f"{RESULTS.name}{suffix}")
    if given.stage == "report":
        print(amplification_report.report(results, PLANS[given.plan].arms["amplified"]))
        return
    work.mkdir(parents=True, exist_ok=True)
    lock = (work / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UserError(f"another process runs the experiment in {work}; wait for its end or stop it") from None
    experiment = Experiment(
        work,
        results.resolve(),
        PLANS[given.plan],
        model=given.model,
        workers=given.workers,
        attempt=given.attempt,
        tuned=RESULTS if given.attempt == 2 else None,
    )
    if given.stage == "prepare":
        runs = {"strong": given.strong, "local": given.local, "real": given.real}
        experiment.prepare({name: path.resolve() for name, path in runs.items() if path})
        return
    if not (work / "apart.json").exists():
        raise UserError(f"{work}: no rows yet; run the stage prepare first")
    if given.stage == "run":
        experiment.run()
        return
    arms = [arm for arm in given.arms.split(",") if arm] or experiment.ready()
    if unknown := [arm for arm in arms if arm not in experiment.ready()]:
        raise UserError(f"arm {unknown[0]} has no rows; ready are: {', '.join(experiment.ready())}")
    {"dev": experiment.tune, "train": experiment.train, "test": experiment.test}[given.stage](arms)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"amplification: {error}")
