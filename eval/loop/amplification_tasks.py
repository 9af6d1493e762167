"""Tasks of the amplification experiment: 300 test tasks from the 150 wordings, dev and training tasks, and the check that nothing is shared.

Test tasks and dev tasks each take parcels and lockers from a small pool, so that rows of a later run seldom contain one of them: there
are only 2,070 lockers. docs/experiments/amplification.md describes the comparison.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import tasks
import yaml

from simia.errors import UserError
from simia.trajectory import Trajectory

WORDINGS = Path(__file__).with_name("amplification_wordings.yaml")
EACH = 2  # tasks of a wording
DEV, TRAIN = 40, 160
POOL = {"test": (120, 300), "dev": (60, 120)}
"""Split → how many lockers and parcels its tasks share."""


@dataclass(frozen=True)
class Wording:
    """A user's message with places for values. `id`: the kind of task and a number, as `move-01`."""

    id: str
    kind: str
    text: str


class PooledValues(tasks.Drawn):
    """Values of one task, each used once: people that no other task has, and parcels and lockers of a pool."""

    def __init__(self, source: random.Random, taken: set[str], lockers: list[str], parcels: list[str]) -> None:
        super().__init__(source, ())
        self._taken = taken  # shared by the tasks of a split
        self._lockers = source.sample(lockers, 6)
        self._parcels = source.sample(parcels, 3)

    def locker(self) -> str:
        return self._lockers.pop()

    def parcel(self) -> str:
        return self._parcels.pop()


def load_wordings(path: Path = WORDINGS) -> list[Wording]:
    """Read the wordings of the test tasks, in the order of the file."""
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    return [
        Wording(f"{kind}-{number:02d}", kind, text)
        for kind, texts in found.items()
        for number, text in enumerate(texts, 1)
    ]


def make_test_tasks(wordings: Sequence[Wording], taken: set[str], attempt: int = 1) -> list[dict[str, Any]]:
    """Two tasks of each wording, tagged with kind and wording. No value is in `taken`; `attempt` 2 gives other values and days."""
    source = random.Random(f"lockers/amplification/test/{attempt}")
    made = []
    for number, (wording, drawn) in enumerate(
        zip([w for w in wordings for _ in range(EACH)], pool_values("test", source, taken), strict=False)
    ):
        row = tasks.make_task(f"test-{number:03d}", "test", wording.kind, wording.text, source, drawn)
        made.append({**row, "tags": [wording.kind, wording.id]})
    return made


def make_dev_tasks(taken: set[str], count: int = DEV) -> list[dict[str, Any]]:
    """Dev tasks in the wordings of training tasks. No value is in `taken`."""
    source = random.Random("lockers/amplification/dev")
    values = pool_values("dev", source, taken)
    return [tasks.task(number, "dev", source, drawn) for number, drawn in zip(range(count), values, strict=False)]


def pool_values(split: str, source: random.Random, taken: set[str]) -> Iterator[PooledValues]:
    known = set(taken)
    values = tasks.Drawn(source, known)
    lockers, parcels = (
        [make() for _ in range(n)] for make, n in zip((values.locker, values.parcel), POOL[split], strict=True)
    )
    while True:
        yield PooledValues(source, known, lockers, parcels)


def write_pack(out: Path, taken: set[str], *, attempt: int = 1, counts: Mapping[str, int] | None = None) -> None:
    """Write a pack with the test, dev and training tasks, which share nothing with each other or with `taken`.

    Args:
        out: The folder, which is replaced.
        taken: Values of the rows that are trained on.
        attempt: 1, or 2 for the test tasks of a second try.
        counts: Split → number of tasks, fewer than planned for a trial; the test tasks are spread over the wordings.
    """
    counts = {"test": EACH * len(load_wordings()), "dev": DEV, "train": TRAIN, **(counts or {})}
    known = taken | read_entities([tasks.PACK / "tasks.jsonl", tasks.PACK / "seeds.jsonl"])
    made = list(tasks.tasks({"train": counts["train"]}, known))
    for make, count in ((make_dev_tasks, counts["dev"]), (None, counts["test"])):
        known = known | tasks.entities(json.dumps([row["initial"] for row in made]))
        if make is not None:
            made += make(known, count)
        else:
            whole = make_test_tasks(load_wordings(), known, attempt)
            made += whole[:: max(1, len(whole) // count)][:count]
    shutil.copytree(tasks.PACK, out, dirs_exist_ok=True)
    own = (tasks.PACK / "tasks.jsonl").read_text()
    (out / "tasks.jsonl").write_text(own + "".join(json.dumps(row) + "\n" for row in made))


def read_entities(paths: Iterable[Path]) -> set[str]:
    """People, parcels and lockers of files."""
    return set[str]().union(*(tasks.entities(path.read_text(encoding="utf-8")) for path in paths))


def render_task(row: Mapping[str, Any]) -> str:
    return json.dumps([row["initial"], row["script"]])


def render_row(row: Trajectory) -> str:
    """The conversation without its system text, which all rows share."""
    return json.dumps([message.model_dump(mode="json", exclude_defaults=True) for message in row.messages])


def read_request(row: Trajectory) -> str:
    """The user's first message."""
    return next(message.text for message in row.messages if message.role == "user")


def check_apart(
    held: Mapping[str, Sequence[Mapping[str, Any]]], arms: Mapping[str, Sequence[Trajectory]]
) -> dict[str, Any]:
    """Compare held-out tasks with each other and with the rows of every arm.

    Args:
        held: Split → its tasks.
        arms: Arm → the trajectories that it is trained on.

    Returns:
        Pair → number of rows, shared entities and shared requests: all of them empty.

    Raises:
        UserError: Something is shared.
    """
    texts = {name: [render_task(row) for row in rows] for name, rows in held.items()}
    requests = {name: {row["instruction"] for row in rows} for name, rows in held.items()}
    trained = {name: [render_row(row) for row in rows] for name, rows in arms.items()}
    found: dict[str, Any] = {}
    for one, other in combinations(held, 2):
        found[f"{one} and {other}"] = compare(texts[one], texts[other], requests[one] & requests[other])
    for split in held:
        for arm, rows in arms.items():
            same = requests[split] & {read_request(row) for row in rows}
            found[f"{split} and {arm}"] = {"rows": len(rows), **compare(texts[split], trained[arm], same)}
    for pair, shared in found.items():
        if shared["entities"] or shared["requests"]:
            raise UserError(f"{pair} share {[*shared['entities'], *shared['requests']][:5]}; sample the tasks again")
    return found


def compare(left: Iterable[str], right: Iterable[str], requests: set[str]) -> dict[str, Any]:
    return {"entities": sorted(tasks.shared(left, right)), "requests": sorted(requests)}
