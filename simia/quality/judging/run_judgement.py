"""The verdicts on a run's accepted trajectories: their file in the run's folder, and figures computed from them.

`judgements.jsonl` has one row for each judge, way of judging and item. Rows are appended during judging, so a crash loses no
written row, and a torn last line is dropped on reading. After a pass over the run the file is rewritten in order and renamed
over the old one. A row states what it was judged `by` (hash of model, prompts and way of asking): after a change of any, the
verdict is requested again, and the earlier one stays and counts as that of another judge.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from simia.errors import Issue, UserError
from simia.quality.judging.agreement import Agreement, PassRate, compute_fleiss_kappa, measure_agreement
from simia.quality.judging.judge_reply import Verdict
from simia.quality.judging.rubric import OVERALL

FILE = "judgements.jsonl"
Rule = Literal["any", "majority", "all"]


class JudgedItem(BaseModel):
    """One row: a judge's verdict on one accepted item."""

    model_config = ConfigDict(frozen=True)

    judge: str
    by: str
    item: str
    trajectory: str
    verdict: Verdict

    def said(self, dimension: str) -> bool | None:
        return self.verdict.passed if dimension == OVERALL else self.verdict.dimensions.get(dimension)

    def judges(self, dimension: str) -> bool:
        return dimension == OVERALL or dimension in self.verdict.dimensions


