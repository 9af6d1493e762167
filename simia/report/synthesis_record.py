"""Read `synthesis.json`, the record that a synthesis leaves in a pack: stages with counts, tokens and cost, refusals, notes.

The pack may come from another person, so the record is untrusted: its size is bounded, a value of an unexpected type is left out, and
each text is cut to one line of bounded length. If it cannot be read, the report says so and continues.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from simia.errors import UserError
from simia.json_values import is_number
from simia.pack import find_pack_file
from simia.pack_files import RECORD, read_bytes
from simia.terminal import one_line

MOST_BYTES = 64 << 20
MOST_STAGES, MOST_REFUSALS, MOST_NOTES = 64, 20_000, 200_000
MOST_NAME, MOST_DETAIL = 120, 300  # characters
MOST_NUMBER = 10**15


@dataclass(slots=True)
class RecordedStage:
    """One stage: inputs, outputs, refusals by reason, questions to models, and what they cost."""

    name: str
    inputs: int = 0
    made: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    questions: int = 0
    prompt: int = 0
    completion: int = 0
    estimated: bool = False
    cost: float | None = None

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True)
class RecordedRefusal:
    """One input of a stage without an output."""

    stage: str
    key: str
    reason: str
    detail: str


@dataclass(slots=True)
class SynthesisRecord:
    """The content of `synthesis.json`. `fault`: why it could not be read; `left_out`: number of refusals beyond the limit."""

    recipe: str = ""
    model: str = ""
    stages: list[RecordedStage] = field(default_factory=list)
    refusals: list[RecordedRefusal] = field(default_factory=list)
    left_out: int = 0
    notes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    fault: str = ""
    narrowed: set[str] = field(default_factory=set)
    """Stages with only the refusals and notes of one pack."""
    run_notes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """The notes of the whole run."""

    def narrow(self, pack: str) -> SynthesisRecord:
        """Return the record with the refusals and notes of one pack, since a run may make several. Only stages with keys that begin
        with the pack's name are narrowed. Figures of stages and `run_notes` remain those of the whole run."""
        mine = f"{pack}/"
        keys = [(refusal.stage, refusal.key) for refusal in self.refusals]
        keys += [(stage, key) for stage, notes in self.notes.items() for key in notes]
        named = {stage for stage, key in keys if key.startswith(mine) or key == pack}
        notes = {
            stage: {key: note for key, note in kept.items() if stage not in named or f"{key}/".startswith(mine)}
            for stage, kept in self.notes.items()
        }
        refusals = [each for each in self.refusals if each.stage not in named or f"{each.key}/".startswith(mine)]
        return replace(self, refusals=refusals, notes=notes, narrowed=named)

    @property
    def identity(self) -> str:
        """A key that is equal for all records of one run."""
        return repr((self.recipe, self.model, self.stages))

    def list_refusals(self, stage: str) -> list[RecordedRefusal]:
        return [refusal for refusal in self.refusals if refusal.stage == stage]

    def find_stage(self, name: str) -> RecordedStage | None:
        return next((stage for stage in self.stages if stage.name == name), None)

    def count_refused(self, stage: str) -> Counter[str]:
        """Reason → refused inputs of a stage."""
        figures = self.find_stage(stage)
        if figures is not None and figures.refused and stage not in self.narrowed:
            return figures.refused
        return Counter(refusal.reason for refusal in self.list_refusals(stage))

    def sum_rounds(self) -> tuple[int, int]:
        """Return the total number of rounds of the debug loop, and the number of tools that needed a round."""
        rounds = [bound_count(note.get("rounds")) for note in self.notes.get("tools", {}).values()]
        return sum(rounds), sum(each > 0 for each in rounds)

    def sum_tests(self) -> Counter[str]:
        """Outcome → number of tests of tools in the last run by the synthesis."""
        found: Counter[str] = Counter()
        for note in self.notes.get("tools", {}).values():
            found.update(count_outcomes(note))
        return found


def read_record(root: Path) -> SynthesisRecord | None:
    """Read the record of a pack; None if it has none."""
    if not (root / RECORD).exists() and not (root / RECORD).is_symlink():
        return None
    try:
        data = orjson.loads(read_bytes(find_pack_file(root / "pack.yaml", RECORD), MOST_BYTES))
    except (UserError, orjson.JSONDecodeError, OSError) as error:
        return SynthesisRecord(fault=bound_line(f"{RECORD} cannot be read: {error}", MOST_DETAIL))
    if not isinstance(data, dict):
        return SynthesisRecord(fault=f"{RECORD} is not an object")
    rows = as_list(data.get("refusals"))
    record = SynthesisRecord(
        recipe=bound_line(data.get("recipe")),
        model=bound_line(data.get("model")),
        stages=[read_stage(row) for row in as_list(data.get("stages"))[:MOST_STAGES] if isinstance(row, dict)],
        refusals=[read_refusal(row) for row in rows[:MOST_REFUSALS] if isinstance(row, dict)],
        left_out=max(0, len(rows) - MOST_REFUSALS),
    )
    for _, (stage, key, note) in zip(range(MOST_NOTES), iterate_notes(data.get("notes")), strict=False):
        record.notes.setdefault(stage, {})[key] = note
    record.run_notes = record.notes
    return record


def iterate_notes(data: Any) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Stage, key and figures of each note."""
    for stage, notes in data.items() if isinstance(data, dict) else ():
        for key, note in notes.items() if isinstance(notes, dict) else ():
            if isinstance(note, dict):
                yield bound_line(stage), bound_line(key), note


def read_stage(row: dict[str, Any]) -> RecordedStage:
    raw_tokens, refused = row.get("tokens"), row.get("refused")
    tokens = raw_tokens if isinstance(raw_tokens, dict) else {}
    counts = refused.items() if isinstance(refused, dict) else ()
    return RecordedStage(
        name=bound_line(row.get("name")),
        inputs=bound_count(row.get("inputs")),
        made=bound_count(row.get("made")),
        refused=Counter({bound_line(reason): bound_count(n) for reason, n in list(counts)[:MOST_STAGES]}),
        questions=bound_count(row.get("questions")),
        prompt=bound_count(tokens.get("prompt")),
        completion=bound_count(tokens.get("completion")),
        estimated=row.get("estimated") is True,
        cost=bound_number(row.get("cost")),
    )


def count_outcomes(note: dict[str, Any]) -> Counter[str]:
    """The `outcomes` of a note of stage `tools`: outcome → tests in its last round."""
    outcomes = note.get("outcomes")
    named = outcomes if isinstance(outcomes, dict) else {}
    return Counter({name: bound_count(named.get(name)) for name in ("success", "refusal", "failure")})


def read_refusal(row: dict[str, Any]) -> RecordedRefusal:
    stage, key, reason = (bound_line(row.get(name)) for name in ("stage", "key", "reason"))
    return RecordedRefusal(stage, key, reason, bound_line(row.get("detail"), MOST_DETAIL))


def bound_number(value: Any) -> float | None:
    """A finite number from 0 to a bound; None for anything else."""
    known = is_number(value)
    return float(value) if known and math.isfinite(value) and 0 <= value <= MOST_NUMBER else None


def bound_count(value: Any) -> int:
    return int(bound_number(value) or 0)


def bound_line(value: Any, most: int = MOST_NAME) -> str:
    """A text as one line of bounded length; empty for anything that is no text."""
    if not isinstance(value, str):
        return ""
    text = one_line(value[: 4 * most])
    return text if len(text) <= most else text[: most - 1] + "…"


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
