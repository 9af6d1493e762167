"""Count what a synthesis accepted and refused, and compute its price, from the stages and notes of its record.

A run may make several packs, and each holds the record of the whole run. So prices are divided by the accepted items of the run, not by
those of one pack. Gyms have no stages `tools` and `gated`: the notes of their stages say how many tools and inputs each gym keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from simia.report.synthesis_record import RecordedStage, SynthesisRecord, as_list, bound_count, bound_line, bound_number
from simia.synthesis.gyms.gym_results import DIFFICULTY, HARD, INSTANCES, SOLUTIONS
from simia.synthesis.reasons import Reason

Note = Mapping[str, Any]
GYMS = "gyms"
GATE_STAGES = ("gated", "measured")
"""Stages whose refusals are those of the verification gate; `measured` belongs to the recipe `vary`."""
DOMAIN_STAGES = frozenset(
    (
        "screening", "stateful", "descriptions", "clusters", "themes", "sources", "search", "proposals", "design", "examples", "tools",
        "environments", "graph", "assessment", "problems", GYMS, INSTANCES, SOLUTIONS,
    )
)  # fmt: skip
"""Stages whose tokens are the price of an environment; tokens of all other stages are the price of its tasks."""
INVALID_INPUT = "invalid_input"
INPUT_REASONS: Mapping[str, str] = {
    Reason.CALLS_OUT_OF_BOUNDS: "the oracle makes too few or too many calls on the input",
    Reason.GYM_GATE_REFUSES: "the verification gate refuses the task of the input",
    Reason.OBSERVE_SUFFICES: "a function that calls only `observe` and `done` finds the answer",
    Reason.TOO_EASY: "the agent that measures difficulty solves the input too often",
    Reason.NOT_SOLVED: "the oracle does not solve the enlarged input",
    INVALID_INPUT: "the enlarged input breaks the schema, or the solution has no answer to it",
}
"""Why an input of a gym became no task → its meaning; a `Reason` of these names speaks of a whole gym."""
GYM_STEPS = (
    (
        (INSTANCES, "valid", ""),
        (SOLUTIONS, "gate_tried", Reason.CALLS_OUT_OF_BOUNDS),
        (SOLUTIONS, "gate_passed", Reason.GYM_GATE_REFUSES),
        (SOLUTIONS, "kept", Reason.OBSERVE_SUFFICES),
        (DIFFICULTY, "hard_enough", Reason.TOO_EASY),
    ),
    (
        (HARD, "proposed", ""),
        (HARD, "valid", INVALID_INPUT),
        (HARD, "solved", Reason.NOT_SOLVED),
        (HARD, "kept", Reason.CALLS_OUT_OF_BOUNDS),
        (HARD, "gate_tried", Reason.OBSERVE_SUFFICES),
        (HARD, "gate_passed", Reason.GYM_GATE_REFUSES),
        (HARD, "hard_enough", Reason.TOO_EASY),
    ),
)
"""Stage, name of a note that counts the inputs that are left, and why the others were dropped; first all inputs, then the enlarged ones."""


@dataclass(slots=True)
class SynthesisPrice:
    """Questions and tokens of some stages, and the number of accepted items by which they are divided."""

    questions: int = 0
    tokens: int = 0
    estimated: bool = False
    accepted: int = 0

    def add(self, stage: RecordedStage | SynthesisPrice) -> None:
        self.questions += stage.questions
        self.tokens += stage.tokens
        self.estimated |= stage.estimated


@dataclass(slots=True)
class RunPrice:
    """The price of a run's tools, that of its tasks, and the number of its environments."""

    tools: SynthesisPrice = field(default_factory=SynthesisPrice)
    tasks: SynthesisPrice = field(default_factory=SynthesisPrice)
    environments: int = 0

    def add(self, other: RunPrice) -> None:
        """Add another run."""
        for mine, its in ((self.tools, other.tools), (self.tasks, other.tasks)):
            mine.add(its)
            mine.accepted += its.accepted
        self.environments += other.environments