@dataclass(slots=True)
class Judgement:
    """The rows of a run, and the figures that follow from them. `waiting`: where questions of a batch wait; empty if none do."""

    rows: list[JudgedItem] = field(default_factory=list)
    waiting: str = ""

    @property
    def judges(self) -> list[str]:
        return list(dict.fromkeys(row.judge for row in self.rows))

    def dimensions(self, *judges: str) -> list[str]:
        """List the dimensions that all of these judges assess; `overall` first."""
        rows = {row.judge: row for row in self.rows}
        known = dict.fromkeys([OVERALL, *(name for row in self.rows for name in row.verdict.dimensions)])
        return [name for name in known if all(rows[judge].judges(name) for judge in judges)]

    def rate(self, judge: str, dimension: str = OVERALL) -> PassRate:
        said = [row.said(dimension) for row in self.rows if row.judge == judge and row.judges(dimension)]
        return PassRate(said.count(True), len(said) - said.count(None), said.count(None))

    def ratings(self, judges: Sequence[str], dimension: str = OVERALL) -> dict[str, list[bool]]:
        """Return verdicts by item, in the judges' order, for items with a verdict of each judge."""
        found: dict[str, dict[str, bool]] = {}
        for row in self.rows:
            said = row.said(dimension)
            if row.judge in judges and said is not None:
                found.setdefault(row.item, {})[row.judge] = said
        return {item: [by[j] for j in judges] for item, by in found.items() if len(by) == len(judges)}

    def agreement(self, first: str, second: str, dimension: str = OVERALL) -> Agreement:
        return measure_agreement([(a, b) for a, b in self.ratings([first, second], dimension).values()])

    def agreements(self) -> dict[tuple[str, str, str], Agreement]:
        """Compare every pair of judges on every common dimension: (first, second, dimension) → agreement."""
        return {
            (a, b, name): self.agreement(a, b, name)
            for a, b in combinations(self.judges, 2)
            for name in self.dimensions(a, b)
        }

    def kappa(self, dimension: str = OVERALL) -> float | None:
        """Compute Fleiss' kappa over all judges of this dimension; None for fewer than three."""
        judges = [judge for judge in self.judges if dimension in self.dimensions(judge)]
        return compute_fleiss_kappa(list(self.ratings(judges, dimension).values())) if len(judges) > 2 else None

    def disagreements(self) -> list[tuple[str, float]]:
        """List items on which judges disagree, the most disputed first: (item, share of disagreeing pairs of verdicts)."""
        disputed: dict[str, float] = {}
        for item, rows in self._by_item().items():
            names = {name for row in rows for name in [OVERALL, *row.verdict.dimensions]}
            sides = [[said for row in rows if (said := row.said(name)) is not None] for name in names]
            pairs = sum(len(side) * (len(side) - 1) // 2 for side in sides)
            apart = sum(side.count(True) * side.count(False) for side in sides)
            if apart:
                disputed[item] = apart / pairs
        return sorted(disputed.items(), key=lambda pair: (-pair[1], pair[0]))

    def failed(self, rule: Rule = "majority") -> dict[str, list[Issue]]:
        """Return the items that any, most or all of their judges failed, with their faults."""
        return {item: faults for (item, _), faults in self.decide(rule).items() if faults is not None}

    def decide(self, rule: Rule = "majority") -> dict[tuple[str, str], list[Issue] | None]:
        """Return what an export does with each judged trajectory, by its item and its id: None if it is kept, else the faults for which it is
        left out, since any, most or all of its judges failed it. An item has several ids if a recheck has changed its trajectory."""
        judged: dict[tuple[str, str], list[Verdict]] = {}
        for row in self.rows:
            if row.verdict.passed is not None:
                judged.setdefault((row.item, row.trajectory), []).append(row.verdict)
        found: dict[tuple[str, str], list[Issue] | None] = {}
        for key, verdicts in judged.items():
            against = [verdict for verdict in verdicts if not verdict.passed]
            needed = {"any": 1, "majority": len(verdicts) // 2 + 1, "all": len(verdicts)}[rule]
            out = against and len(against) >= needed
            found[key] = [issue for verdict in against for issue in verdict.issues] if out else None
        return found

    def judged_items(self) -> set[str]:
        """Return the items that have a verdict; an error is none."""
        return {row.item for row in self.rows if row.verdict.passed is not None}

    def _by_item(self) -> dict[str, list[JudgedItem]]:
        items: dict[str, list[JudgedItem]] = {}
        for row in self.rows:
            items.setdefault(row.item, []).append(row)
        return items


class VerdictFile:
    """The file of verdicts of one run, while judging goes on, by judge, way of judging (`by`) and item. One process writes.

    A later row replaces an earlier one, except that an error does not replace a verdict on the same trajectory.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self.rows: dict[tuple[str, str, str], JudgedItem] = {}
        for row in read_verdict_rows(self.path):
            self._keep(row)

    def add(self, row: JudgedItem) -> None:
        """Append a row to the file."""
        self._keep(row)
        with self.path.open("a+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")  # a kill tore the last line: it must not swallow this one
            file.write(encode_row(row))

    def _keep(self, row: JudgedItem) -> None:
        key = (row.judge, row.by, row.item)
        known = self.rows.get(key)
        judged = known is not None and known.verdict.error is None and known.trajectory == row.trajectory
        if row.verdict.error is None or not judged:
            self.rows[key] = row

    def rewrite(self, rows: Iterable[JudgedItem]) -> None:
        """Replace the file by exactly these rows, all of them on disk before the old file goes."""
        aside = self.path.with_name(f"{FILE}.new")
        with aside.open("wb") as file:
            file.writelines(encode_row(row) for row in rows)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path)


def encode_row(row: JudgedItem) -> bytes:
    return orjson.dumps(row.model_dump(mode="json", exclude_defaults=True), option=orjson.OPT_APPEND_NEWLINE)


def read_verdict_rows(path: Path) -> list[JudgedItem]:
    """Read the rows of a file, none if it does not exist. A torn line is left out; other damage raises `UserError`."""
    if not path.is_file():
        return []
    rows = []
    for number, text in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not text:
            continue
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        try:
            rows.append(JudgedItem.model_validate(value))
        except ValidationError:
            raise UserError(f"{path}, line {number} is not a verdict: move the file away and judge again") from None
    return rows


def load_judgement(folder: Path) -> Judgement:
    """Load the verdicts on a run; of an interrupted pass the latest row of each judge, way of judging and item."""
    return Judgement(list(VerdictFile(folder).rows.values()))
