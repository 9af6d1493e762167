"""Count how often tools were planned and accepted, so that rare ones are planned more often.

The counts for an item are taken at fixed places, the ends of stretches of `STRETCH` items. They consist of the trajectories accepted up to
the end of the stretch before the previous one, and of the plans of all items since then, weighted by the share accepted so far. A resumed
run therefore makes the same plans, and a batch, in which nothing is accepted during planning, is balanced like a live run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

MOST_TOOLS = 6
STRETCH = 1000  # items that are planned from the same accepted counts
EXPECTED = 0.8  # share of accepted items that is assumed until one is measured


@dataclass(slots=True)
class ToolCounts:
    """How often trajectories used a tool, two tools together, and exactly these tools (in name order)."""

    tools: Counter[str] = field(default_factory=Counter)
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    sets: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, tools: Sequence[str], weight: float = 1) -> None:
        """Count the tools that one trajectory calls. `weight`: how likely it is to be accepted."""
        names = tuple(sorted(set(tools)))
        for counter, keys in ((self.tools, names), (self.pairs, combinations(names, 2))):
            for key in keys:
                counter[key] += weight  # type: ignore[index,assignment]
        if 0 < len(names) <= MOST_TOOLS:  # there could be too many larger sets
            self.sets[names] += weight  # type: ignore[assignment]

    def copy(self) -> ToolCounts:
        return ToolCounts(self.tools.copy(), self.pairs.copy(), self.sets.copy())

    def seen(self, tools: Sequence[str]) -> float:
        """Measure how well a combination is covered: by its rarest pair, since two frequent pairs do not make all three tools frequent together."""
        names = tuple(sorted(set(tools)))
        if not names:
            return 0
        if len(names) == 1:  # within larger ones nearly every tool is common; alone it may still be rare
            return self.sets[names] + self.tools[names[0]] / MOST_TOOLS
        rarest = min(self.pairs[pair] for pair in combinations(names, 2))
        return max(self.sets[names], rarest / 2)


class PlanCounts:
    """The counts that items are planned from, in the order of items."""

    def __init__(self, *, used: bool) -> None:
        """`used`: whether items are planned from the counts at all."""
        self._used = used
        self._latest = ToolCounts()
        self._decided = self._accepted = 0
        # By stretch: the accepted counts that its items are planned from, and the share that was accepted. The latest ones only.
        self._taken = {0: (ToolCounts(), EXPECTED), 1: (ToolCounts(), EXPECTED)}
        self._planned: dict[int, list[tuple[str, ...]]] = {}  # by stretch: the tools of each plan
        self._present: tuple[int, ToolCounts] | None = None  # what the stretch of the last item is planned from

    def note(self, tools: Sequence[str]) -> None:
        """Count an accepted trajectory's tools."""
        if self._used:
            self._accepted += 1
            self._latest.add(tools)

    def note_plan(self, ord_: int, tools: Sequence[str]) -> None:
        """Count an item's planned tools. Items come in order, those of an earlier session first."""
        if not self._used:
            return
        self._planned.setdefault(ord_ // STRETCH, []).append(tuple(tools))
        if self._present is not None:
            at, counts = self._present
            counts.add(tools, self._taken[at][1])

    def decided(self, ord_: int) -> None:
        """Note a decided item. At the end of a stretch, keep the counts for the stretch after the next one."""
        if not self._used:
            return
        self._decided += 1
        if (ord_ + 1) % STRETCH == 0:
            newest = max(self._taken) + 1
            self._taken[newest] = self._latest.copy(), self._accepted / self._decided
            self._taken.pop(newest - 3, None)
            self._planned.pop(newest - 4, None)

    def is_known(self, ord_: int) -> bool:
        """Check whether enough is decided for the counts of an item."""
        return not self._used or ord_ // STRETCH <= max(self._taken)

    def counts(self, ord_: int) -> ToolCounts:
        """Return the counts for an item: accepted trajectories as far as they are known, and the plans made since then."""
        at = max(min(ord_ // STRETCH, max(self._taken)), min(self._taken))
        if self._present is None or self._present[0] != at:
            accepted, share = self._taken[at]
            present = accepted.copy()
            for stretch in sorted(self._planned):
                for tools in self._planned[stretch] if stretch >= at - 1 else ():
                    present.add(tools, share)
            self._present = at, present
        return self._present[1]
