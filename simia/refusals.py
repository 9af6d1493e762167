"""Count refused rows by reason, with the place of the first row of each: for dry runs, first lines of runs, and exports."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from simia.errors import Issue

LONGEST = 200  # characters of the first finding of a reason


@dataclass(slots=True)
class RefusalCounts:
    """Refused rows: reason → count, and reason → the first row with its finding."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, issue: Issue) -> None:
        """Count one row. `place` is FILE:LINE, or the row's id."""
        self.counts[issue.code] += 1
        if issue.code not in self.first:
            at = f" {issue.where}:" if issue.where else ""
            self.first[issue.code] = f"{place}:{at} {issue.detail or issue.code.meaning}"[:LONGEST]

    @property
    def total(self) -> int:
        return self.counts.total()

    def __bool__(self) -> bool:
        return bool(self.counts)

    def __str__(self) -> str:
        """All reasons on one line, the most frequent first: `7 ungrounded_id, 5 unknown_tool`."""
        return ", ".join(f"{count:,} {code}" for code, count in self.counts.most_common())

    def describe_first(self) -> list[str]:
        """Return a line for each reason: its code and the first row that has it."""
        return [f"{code}, first: {self.first[code]}" for code, _ in self.counts.most_common()]
