"""The control experiment: does GRPO in an executable world, with its state as reward, improve a small model trained on ten seeds?

    nice python eval/loop/control.py              # SFT, dev tasks, GRPO of three training seeds, 300 test tasks
    nice python eval/loop/control.py --publish    # also write the results so far to eval/loop/control.json, which docs/control_plot.py draws

All files are under `~/.cache/simia/experiments/control` (`--work`); each stage writes a file there and is skipped if the file exists.
GRPO writes a checkpoint every two steps, so the same command resumes a killed run. docs/loop.md describes the comparison,
docs/log.md the decisions that were made before the first result.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import figures
import tasks
from run import HERE, SIZES, Loop

from simia.errors import UserError
from simia.search_path import cache_root

TUNING_SEED = 1000
PUBLISHED = HERE / "control.json"


@dataclass(frozen=True)
class Plan:
    """Size of the experiment. `sft`: SFT steps of the start; `room`: bounds of its dev success, so that GRPO can learn and improve."""

    seeds: int = 3
    dev: int = 100
    train: int = 400
    test: int = 300
    sft: int = 60
    steps: int = 40
    groups: int = 8
    group: int = 4
    warmup: int = 4
    rate: float = 1e-5
    room: tuple[float, float] = (0.1, 0.9)


PLANS = {
    "full": Plan(),
    "tiny": Plan(seeds=1, dev=2, train=4, test=4, sft=2, steps=2, groups=2, group=2, warmup=1, room=(0.0, 1.0)),
}


class Control:
    """One experiment in one folder."""

    def __init__(self, work: Path, plan: Plan, model: Path | None) -> None:
        self.work, self.plan = work.resolve(), plan
        self.loop = Loop(self.work, SIZES["small"], python=None, model=model, workers=1, worlds=[])
        self.pack, self.data = self.work / "pack", self.work / "data" / "seeds" / "data.jsonl"

    def run(self) -> None:
        plan = self.plan
        self.prepare()
        self.start(TUNING_SEED)
        first = self.play(self.model("start", TUNING_SEED), "dev", "dev-start")
        if not plan.room[0] <= first["mean"] <= plan.room[1]:
            raise UserError(
                f"the start solves {first['mean']:.0%} of the dev tasks; it must solve between {plan.room[0]:.0%} and {plan.room[1]:.0%}"
            )
        for seed in range(plan.seeds):
            self.start(seed)
            self.train("grpo", seed)
        self.play_test("start", "grpo")
        for seed in range(plan.seeds):  # the secondary comparison; the primary one does not wait for it
            self.train("shuffled", seed)
        self.play_test("shuffled")

    # -- stages -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the pack with tasks that share nothing with each other or the seeds, the seeds as training rows, and the base model."""
        plan, pack = self.plan, self.pack
        self.loop.export("seeds", HERE / "pack")
        counts = {"dev": plan.dev, "train": plan.train, "test": plan.test}
        self.loop.once(pack / "done", lambda: print(tasks.write(pack, counts, [self.data])))
        rows = [json.loads(line) for line in (pack / "tasks.jsonl").read_text().splitlines()]
        texts = {split: [json.dumps(row) for row in rows if row["split"] == split] for split in counts}
        texts["seeds"] = self.data.read_text().splitlines()
        for one, other in (("dev", "test"), ("train", "test"), ("train", "dev"), ("seeds", "test"), ("seeds", "dev")):
            if found := tasks.shared(texts[one], texts[other]):
                raise UserError(f"{pack}: {one} and {other} share {sorted(found)[:5]}; delete the folder")
        environment = {
            "pack": str(pack), "backend": "executable", "split": "train", "reward": "rules", "user": "scripted",
            "episode": {"turns": 8, "errors": 3},
        }  # fmt: skip
        self.environment("start").write_text(json.dumps(environment, indent=1))
        self.loop.prepare()

    def start(self, seed: int) -> None:
        """Train the base model on the ten seeds (SFT): the start of GRPO, and its control."""
        out = self.model("start", seed)
        out.parent.mkdir(exist_ok=True)
        words: list[Any] = ["--data", self.data, "--steps", self.plan.sft, "--batch", 4, "--rate", 5e-4, "--seed", seed]
        words += ["--checkpoint", out.with_name(f".{out.name}.pt")]
        self.loop.once(out, lambda: self.loop.student(
            "learn", self.loop.model, self.pack, *words, "--keep", out, log=out.name
        ))  # fmt: skip

    def train(self, arm: str, seed: int) -> None:
        plan, out = self.plan, self.model(arm, seed)
        words: list[Any] = [
            self.loop.python,
            HERE / "control_train.py",
            self.model("start", seed),
            self.environment(arm),
            out,
        ]
        words += ["--steps", plan.steps, "--groups", plan.groups, "--group", plan.group, "--warmup", plan.warmup]
        words += ["--rate", plan.rate, "--seed", seed, "--reward", "shuffled" if arm == "shuffled" else "state"]
        self.loop.once(out, lambda: self.loop.run(words, out.name, self.loop.env))
        self.report()

    def play_test(self, *arms: str) -> None:
        for arm in arms:
            for seed in range(self.plan.seeds):
                self.play(self.model(arm, seed), "test", f"{arm}-{seed}")
        self.report()

    def play(self, model: Path, split: str, name: str) -> dict[str, Any]:
        """Play a split greedily, in float32, once."""
        out = self.work / "results" / f"{name}.json"
        out.parent.mkdir(exist_ok=True)
        words = [self.loop.python, HERE / "control_play.py", model, self.environment("test"), split, out]
        self.loop.once(out, lambda: self.loop.run(words, f"{name}-play", self.loop.env))
        return dict(json.loads(out.read_text()))

    # -- results ----------------------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return the results so far, small enough to publish: outcomes of each task, curves of the training."""
        found: dict[str, Any] = {
            "plan": vars(self.plan),
            "kinds": {},
            "wordings": tasks.name_wordings(map(json.loads, (self.pack / "tasks.jsonl").read_text().splitlines())),
            "test": {},
            "dev": {},
            "training": {},
        }
        for path in sorted((self.work / "results").glob("*.json")):
            played = json.loads(path.read_text())["tasks"]
            group = "dev" if path.stem.startswith("dev-") else "test"
            found["kinds"] |= {task: row["kind"] for task, row in played.items()}
            found[group][path.stem.removeprefix("dev-")] = "".join(
                str(int(played[task]["reward"])) for task in sorted(played)
            )
        for path in sorted((self.work / "models").glob("*.json")):
            found["training"][path.stem] = summarise_training(json.loads(path.read_text()))
        found["kinds"] = dict(sorted(found["kinds"].items()))
        (self.work / "results.json").write_text(json.dumps(found, indent=1) + "\n")
        return found

    def environment(self, arm: str) -> Path:
        """The settings of the environment in which an arm is trained."""
        return self.work / "environment.json"

    def model(self, arm: str, seed: int) -> Path:
        return self.work / "models" / f"{arm}-{seed}"


