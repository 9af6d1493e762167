"""The experiment "a small model as simulator": how much better does SmolLM2-135M simulate the tools after training on rows of rollouts?

    nice python eval/simulator/simulator.py rows        # rollouts of two packs, their rows: minutes
    nice python eval/simulator/simulator.py run         # two trainings and the answers of each model: hours on two cores
    python eval/simulator/simulator.py report           # the tables, from eval/simulator/results

docs/experiments/simulator.md fixes the comparison. Packs, runs, rows and models are under `~/.cache/simia/experiments/simulator` (`--work`), the
replies in `eval/simulator/results` (`--results`); with `--plan second`, the second try, both names end with `-second`. Finished parts are skipped, and a killed training goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "loop"))

from run import SIZES, Loop
from wandering_tasks import copy_pack

from simia.errors import UserError
from simia.evaluation.simulator_score import SimulatorScore, SimulatorTruth, score_reply
from simia.exporting.simulator_export import export_simulator
from simia.exporting.simulator_settings import SimulatorConfig
from simia.exporting.simulator_split import CLASSES, find_class
from simia.search_path import cache_root

HERE = Path(__file__).parent
PACKS = ("customer_service", "hotel_front_desk")
RESAMPLES = 2000
REFUSED = 0.25  # maximal number of answered rows with a refused call, relative to `measured`
ESTIMATED = 1150  # by simia's estimate; such rows have up to 1,016 tokens of the student's tokenizer, and the student accepts at most 1,024
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """Size of the experiment. `measured`: maximal number of answered rows with a successful call, per pack and use ("task" or "tool")."""

    seeds: int = 2
    wandering: int = 150
    take: int = 800
    steps: int = 100
    batch: int = 4
    rate: float = 5e-4
    measured: Mapping[str, int] = field(default_factory=lambda: {"task": 40, "tool": 20})


PLANS = {
    "full": Plan(),
    "second": Plan(steps=400),
    "tiny": Plan(seeds=1, wandering=2, take=20, steps=2, batch=2, measured={"task": 1, "tool": 1}),
}
WORLD = {"knowledge": "state", "dialect": "brief", "state_tokens": 450, "max_tokens": 400}


class Experiment:
    """One experiment in one folder."""

    def __init__(self, work: Path, results: Path, plan: Plan, *, model: Path | None = None, workers: int = 2) -> None:
        self.work, self.results, self.plan, self.workers = work.resolve(), results.resolve(), plan, workers
        self.given = model
        self.rows, self.asked = self.work / "rows", self.work / "asked.jsonl"

    def make_rows(self) -> None:
        """Play the packs by the reference and the random agent, and write training and held-out rows."""
        if self.asked.exists():
            return
        names = []
        for pack in PACKS:
            folder, count = self.work / "packs" / pack, self.work / "packs" / f"{pack}.json"
            if not folder.exists():
                draft = folder.with_name(f".{pack}")
                count.parent.mkdir(parents=True, exist_ok=True)
                count.write_text(json.dumps(copy_pack(pack, draft, wandering=self.plan.wandering, test_share=0.25)))
                draft.rename(folder)
            own = json.loads(count.read_text())
            for agent, limit in (("reference", own + self.plan.wandering), ("random", own)):
                names.append(f"{pack}-{agent}")
                if not (self.work / "runs" / names[-1]).exists():
                    self.loop.simia("rollout", folder, "--agent", agent, "--limit", limit, "--name", names[-1])
        settings = {
            "world": WORLD, "cutoff": ESTIMATED, "take": self.plan.take, "held_out": {"tools": 0.15},
        }  # fmt: skip
        report = export_simulator(names, self.rows, SimulatorConfig.model_validate(settings), folder=self.work / "runs")
        print(
            f"{report.rows} training rows, by class {report.classes}; held out: {report.held_out}; left out: {report.left_out}"
        )
        groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in read_rows(self.rows / "held_out.jsonl"):
            groups[row["held_out"], row["pack"]].append(row)
        chosen = []
        for (use, _), group in sorted(groups.items()):
            random.Random(0).shuffle(group)
            for outcome, share in (("result", 1.0), ("error", REFUSED)):
                most = round(self.plan.measured[use] * share)
                chosen += [row for row in group if row["outcome"] == outcome][:most]
        self.asked.write_text("".join(json.dumps(row) + "\n" for row in chosen))
        print(f"{len(chosen)} held-out rows are answered by each model")

    def run(self) -> None:
        """Answer with the untrained model, then train and answer once for each training seed."""
        if not self.asked.exists():
            raise UserError("there are no rows: run the stage rows first")
        self.results.mkdir(parents=True, exist_ok=True)
        (self.results / "asked.jsonl").write_text(self.asked.read_text())
        self.loop.prepare()
        jobs = [
            lambda: self.answer(self.loop.model, "base"),
            *(lambda seed=seed: self.train(seed) for seed in range(self.plan.seeds)),
        ]
        with ThreadPoolExecutor(self.workers) as pool:
            for job in [pool.submit(job) for job in jobs]:  # type: ignore[arg-type]
                job.result()

    def train(self, seed: int) -> None:
        model = self.work / "models" / f"trained-{seed}"
        model.parent.mkdir(exist_ok=True)
        if not model.exists():
            plan = self.plan
            options = ["--steps", plan.steps, "--batch", plan.batch, "--rate", plan.rate, "--seed", seed]
            self.student("learn", self.loop.model, self.rows / "data.jsonl", model, *options, log=f"train-{seed}")
        self.answer(model, f"trained-{seed}")

    def answer(self, model: Path, name: str) -> None:
        out = self.results / f"{name}.jsonl"
        if not out.exists():
            draft = self.work / f"{name}.replies.jsonl"
            self.student("answer", model, self.asked, draft, log=f"answer-{name}")
            out.write_text(draft.read_text())

    def student(self, *words: Any, log: str) -> None:
        self.loop.run([self.loop.python, HERE / "simulator_student.py", *words], log, self.loop.env)

    @property
    def loop(self) -> Loop:
        """The environment and the model of eval/loop, prepared once."""
        if not hasattr(self, "_loop"):
            self._loop = Loop(self.work, SIZES["small"], python=None, model=self.given, workers=self.workers, worlds=[])
        return self._loop

    # -- figures ------------------------------------------------------------------------------------------------

    def report(self) -> str:
        """Return the tables for the replies that exist so far."""
        rows = read_rows(self.results / "asked.jsonl")
        arms: dict[str, list[SimulatorScore]] = {}
        for path in sorted(self.results.glob("*.jsonl")):
            if path.stem != "asked":
                replies = [each["reply"] for each in read_rows(path)]
                arms[path.stem] = score_all(rows, replies)
        if (self.rows / "data.jsonl").exists():
            nearest = answer_by_nearest(rows, read_rows(self.rows / "data.jsonl"))
            arms["nearest"] = score_all(rows, nearest)
        return "\n\n".join([write_observations(rows, arms), write_primary(rows, arms), write_changes(rows, arms)])


def read_rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def score_all(rows: Sequence[Row], replies: Sequence[str]) -> list[SimulatorScore]:
    """Score the reply to each row."""
    return [
        score_reply(reply, SimulatorTruth.model_validate_json(row["truth"]))
        for row, reply in zip(rows, replies, strict=True)
    ]


def answer_by_nearest(rows: Sequence[Row], known: Sequence[Row]) -> list[str]:
    """Answer each row like the training row with the most similar call of the same tool; without such a row, the answer is empty."""
    found = []
    for row in rows:
        same = [each for each in known if (each["pack"], each["tool"]) == (row["pack"], row["tool"])]
        call = row["messages"][1]["content"].rpartition("\n")[2]
        best = max(
            same,
            key=lambda each: SequenceMatcher(None, each["messages"][1]["content"].rpartition("\n")[2], call).ratio(),
            default=None,
        )
        found.append(best["messages"][2]["content"] if best else "")
    return found


def select(rows: Sequence[Row], use: str, *, pack: str | None = None) -> list[int]:
    """Return the indices of the rows of a use whose call succeeded."""
    return [
        n for n, row in enumerate(rows)
        if row["held_out"] == use and row["outcome"] == "result" and pack in (None, row["pack"])
    ]  # fmt: skip


def mean_f1(scores: Sequence[SimulatorScore], places: Sequence[int]) -> float:
    return fmean(scores[n].f1 for n in places) if places else float("nan")


def write_observations(rows: Sequence[Row], arms: Mapping[str, Sequence[SimulatorScore]]) -> str:
    """Write observation F1 of each arm by use and pack, and how many replies are readable, and refuse calls that were refused."""
    columns = [(use, pack) for use in ("task", "tool") for pack in PACKS]
    lines = [
        "| arm | " + " | ".join(f"held-out {use}, {pack}" for use, pack in columns) + " | readable | outcome agrees |"
    ]
    lines.append("|" + " --- |" * (len(columns) + 3))
    for name, scores in arms.items():
        cells = [
            f"{mean_f1(scores, select(rows, use, pack=pack)):.2f} ({len(select(rows, use, pack=pack))})"
            for use, pack in columns
        ]
        shares = [fmean(each.readable for each in scores), fmean(each.outcome for each in scores)]
        lines.append(f"| {name} | {' | '.join([*cells, *(f'{share:.2f}' for share in shares)])} |")
    return "\n".join(lines)


def write_primary(rows: Sequence[Row], arms: Mapping[str, Sequence[SimulatorScore]]) -> str:
    """F1 on held-out tasks, mean of both packs and of the training seeds, minus that of the untrained model, with its interval."""
    trained = [scores for name, scores in arms.items() if name.startswith("trained-")]
    if "base" not in arms or not trained:
        return "The primary comparison needs the untrained model and a trained one."
    by_task: dict[str, dict[str, list[int]]] = {pack: defaultdict(list) for pack in PACKS}
    for n in select(rows, "task"):
        by_task[rows[n]["pack"]][rows[n]["task"]].append(n)

    def measure(places: Mapping[str, Sequence[int]], models: Sequence[Sequence[SimulatorScore]]) -> float:
        return fmean(fmean(mean_f1(scores, each) for scores in models) for each in places.values() if each)

    every = {pack: [n for group in groups.values() for n in group] for pack, groups in by_task.items()}
    before, after = measure(every, [arms["base"]]), measure(every, trained)
    chance, gains = random.Random(0), []
    for _ in range(RESAMPLES):
        drawn = {
            pack: [n for group in chance.choices(list(groups.values()), k=len(groups)) for n in group]
            for pack, groups in by_task.items() if groups
        }  # fmt: skip
        models = chance.choices(trained, k=len(trained))
        gains.append(measure(drawn, models) - measure(drawn, [arms["base"]]))
    gains.sort()
    low, high = gains[int(0.025 * RESAMPLES)], gains[int(0.975 * RESAMPLES) - 1]
    return f"Held-out tasks: {before:.3f} before, {after:.3f} after: {after - before:+.3f} [{low:+.3f}, {high:+.3f}]"


def write_changes(rows: Sequence[Row], arms: Mapping[str, Sequence[SimulatorScore]]) -> str:
    """Share of rows with exact changes, by class of |Δ|."""
    places = {name: [n for n, row in enumerate(rows) if find_class(row["delta"]) == name] for name in CLASSES}
    lines = [
        "| exact changes by \\|Δ\\| | " + " | ".join(f"{name} ({len(found)})" for name, found in places.items()) + " |"
    ]
    lines.append("|" + " --- |" * (len(places) + 1))
    for arm, scores in arms.items():
        shares = [f"{fmean(scores[n].exact for n in found):.2f}" if found else "" for found in places.values()]
        lines.append(f"| {arm} | {' | '.join(shares)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="A small model as simulator.")
    parser.add_argument("verb", choices=["rows", "run", "report"])
    parser.add_argument("--plan", choices=PLANS, default="full")
    parser.add_argument("--work", type=Path, help="folder of packs, runs, rows and models")
    parser.add_argument("--results", type=Path, help="folder of the replies")
    parser.add_argument("--model", type=Path, help="a prepared model, in place of SmolLM2-135M-Instruct")
    parser.add_argument("--workers", type=int, default=2, help="trainings at once, of one thread each")
    given = parser.parse_args()
    ending = "-second" if given.plan == "second" else ""
    work = given.work or cache_root() / "experiments" / f"simulator{ending}"
    results = given.results or HERE / f"results{ending}"
    experiment = Experiment(work, results, PLANS[given.plan], model=given.model, workers=given.workers)
    try:
        if given.verb == "rows":
            experiment.make_rows()
        elif given.verb == "run":
            experiment.run()
        else:
            print(experiment.report())
    except UserError as error:
        raise SystemExit(f"simulator: {error}") from None


if __name__ == "__main__":
    main()
