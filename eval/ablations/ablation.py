"""The plan of an ablation: arms, each with commands that make its data, train and evaluate, for a tiny and a full size.

    title: Real and simulated SFT data
    source: Simia, figure 6
    x: trajectories                  # the axis of a figure with lines; without it each arm is a row
    accepted: python -m …            # a command without training, which stores and draws accepted tasks
    tiny: {trainer: sft, arms: […]}
    full: {trainer: sft, suites: [tau2], data: […], arms: […]}

`data`, `train` and `evaluate` are commands of a size, which an arm may replace. Words in braces are filled in:

| word | value |
|---|---|
| `{arm}`, `{seed}` | name of the arm as part of a file name, training seed |
| `{data}`, `{packs}`, `{checkpoint}` | folders of this arm under the folder of the ablation; the checkpoint has one for each seed |
| `{model}`, `{pack}` | tiny: the small model and the pack with test tasks that `prepare` makes |
| `{suite}`, `{result}` | suite of the evaluation, and the file or run with its rewards |
| `{work}` | folder of the ablation |
| each key of an arm's `with` | its value |

An arm with `of: NAME` uses the data and the training of that arm: for points of one training's curve, or for another evaluation of it.
An arm with `suites` is evaluated on these in place of the size's. A `simia eval` of a suite in `BENCHMARK_DATA` gets its `--data`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from simia.config import Config, load_config
from simia.errors import UserError

PLANS = Path(__file__).parent / "plans"
Size = Literal["tiny", "full"]
Stage = Literal["data", "train", "evaluate"]
STAGES: tuple[Stage, ...] = ("data", "train", "evaluate")
GRPO = "eval/ablations/tiny_grpo.yaml"
BENCHMARK_DATA = {"officebench": "data/benchmarks/officebench", "agentbench_os": "data/benchmarks/agentbench"}
"""Suite → folder of its data, for the suites whose data simia does not install."""
# Default commands of a size, unless its plan or the arm replaces them.
DEFAULTS: dict[tuple[str, str], dict[Stage, list[str]]] = {
    ("tiny", "sft"): {
        "train": [
            "student learn {model} {pack} --data {data}/data.jsonl --steps 2 --batch 2 --seed {seed} --keep {checkpoint}"
        ],
        "evaluate": ["student learn {checkpoint} {pack} --play test={result}"],
    },
    ("tiny", "rl"): {
        "train": [
            f"simia train trl {GRPO} --model {{model}} --set stage.pack={{pack}} --set grpo.output_dir={{checkpoint}} --set grpo.seed={{seed}}"
        ],
        "evaluate": ["student learn {checkpoint} {pack} --play test={result}"],
    },
    ("full", "sft"): {
        "train": ["simia train llamafactory {data} --set output_dir={checkpoint} --set seed={seed}"],
        "evaluate": [
            "simia eval {suite} --calls hermes --set llm.kind=vllm --set llm.model={checkpoint} --name {result}"
        ],
    },
    ("full", "rl"): {
        "evaluate": [
            "python -m verl.model_merger merge --backend fsdp --local_dir {checkpoint}/global_step_{step}/actor"
            " --target_dir {checkpoint}/merged-{step}",
            "simia eval {suite} --calls hermes --set llm.kind=vllm --set llm.model={checkpoint}/merged-{step} --name {result}",
        ],
    },
}


class Arm(Config):
    """One arm, or one point of a line."""

    name: str = Field(min_length=1, description="Name in the table and the figure.")
    line: str | None = Field(None, description="The line that it is a point of; unset: its name.")
    x: float | None = Field(None, description="Its place on the axis.")
    of: str | None = Field(None, description="The arm whose data and training it uses.")
    values: dict[str, Any] = Field(default_factory=dict, alias="with", description="Words to fill in.")
    suites: list[str] | None = Field(None, min_length=1, description="In place of the size's.")
    data: list[str] | None = Field(None, description="In place of the size's.")
    train: list[str] | None = Field(None, description="In place of the size's; empty: the model as it is.")
    evaluate: list[str] | None = Field(None, description="In place of the size's.")


class SizePlan(Config):
    """The arms of one size."""

    trainer: Literal["sft", "rl"] = Field("sft", description="Which commands train and evaluate by default.")
    suites: list[str] = Field(
        default_factory=lambda: ["test"], description="Suites of simia eval; tiny: the test tasks."
    )
    seeds: int = Field(1, ge=1, description="Training seeds of each arm.")
    values: dict[str, Any] = Field(default_factory=dict, alias="with", description="Words to fill in.")
    data: list[str] = Field(default_factory=list, description="Commands that make an arm's data.")
    train: list[str] | None = Field(None, description="Commands that train an arm with one seed.")
    evaluate: list[str] | None = Field(None, description="Commands that evaluate it on one suite.")
    arms: list[Arm] = Field(min_length=2, description="What is compared.")


class Ablation(Config):
    """A file of eval/ablations/plans."""

    title: str = Field(description="What is compared.")
    source: str = Field(description="The paper's figure, table or section, or simia.")
    note: str = Field("", description="What this plan cannot do, or needs.")
    x: str = Field("", description="Name of the axis, for arms that are points of lines.")
    accepted: str | None = Field(
        None, description="Command at the level of accepted tasks; it stores and draws its own result."
    )
    stored: str | None = Field(
        None, description="Name of that result in eval/ablations/results, if its figure shows only counts."
    )
    tiny: SizePlan | None = Field(None, description="On this machine's CPU: it shows that the path works.")
    full: SizePlan | None = Field(None, description="By the papers' configs, on GPUs and paid models.")

    def size(self, size: Size) -> SizePlan:
        """Return the plan of a size. Raises `UserError` if the ablation has no such size."""
        found = self.tiny if size == "tiny" else self.full
        if found is None:
            have = ", ".join(name for name in ("accepted", "tiny", "full") if getattr(self, name) is not None)
            raise UserError(f"{self.title}: there is no size {size}; choose one of {have}")
        return found


@dataclass(frozen=True, slots=True)
class Step:
    """A command to run. `result`: the file or run with the rewards of an evaluation."""

    arm: Arm
    stage: Stage
    seed: int
    suite: str
    words: tuple[str, ...]
    result: str = ""


def load_ablation(name: str) -> Ablation:
    """Load an ablation's plan. Raises `UserError` if no plan has this name."""
    if not (PLANS / f"{name}.yaml").is_file():
        raise UserError(f"no ablation {name!r}; there are: {', '.join(list_ablations())}")
    return load_config(Ablation, PLANS / f"{name}.yaml")