def summarise_training(told: dict[str, Any]) -> dict[str, list[float]]:
    """By step: mean reward, groups whose rewards differ, and mean length in tokens."""
    steps: dict[int, dict[str, list[float]]] = {}
    for row in told["episodes"]:
        if row["reward"] is not None:
            steps.setdefault(row["step"], {}).setdefault(row["task"], []).append(row["reward"])
    rewards = [[value for values in groups.values() for value in values] for groups in steps.values()]
    logged = [row for row in told["log"] if "completions/mean_length" in row]
    return {
        "reward": [round(sum(values) / len(values), 4) for values in rewards],
        "mixed": [sum(len(set(values)) > 1 for values in groups.values()) for groups in steps.values()],
        "tokens": [round(row["completions/mean_length"], 1) for row in logged],
        "seconds": [round(row["step_time"], 1) for row in logged],
    }


def outcomes(found: dict[str, Any], arm: str) -> figures.Rewards:
    """Training seed → test task → reward, of published results."""
    names = [task for task in found["kinds"] if task.startswith("test-")]
    seeds = [seed for seed in range(found["plan"]["seeds"]) if f"{arm}-{seed}" in found["test"]]
    return {
        seed: {task: float(value) for task, value in zip(names, found["test"][f"{arm}-{seed}"], strict=True)}
        for seed in seeds
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="The control experiment: GRPO that is compared with its start.")
    parser.add_argument("--plan", choices=PLANS, default="full")
    parser.add_argument("--work", type=Path, help="folder of everything that is made")
    parser.add_argument("--model", type=Path, help="a prepared model in place of SmolLM2-135M-Instruct")
    parser.add_argument("--publish", action="store_true", help="write the results to eval/loop/control.json")
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    work = given.work or cache_root() / "experiments" / "control"
    work.mkdir(parents=True, exist_ok=True)
    lock = (work / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise UserError(f"another process runs the experiment in {work}; wait for its end or stop it") from None
    control = Control(work, PLANS[given.plan], given.model)
    control.run()
    if given.publish:
        shutil.copy(work / "results.json", PUBLISHED)
        print(f"published: {PUBLISHED}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"control: {error}")
