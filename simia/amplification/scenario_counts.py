"""Counts of accepted trajectories that scenarios are planned from; they do not depend on the time of acceptance."""

from __future__ import annotations

from collections.abc import Sequence

from simia.amplification.scenario import AcceptedCoverage, ToolCounts
from simia.amplification.settings import AmplifyConfig

STRETCH = 1000  # items that are planned from the same counts


class PlanCounts:
    """Counts of accepted tools, taken at fixed places, so that a resumed run plans the same items.

    Items come in stretches of `STRETCH`. Each is planned from what was accepted up to the end of the stretch before the previous one. A
    stretch is longer than what is in flight, so this is nearly always known in time.
    """

    def __init__(self, config: AmplifyConfig) -> None:
        self._used = config.prompt.scenarios
        self._coverage = AcceptedCoverage()
        self._taken: dict[int, ToolCounts] = {0: ToolCounts(), 1: ToolCounts()}

    def note(self, tools: Sequence[str]) -> None:
        if self._used:
            self._coverage.note(tools)

    def decided(self, ord_: int) -> None:
        if self._used and (ord_ + 1) % STRETCH == 0:
            self._taken[(ord_ + 1) // STRETCH + 1] = self._coverage.snapshot()

    def counts(self, ord_: int, *, wait: bool = False) -> ToolCounts | None:
        """Return the counts for an item. With `wait`, None while they are not known; without it, the latest known ones."""
        stretch = ord_ // STRETCH
        known = self._taken.get(stretch) if self._used else ToolCounts()
        if known is not None or wait:
            return known
        return self._taken[max(self._taken)]