def list_ablations() -> list[str]:
    return sorted(path.stem for path in PLANS.glob("*.yaml"))


def list_steps(plan: SizePlan, size: Size, work: Path) -> Iterator[Step]:
    """All commands in order. Arms that share data or a training repeat its commands; a runner runs equal ones once."""
    for arm in plan.arms:
        base = find_base(plan, arm)
        folder = slug(base.name)
        fixed = {"arm": folder, "data": work / "data" / folder, "packs": work / "packs" / folder, "work": work}
        fixed |= {"model": work / "base" / "model", "pack": work / "base" / "pack"}
        for seed in range(plan.seeds):
            known = {**plan.values, **base.values, **arm.values, **fixed, "seed": seed}
            known["checkpoint"] = work / "checkpoints" / f"{folder}-{seed}"
            for stage in STAGES:
                for suite in (arm.suites or plan.suites) if stage == "evaluate" else [""]:
                    name = f"{slug(arm.name)}-{seed}-{slug(suite)}"
                    result = str(work / "results" / f"{name}.json") if size == "tiny" else name
                    commands = choose_commands(plan, size, arm if stage == "evaluate" else base, stage)
                    for n, command in enumerate(commands, 1):
                        words = add_data(fill_in(command, known | {"suite": suite, "result": result}))
                        if stage == "evaluate" and words[:2] == ("simia", "eval") and words[2] != suite:
                            raise UserError(
                                f"arm {arm.name!r}: {shlex.join(words[:3])} is stored as {suite}: give the arm its suites"
                            )
                        last = stage == "evaluate" and n == len(commands)
                        yield Step(arm, stage, seed, suite, words, result if last else "")


def find_base(plan: SizePlan, arm: Arm) -> Arm:
    if arm.of is None:
        return arm
    found = next((each for each in plan.arms if each.name == arm.of and each.of is None), None)
    if found is None:
        raise UserError(f"arm {arm.name!r}: of: {arm.of!r} is not an arm of this size with data of its own")
    return found


def choose_commands(plan: SizePlan, size: Size, arm: Arm, stage: Stage) -> list[str]:
    for given in (getattr(arm, stage), getattr(plan, stage)):
        if given is not None:
            return list(given)
    return DEFAULTS[size, plan.trainer].get(stage, [])


def fill_in(command: str, values: dict[str, Any]) -> tuple[str, ...]:
    """Split a command and fill in its words. Braces around other text stay, as in `{"a":1}`. Raises `UserError` for an unknown word."""

    def replace(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UserError(f"{command}: {{{match[1]}}} has no value; there are {', '.join(sorted(values))}")
        return str(values[match[1]])

    return tuple(re.sub(r"\{(\w+)\}", replace, word) for word in shlex.split(command))


def add_data(words: tuple[str, ...]) -> tuple[str, ...]:
    """Add the folder of its data to a `simia eval` of a suite that needs one."""
    if words[:2] != ("simia", "eval") or words[2] not in BENCHMARK_DATA or "--data" in words:
        return words
    return (*words[:3], "--data", BENCHMARK_DATA[words[2]], *words[3:])


def slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
