"""Measure what CodeGym's filters exclude (CodeGym §3.4): the same recorded replies with the filters on and off.

The replies are those of tests/recordings/codegym.jsonl: the ten problems whose gyms are shipped, and one whose gym needs too few tools. Enlarged
inputs are off in both arms, since they were recorded for the ten alone. The filter of difficulty is off in both arms too, since no agent's turns
were recorded.

Each arm is a durable run in out/ablations/codegym_filters-accepted, which resumes where it was stopped. Most of its time is spent in the
sandbox: every solution function plays every input, and the verification gate plays every task again: 28,800 messages for the gym
`cold-cells`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simia.config import load_config
from simia.errors import UserError
from simia.search_path import data_root
from simia.synthesis.gyms.gym_results import INSTANCES, SOLUTIONS, collect_instances
from simia.synthesis.recipes.codegym import CodeGymConfig
from simia.synthesis.session import Synthesized, resume_synthesis, start_synthesis
from simia.synthesis.stages.gym_solutions import SolutionSettings
from simia.trajectory import write_compact_json

ROOT = Path(__file__).parents[2]
WORK = ROOT / "out" / "ablations" / "codegym_filters-accepted"
RECORDING = ROOT / "tests" / "recordings" / "codegym.jsonl"
PROBLEMS = (
    data_root() / "seeds" / "problems" / "problems.jsonl",
    ROOT / "tests" / "synthesis" / "fixtures" / "gym" / "terrace_path.jsonl",
)
ON, OFF = "filters on", "filters off"
ARMS = {
    ON: (),
    OFF: ("least_calls=1", "most_calls=1024", "least_tools=1", "observe_only=0", "leak=1.0"),
}
"""Arm → settings of the stage `solutions`. A task itself allows 256 calls, so the verification gate refuses longer ones in both arms."""
SHARED = (
    "llm.kind=replay", f"llm.path={RECORDING}", "llm.match=draw", "solutions.k=4", "difficulty.agent=null", "hard.inputs=0",
)  # fmt: skip
FILTERS = SolutionSettings()


@dataclass(frozen=True, slots=True)
class AcceptedGym:
    """A gym with at least one task. `tools`: number of different tools that its oracle uses; `calls`: task → calls of the oracle."""

    gym: str
    tools: int
    calls: dict[str, int]

    @property
    def has_tools(self) -> bool:
        return self.tools >= FILTERS.least_tools


@dataclass(frozen=True, slots=True)
class ArmResult:
    """Result of an arm. `problems`: number of given problems; `valid`: inputs that their solutions answer; `refused`: gym → reason."""

    arm: str
    problems: int
    valid: int
    refused: dict[str, str]
    gyms: list[AcceptedGym]

    @property
    def tasks(self) -> set[tuple[str, str]]:
        return {(gym.gym, task) for gym in self.gyms for task in gym.calls}


def replay_arm(arm: str, problems: Sequence[Path] = PROBLEMS, work: Path = WORK) -> ArmResult:
    """Start or continue the run of an arm. Raises `UserError` if it stops before its end."""
    work.mkdir(parents=True, exist_ok=True)
    source, name = work / "problems.jsonl", arm.replace(" ", "-")
    source.write_text("".join(path.read_text(encoding="utf-8") for path in problems), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        out, runs = Path(folder) / "gyms", work / "runs"
        if (runs / name).is_dir():
            done = asyncio.run(resume_synthesis(name, out, runs=runs, say=print))
        else:
            settings = [*SHARED, f"source={source}", *(f"solutions.{each}" for each in ARMS[arm])]
            config = load_config(CodeGymConfig, "synth/codegym", settings)
            done = asyncio.run(start_synthesis(config, out, runs=runs, name=name, say=print))
    if done.stop.kind != "complete":
        busy = "on a machine without a free core calls can time out, and the recording has no repairs; run the command again to continue"
        raise UserError(f"{arm}: the replay stopped: {done.stop.detail}; {busy}")
    return read_arm(arm, done)


def read_arm(arm: str, done: Synthesized) -> ArmResult:
    outputs, gyms = done.outputs, []
    for name in sorted(outputs.of(SOLUTIONS)):
        instances = collect_instances(outputs, name)
        tools = len({call["name"] for each in instances for call in each.calls})
        gyms.append(AcceptedGym(name, tools, {each.id: len(each.calls) for each in instances}))
    valid = sum(len(found["instances"]) for found in outputs.of(INSTANCES).values())
    refused = {key: str(each.reason) for stage in outputs.refused.values() for key, each in stage.items()}
    return ArmResult(arm, len(outputs.of("problems")), valid, dict(sorted(refused.items())), gyms)


def is_in_bounds(calls: int) -> bool:
    return FILTERS.least_calls <= calls <= FILTERS.most_calls


def count_arm(result: ArmResult, filtered: ArmResult) -> Iterator[dict[str, Any]]:
    """Count the tasks that an arm accepts, and those of them that the filters would refuse. `filtered`: the arm with the filters on. If
    an accepted gym lacks a task there whose calls are within the bounds, a function answered that task from `observe` alone."""
    tasks = result.tasks
    bounds = [is_in_bounds(calls) for gym in result.gyms for calls in gym.calls.values()]
    tools = [gym.has_tools for gym in result.gyms for _ in gym.calls]
    gyms = {gym.gym for gym in filtered.gyms}
    bounded = {(g.gym, task) for g in result.gyms if g.gym in gyms for task, n in g.calls.items() if is_in_bounds(n)}
    rows = (
        ("gyms accepted, of the problems", len(result.gyms), result.problems),
        ("tasks accepted, of the valid inputs", len(tasks), result.valid),
        (f"tasks outside of {FILTERS.least_calls} to {FILTERS.most_calls} calls, of those accepted", bounds.count(False), len(tasks)),
        (f"tasks of gyms with fewer than {FILTERS.least_tools} tools, of those accepted", tools.count(False), len(tasks)),
        ("tasks that `observe` alone answers, of those accepted", len(bounded - filtered.tasks), len(tasks)),
    )  # fmt: skip
    for measure, count, of in rows:
        yield {"arm": result.arm, "measure": measure, "count": count, "of": of}


def count_gym_filters(folder: Path) -> Iterator[dict[str, Any]]:
    """Replay both arms, store their gyms in `folder`, and count."""
    results = {arm: replay_arm(arm) for arm in ARMS}
    body = [asdict(result) for result in results.values()]
    (folder / "codegym_gyms.json").write_text(write_compact_json(body) + "\n", encoding="utf-8")
    for result in results.values():
        yield from count_arm(result, results[ON])