def measure_price(record: SynthesisRecord, packs: Collection[tuple[int, int]]) -> RunPrice:
    """Compute the price of a run. `packs`: (tools, tasks) of each known pack of the run; they count as the accepted ones if the record
    does not say how many the whole run accepted."""
    price = RunPrice(environments=len(packs))
    for stage in record.stages:
        (price.tools if is_domain_stage(stage.name) else price.tasks).add(stage)
    price.tools.accepted, price.tasks.accepted = sum(tools for tools, _ in packs), sum(tasks for _, tasks in packs)
    notes = record.run_notes
    if gyms := {key: tasks for key in notes.get(GYMS, {}) if (tasks := count_gym_tasks(notes, key))}:
        price.environments = len(gyms)
        price.tools.accepted = sum(bound_count(notes[GYMS][key].get("tools")) for key in gyms)
        price.tasks.accepted = sum(gyms.values())
    if (made := record.find_stage("tools")) is not None:
        price.tools.accepted = made.made
    if (built := record.find_stage("assessment") or record.find_stage("environments")) is not None:
        price.environments = built.made
    for gate in GATE_STAGES:
        if (gated := record.find_stage(gate)) is not None:
            price.tasks.accepted = gated.made
    return price


def is_domain_stage(name: str) -> bool:
    """Whether a stage is one of those that make an environment; a stage may have the number of its round (`search2`)."""
    return name in DOMAIN_STAGES or name.rstrip("0123456789") in DOMAIN_STAGES


def count_gym_tasks(notes: Mapping[str, Mapping[str, Note]], key: str) -> int:
    """Count the inputs of a gym that became tasks: those that the last stage kept, and the enlarged ones."""
    solved, easy, hard = (notes.get(stage, {}).get(key, {}) for stage in (SOLUTIONS, DIFFICULTY, HARD))
    return bound_count(easy.get("hard_enough", solved.get("kept"))) + bound_count(
        hard.get("hard_enough", hard.get("gate_passed"))
    )


def count_refused_tasks(record: SynthesisRecord) -> Counter[str]:
    """Reason → tasks that the gate refused; for gyms, whose inputs are their tasks, reason → inputs that a stage dropped."""
    found = sum((record.count_refused(stage) for stage in GATE_STAGES), Counter[str]())
    for key in record.notes.get(INSTANCES, {}):
        found += count_refused_inputs({stage: of.get(key, {}) for stage, of in record.notes.items()})
    return found


def count_refused_inputs(notes: Mapping[str, Note]) -> Counter[str]:
    """Reason → inputs of one gym that became no task. `notes`: stage → its figures."""
    faults = notes.get(INSTANCES, {}).get("faults")
    found = Counter(
        {bound_line(name): bound_count(n) for name, n in faults.items()} if isinstance(faults, dict) else {}
    )
    for steps in GYM_STEPS:
        before: float | None = None
        for stage, name, reason in steps:
            left = bound_number(notes.get(stage, {}).get(name))
            if before is not None and left is not None and left < before:
                found[reason] += int(before - left)
            before = before if left is None else left
    return +found


def list_dropped_tools(record: SynthesisRecord) -> list[tuple[str, ...]]:
    """List key, reason and detail of each dropped tool: dropped on its own, together with all tools, or by the assessment."""
    found: list[tuple[str, ...]] = [(each.key, each.reason, each.detail) for each in record.list_refusals("tools")]
    for key, note in record.notes.get("environments", {}).items():
        dropped = note.get("dropped")
        for tool, reason in dropped.items() if isinstance(dropped, dict) else ():
            found.append((f"{key}/{bound_line(tool)}", bound_line(reason), "among all tools"))
    for key, note in record.notes.get("assessment", {}).items():
        for tool in as_list(note.get("dropped_tools")):
            found.append((f"{key}/{bound_line(tool)}", str(Reason.ASSESSMENT_FAILED), "most test calls of it failed"))
    return found
