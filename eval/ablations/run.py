"""Run an ablation: make data, train and evaluate each arm, store the rewards of every task, and draw the figure.

    python -m eval.ablations.run                                  # what there is
    python -m eval.ablations.run simia_real_or_simulated          # tiny: on a CPU, to see that it works
    python -m eval.ablations.run scaleenv_domains --size full     # by the papers' configs: GPUs and paid models
    python -m eval.ablations.run scaleenv_execution --size accepted
    python -m eval.ablations.run scaleenv_domains --size full --dry-run     # checks and prints every command
    python -m eval.ablations.run simia_real_or_simulated --draw   # the figure again, from the stored results

A command that has ended is not run again, and a run of simia that was stopped is resumed, so a stopped ablation resumes where it was.
Results: `results.json` and `figure.svg` in out/ablations/NAME-SIZE (`--work`).

simia and its vLLM back end run in this interpreter, trainers and verl's merger in the environments that `simia train` finds. `--python
verl=PATH` names the interpreter of a trainer; verl's also runs its merger.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from eval.ablations.ablation import Ablation, Size, Step, list_ablations, list_steps, load_ablation
from eval.ablations.command_checks import ROOT, check_command, find_made, find_run_name
from eval.ablations.outcomes import draw_counts, draw_outcomes, read_results, write_results
from simia.errors import UserError
from simia.jobs.run import is_run
from simia.trainers.versions import NEEDS, interpreter
from simia.trajectory import digest

SIZES = ("accepted", "tiny", "full")
RESULTS = Path(__file__).parent / "results"


class Runner:
    """One ablation in one folder. `pythons`: trainer → interpreter of its environment."""

    def __init__(
        self, name: str, plan: Ablation, size: Size, work: Path, pythons: Mapping[str, Path] | None = None
    ) -> None:
        self.name, self.plan, self.size, self.work = name, plan, size, work.resolve()
        self.steps = list(list_steps(plan.size(size), size, self.work))
        self.env = {**os.environ, "SIMIA_RUNS": str(self.work / "runs")}
        self.student = ["student"]
        self.pythons = dict(pythons or {})

    def check(self, say: Callable[[str], None] = print) -> None:
        """Check every command. Raises `UserError` for the first that simia refuses."""
        made: set[str] = set()
        for words in dict.fromkeys(step.words for step in self.steps):
            check_command(words, made)
            made |= {find_made(words) or ""}
            say(shlex.join(words))

    def run(self) -> None:
        self.check(say=lambda line: None)
        if self.size == "tiny":
            self.prepare()
        else:
            self.check_machine()
        for step in self.steps:
            self.run_step(step)
        write_results(self.work / "results.json", self.name, self.plan, self.size, self.steps, self.work / "runs")
        self.draw()

    def draw(self) -> None:
        draw_outcomes(read_results(self.work / "results.json"), self.work / "figure.svg")

    def check_machine(self) -> None:
        """Check interpreters and data before anything is paid for. Raises `UserError` for a missing environment or folder of data."""
        for words in dict.fromkeys(step.words for step in self.steps):
            if "llm.kind=vllm" in words and find_spec("vllm") is None:
                raise UserError(
                    f"{sys.executable} has no vLLM, with which simia eval plays the checkpoints: start the ablation in an environment with"
                    " simia and vLLM, for example verl's (docs/experiments/ablations.md)"
                )
            if words[:2] == ("simia", "eval") and "--data" in words:
                data = words[words.index("--data") + 1]
                if not (ROOT / data).exists():
                    raise UserError(f"{ROOT / data} is missing: docs/experiments/ablations.md says where to get it")
            if trainer := find_trainer(words):
                self.pythons[trainer] = interpreter(trainer, self.pythons.get(trainer))

    def prepare(self) -> None:
        """Make the small model and the pack with test tasks, as eval/loop does, and find TRL's interpreter."""
        sys.path.append(str(ROOT / "eval" / "loop"))
        from run import SIZES as LOOP_SIZES  # type: ignore[import-not-found]
        from run import Loop

        if given := os.environ.get("ABLATION_PYTHON"):
            self.pythons.setdefault("trl", Path(given).absolute())
        loop = Loop(
            self.work / "base", LOOP_SIZES["tiny"], python=self.pythons.get("trl"), model=None, workers=1, worlds=[]
        )
        loop.data()
        loop.prepare()
        self.student = [str(loop.python), str(ROOT / "eval" / "loop" / "student.py")]
        self.env |= {key: loop.env[key] for key in ("PYTHONPATH", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM")}

    def run_step(self, step: Step) -> None:
        """Run a command unless it has ended before."""
        mark = self.work / "done" / digest(shlex.join(step.words))
        if mark.is_file():
            return
        for folder in ("done", "started", "logs", "results", "checkpoints", "data", "packs"):
            (self.work / folder).mkdir(parents=True, exist_ok=True)
        words = self.resume_or_start(step.words)
        print(f"{step.arm.name}, {step.stage}: {shlex.join(words)}", flush=True)
        log = self.work / "logs" / f"{mark.name}.log"
        with log.open("ab") as out:
            done = subprocess.run(
                self.make_command(words), cwd=ROOT, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        if done.returncode:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()] or ["no output"]
            raise UserError(
                f"{step.arm.name}, {step.stage}: the command ended with {done.returncode}: {lines[-1]} ({log})"
            )
        mark.write_text(shlex.join(step.words) + "\n", encoding="utf-8")

    def resume_or_start(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the command, or the one that resumes its run. A run that another command of this name started is left to simia, which
        refuses it."""
        name = find_run_name(words)
        if name is None:
            return words
        started = self.work / "started" / name
        if not is_run(self.work / "runs" / name):
            started.write_text(shlex.join(words) + "\n", encoding="utf-8")
            return words
        same = started.is_file() and started.read_text(encoding="utf-8") == shlex.join(words) + "\n"
        return ("simia", "runs", "resume", name) if same else words

    def make_command(self, words: tuple[str, ...]) -> list[str]:
        if words[0] == "student":
            return [*self.student, *words[1:]]
        own = self.pythons.get(find_trainer(words) or "")
        if words[0] == "simia":
            # A word such as FOLDER/* names all packs in a folder.
            given = [[word] if "*" not in word or "=" in word else sorted(glob(word)) for word in words[1:]]
            trainer = ["--python", str(own)] if own else []
            return [sys.executable, "-P", "-m", "simia", *(word for some in given for word in some), *trainer]
        return [str(own or sys.executable), *words[1:]]


def find_trainer(words: tuple[str, ...]) -> str | None:
    """The trainer that a command needs: that of `simia train`, or verl for `python -m verl.…`."""
    if words[:2] == ("simia", "train"):
        return words[2]
    return "verl" if words[:2] == ("python", "-m") and words[2].startswith("verl.") else None


def parse_pythons(given: list[str]) -> dict[str, Path]:
    """Parse TRAINER=PATH. Raises `UserError` for an unknown trainer or a missing file."""
    found = {}
    for each in given:
        trainer, _, path = each.partition("=")
        if trainer not in NEEDS or not Path(path).is_file():
            raise UserError(f"--python {each}: write TRAINER=PATH of an interpreter; trainers: {', '.join(NEEDS)}")
        found[trainer] = Path(path).absolute()
    return found


def draw_accepted(plan: Ablation) -> None:
    """Draw the figure of the size accepted from its stored counts. Raises `UserError` if they are not all that it shows."""
    if plan.accepted is None:
        raise UserError(f"{plan.title}: no size accepted")
    if plan.stored is None:
        raise UserError(f"the figure shows more than the stored result: omit --draw, and {plan.accepted} draws it")
    draw_counts(read_results(RESULTS / f"{plan.stored}.json"), RESULTS / f"{plan.stored}.svg")


def run_accepted(plan: Ablation, *, dry_run: bool) -> None:
    if plan.accepted is None:
        raise UserError(f"{plan.title}: no size accepted")
    words = shlex.split(plan.accepted)
    check_command(words)
    print(shlex.join(words))
    if not dry_run and (code := subprocess.run([sys.executable, *words[1:]], cwd=ROOT).returncode):
        raise UserError(f"it ended with {code}")


def print_list() -> None:
    for name in list_ablations():
        plan = load_ablation(name)
        sizes = ", ".join(size for size in SIZES if getattr(plan, size) is not None)
        print(f"{name:26} {sizes:20} {plan.title} ({plan.source})")


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m eval.ablations.run", description="Run an ablation.")
    parser.add_argument("name", nargs="?", help="one of eval/ablations/plans; none: list them")
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument(
        "--work", type=Path, help="folder of everything that is made (default: out/ablations/NAME-SIZE)"
    )
    parser.add_argument("--dry-run", action="store_true", help="check and print every command; run none")
    parser.add_argument("--draw", action="store_true", help="draw the figure from stored results only")
    parser.add_argument(
        "--python", action="append", default=[], metavar="TRAINER=PATH", help="interpreter of a trainer's environment"
    )
    options: Any = parser.parse_args(given)
    if options.name is None:
        print_list()
        return
    plan = load_ablation(options.name)
    if options.size == "accepted":
        if options.draw and not options.dry_run:
            draw_accepted(plan)
        else:
            run_accepted(plan, dry_run=options.dry_run)
        return
    work = options.work or Path("out") / "ablations" / f"{options.name}-{options.size}"
    runner = Runner(options.name, plan, cast(Size, options.size), work, parse_pythons(options.python))
    if options.dry_run:
        runner.check()
    elif options.draw:
        runner.draw()
    else:
        runner.run()


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"ablation: {error}")
