"""Split the rows of a simulator into training and held-out rows: remove duplicates, hold out tasks, tools and packs, balance by |Δ| and outcome.

|Δ| is the number of leaf fields that a call adds, removes or changes. Without balancing, a model that never changes anything would be
right on most rows, since most calls of rollouts only read or are refused. Refused calls are a class of their own: a small model that is
trained mostly on refusals learns to refuse.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from simia.errors import UserError
from simia.exporting.simulator_rows import TRAIN, SimulatorRow
from simia.exporting.simulator_settings import HeldOutSettings
from simia.trajectory import digest

CLASSES = {"0": (0, 0), "1-2": (1, 2), "3-6": (3, 6), "7+": (7, None)}
REFUSED = "refused"
DUPLICATES = "rows that teach what another one teaches"
LEAKS = "training rows that teach what a held-out row asks for"
NAMED = "training rows whose request names a held-out tool"
BALANCE = "training rows of classes (refusals, |Δ|) that have too many"


@dataclass(slots=True)
class SplitRows:
    """Rows by use. `held_out`: `pack`, `tool` or `task` → rows; `left_out`: reasons why rows are in neither part; `lost`: tools that have no
    training row after balancing."""

    train: list[SimulatorRow] = field(default_factory=list)
    held_out: dict[str, list[SimulatorRow]] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)


def split_rows(
    rows: Sequence[SimulatorRow],
    settings: HeldOutSettings,
    take: int | None = None,
    largest: float = 1.0,
    least: int = 0,
) -> SplitRows:
    """Split the rows of all packs. No training row has the content of a held-out row. Raises `UserError` for unknown names."""
    found = SplitRows()
    tools, tasks = choose_tools(rows, settings), choose_tasks(rows, settings)
    seen: dict[str, set[str]] = defaultdict(set)
    train: list[SimulatorRow] = []
    for row in rows:
        use = ""
        if row.pack in settings.packs:
            use = "pack"
        elif row.tool in tools[row.pack]:
            use = "tool"
        elif row.split != TRAIN or row.task in tasks:
            use = "task"
        if row.effect in seen[use]:
            found.left_out[DUPLICATES] += 1
            continue
        seen[use].add(row.effect)
        if use:
            found.held_out.setdefault(use, []).append(row)
        else:
            train.append(row)
    asked = set[str]().union(*(effects for use, effects in seen.items() if use))
    names = {
        pack: re.compile(rf"\b({'|'.join(map(re.escape, sorted(held)))})\b") for pack, held in tools.items() if held
    }
    kept = []
    for row in train:
        if row.effect in asked:
            found.left_out[LEAKS] += 1
        elif row.pack in names and names[row.pack].search(row.messages[1]["content"]):
            found.left_out[NAMED] += 1
        else:
            kept.append(row)
    found.train = balance_rows(kept, take, largest, least)
    found.lost = sorted({row.tool for row in kept} - {row.tool for row in found.train})
    found.left_out[BALANCE] += len(kept) - len(found.train)
    found.left_out = +found.left_out
    return found


def choose_tools(rows: Iterable[SimulatorRow], settings: HeldOutSettings) -> dict[str, set[str]]:
    """Pack → its held-out tools. Raises `UserError` for a name that no row has."""
    known: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        known[row.pack].add(row.tool)
    if unknown := sorted({*settings.packs} - known.keys()):
        raise UserError(f"held_out.packs: no row is of pack {unknown[0]!r}; there are: {', '.join(sorted(known))}")
    if isinstance(settings.tools, list):
        every = set[str]().union(*known.values())
        if unknown := sorted({*settings.tools} - every):
            raise UserError(
                f"held_out.tools: no row is of a tool {unknown[0]!r}; there are: {', '.join(sorted(every))}"
            )
        return {pack: names & {*settings.tools} for pack, names in known.items()}
    return {
        pack: set() if pack in settings.packs else choose_share(names, settings.tools, pack)
        for pack, names in known.items()
    }


def choose_tasks(rows: Iterable[SimulatorRow], settings: HeldOutSettings) -> set[str]:
    """The training tasks that are held out."""
    known: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.split == TRAIN:
            known[row.pack].add(row.task)
    return set[str]().union(*(choose_share(names, settings.tasks, pack) for pack, names in known.items()))


def choose_share(names: Iterable[str], share: float, salt: str) -> set[str]:
    """A share of names, the same ones each time. One that is not 0 chooses at least one."""
    ordered = sorted(names, key=lambda name: digest([salt, name]))
    return set(ordered[: max(1, round(share * len(ordered))) if share else 0])


def find_class(delta: int) -> str:
    """The class of a number of changed leaf fields."""
    return next(name for name, (low, high) in CLASSES.items() if low <= delta and (high is None or delta <= high))


def find_row_class(row: SimulatorRow) -> str:
    """The class of a row by which training rows are balanced: refused, else its class of |Δ|."""
    return REFUSED if row.truth.failed else find_class(row.truth.delta)


def count_classes(rows: Iterable[SimulatorRow]) -> dict[str, int]:
    """Rows by class: the refused calls, and the successful ones by |Δ|."""
    counts = Counter(map(find_row_class, rows))
    return {name: counts[name] for name in (REFUSED, *CLASSES)}


def write_class(name: str) -> str:
    """A class as texts name it: `refused`, `|Δ| 1-2`."""
    return name if name == REFUSED else f"|Δ| {name}"


def balance_rows(
    rows: Sequence[SimulatorRow], take: int | None = None, largest: float = 1.0, least: int = 0
) -> list[SimulatorRow]:
    """Choose rows by class, alternating between tools within a class. The chosen rows keep their order.

    Classes are the refused calls, and the successful ones by |Δ|.

    `take`: total number of rows, divided equally between classes as far as they have rows. None: the largest class is cut to the share
    `largest` of the chosen rows, but not below `least` rows, and each tool keeps at least one row.
    """
    groups: dict[str, list[SimulatorRow]] = defaultdict(list)
    for row in rows:
        groups[find_row_class(row)].append(row)
    counts = {name: len(group) for name, group in groups.items()}
    if take is None:
        most = max(counts, key=lambda name: counts[name], default="")
        rest = len(rows) - counts.get(most, 0)
        if most and largest < 1:
            counts[most] = min(counts[most], max(least, int(rest * largest / (1 - largest))))
        quotas = counts
    else:
        quotas = share_equally(counts, take)
    ordered = {name: alternate_tools(group) for name, group in groups.items()}
    taken = [row for name, group in ordered.items() for row in group[: quotas[name]]]
    if take is None:
        first = {(row.pack, row.tool): row for group in ordered.values() for row in reversed(group)}
        taken += [first[tool] for tool in first.keys() - {(row.pack, row.tool) for row in taken}]
    chosen = {id(row) for row in taken}
    return [row for row in rows if id(row) in chosen]


def share_equally(counts: dict[str, int], total: int) -> dict[str, int]:
    """Give each class the same number of rows; what a small class lacks goes to the others."""
    quotas = dict.fromkeys(counts, 0)
    left = min(total, sum(counts.values()))
    while left:
        open_ = [name for name in counts if quotas[name] < counts[name]]
        each = max(1, left // len(open_))
        for name in open_:
            more = min(each, counts[name] - quotas[name], left)
            quotas[name], left = quotas[name] + more, left - more
    return quotas


def alternate_tools(rows: Iterable[SimulatorRow]) -> list[SimulatorRow]:
    """Order rows: first one row of each tool, then the second of each, and so on."""
    groups: dict[tuple[str, str], list[SimulatorRow]] = defaultdict(list)
    for row in rows:
        groups[row.pack, row.tool].append(row)
    most = max(map(len, groups.values()), default=0)
    return [group[n] for n in range(most) for group in groups.values() if n < len(group)]
