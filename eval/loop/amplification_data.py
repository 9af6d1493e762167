"""Rows of each arm of the amplification experiment: seeds, copies of seeds with other values, amplified trajectories, rollouts.

A copy of a seed has other people, parcels, lockers, sizes and days. Days from 1 to 7 change in request, call and answer together; a
request for more than 7 days still asks for more than 7. docs/experiments/amplification.md describes the arms.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tasks
from amplification_tasks import read_entities, render_row, write_pack

from simia.authoring.fresh_people import choose_person
from simia.errors import UserError
from simia.jobs.run import iterate_accepted
from simia.quality.check import check_structure
from simia.trajectory import Message, Trajectory

CHANGES = ("move_parcel", "hold_parcel", "return_parcel")
MOST_DAYS = 7
NUMBERS = {
    word: n for n, word in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
}
DAYS = re.compile(rf"\b(\d+|{'|'.join(NUMBERS)}|a) (day|week|month)s?\b")
UNITS = {"day": 1, "week": 7, "month": 30}
LONG = (*(f"{n} days" for n in range(8, 31)), "two weeks", "three weeks", "four weeks", "ten days", "a month")
"""Requests for more than 7 days."""


class CopiedValues(tasks.Drawn):
    """Values of the copies. People come from where `simia amplify` takes those of its prompts, not from the lists of the tasks."""

    def name(self) -> str:
        return self._new(make_person_name)


def make_person_name(source: random.Random) -> str:
    """Return a given and a family name, in the form that `tasks.NAME` finds."""
    while not tasks.NAME.fullmatch(name := choose_person("en", source.randrange(10**6)).full):
        pass
    return name


def load_amplified(run: Path, count: int | None, apart: Collection[str] = ()) -> list[Trajectory]:
    """The first accepted trajectories of a run, in its order; equal conversations once.

    Args:
        run: The run's folder. It may be unfinished.
        count: How many; None: all.
        apart: People, parcels and lockers of existing tasks; trajectories with one of these are left out.

    Raises:
        UserError: The run has fewer than `count`.
    """
    found = {row.id: row for row in read_run(run) if not tasks.entities(render_row(row)) & set(apart)}
    if len(found) < (count or 0):
        raise UserError(f"{run}: {len(found)} accepted trajectories, {count} are needed; let the run go on")
    return list(found.values())[:count]


def draw_arms(
    run: Path,
    seeds: Sequence[Trajectory],
    pack: Path,
    *,
    rows: int,
    attempt: int = 1,
    counts: Mapping[str, int] | None = None,
) -> dict[str, list[Trajectory]]:
    """Write a pack whose tasks share nothing with any trajectory of a run, and return the rows of *seeds*, *swapped* and *amplified*.

    Args:
        run: Folder of the run with the strong model. Its number of trajectories determines the tasks.
        seeds: The pack's seeds.
        pack: The folder of the tasks, which is replaced.
        rows: Number of trajectories besides the seeds.
        attempt: 1, or 2 for the second try.
        counts: Split → number of tasks, if fewer than planned.
    """
    amplified = load_amplified(run, rows)
    whole = [*seeds, *load_amplified(run, None)]
    taken = set[str]().union(*(tasks.entities(render_row(row)) for row in whole))
    taken |= read_entities([tasks.PACK / "tasks.jsonl"])
    swapped = make_swapped(amplified, seeds, taken)
    taken = taken.union(*(tasks.entities(render_row(row)) for row in swapped))
    write_pack(pack, taken, attempt=attempt, counts=counts)
    return {"seeds": list(seeds), "swapped": [*seeds, *swapped], "amplified": [*seeds, *amplified]}


def load_rollouts(run: Path, most: int) -> list[Trajectory]:
    """The first rollouts with reward 1 of a run of `simia rollout` or of its stored file, at most so many; equal conversations once.

    One with a broken structure, such as an empty turn, is left out: it cannot be exported as a training row.
    """
    won = [row for row in read_run(run) if row.reward is not None and row.reward.value == 1.0]
    found = {row.id: row for row in won if not any(check_structure(row))}
    if not found:
        raise UserError(f"{run}: no rollout has reward 1 and a structure that can be exported; the arm needs some")
    return list(found.values())[:most]


def read_run(run: Path) -> list[Trajectory]:
    """The accepted trajectories of a run, or the trajectories of a JSONL file."""
    if run.is_file():
        return [Trajectory.from_row(json.loads(line)) for line in run.read_text(encoding="utf-8").splitlines()]
    if not run.is_dir():
        raise UserError(f"{run}: no such file or folder; name the folder of a run, or a file of trajectories")
    return list(iterate_accepted(run, partial=True))


def list_calls(row: Trajectory) -> tuple[str, ...]:
    """Names of the called tools, in order."""
    return tuple(call.name for _, _, call in row.calls())


def count_goals(row: Trajectory) -> int:
    """How many changes a conversation makes; at least 1."""
    return max(1, sum(name in CHANGES for name in list_calls(row)))


def match_seeds(row: Trajectory, seeds: Sequence[Trajectory]) -> list[Trajectory]:
    """Return the seeds with the row's sequence of calls; without one, those whose number of goals is nearest to the row's."""
    same = [seed for seed in seeds if list_calls(seed) == list_calls(row)]
    gaps = [abs(count_goals(seed) - count_goals(row)) for seed in seeds]
    return same or [seed for seed, gap in zip(seeds, gaps, strict=True) if gap == min(gaps)]


def make_swapped(
    amplified: Sequence[Trajectory], seeds: Sequence[Trajectory], taken: Iterable[str], label: str = "swapped"
) -> list[Trajectory]:
    """Copy a seed with other values for each amplified row; seeds that match equally well take turns.

    No value is in `taken` or in two copies; equal input gives equal copies.
    """
    source = random.Random(f"lockers/amplification/{label}")
    drawn = CopiedValues(source, taken)
    turns: Counter[tuple[str, ...]] = Counter()
    copies = []
    for row in amplified:
        fitting = match_seeds(row, seeds)
        group = tuple(seed.id for seed in fitting)
        copies.append(swap_values(fitting[turns[group] % len(fitting)], source, drawn))
        turns[group] += 1
    return copies


def swap_values(seed: Trajectory, source: random.Random, drawn: tasks.Drawn) -> Trajectory:
    """Copy a seed with other people, parcels, lockers, sizes and days."""
    text = render_row(seed)
    people = {str(call.arguments["name"]) for _, _, call in seed.calls() if call.arguments and "name" in call.arguments}
    replaced = {name: drawn.name() for name in sorted(people)}
    replaced |= {parcel: drawn.parcel() for parcel in sorted(set(tasks.NUMBER.findall(text)))}
    replaced |= {locker: drawn.locker() for locker in sorted(set(tasks.LOCKER.findall(text)))}
    used = [size for size in tasks.SIZES if re.search(rf"\b{size}\b", text)]
    replaced |= {size: source.choice(tasks.SIZES) for size in used}
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, replaced))})\b")
    days = source.randint(1, MOST_DAYS)
    longer = source.choice(LONG)
    shortened = any(count > MOST_DAYS for count in read_days(seed))

    def exchange_days(match: re.Match[str]) -> str:
        if parse_days(match) > MOST_DAYS:
            return longer
        if shortened:  # the 7 days in the answer, which come from the policy
            return match[0]
        return tasks.plural(days) if match[1].isdigit() else tasks.WORDS[days]

    def exchange(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: days if key == "days" and not shortened else exchange(each) for key, each in value.items()}
        if isinstance(value, list):
            return [exchange(each) for each in value]
        return pattern.sub(lambda match: replaced[match[0]], value) if isinstance(value, str) else value

    def exchange_message(message: Message) -> Message:
        calls = [call.model_copy(update={"arguments": exchange(call.arguments)}) for call in message.calls]
        if message.role == "tool":
            content: Any = json.dumps(exchange(json.loads(message.text)), separators=(",", ":"))
        else:
            content = message.content and exchange(DAYS.sub(exchange_days, message.text))
        return message.model_copy(update={"calls": calls, "content": content})

    messages = [exchange_message(message) for message in seed.messages]
    return seed.model_copy(update={"messages": messages, "extra": {}})


def parse_days(match: re.Match[str]) -> int:
    count = 1 if match[1] == "a" else NUMBERS.get(match[1]) or int(match[1])
    return count * UNITS[match[2]]


def read_days(row: Trajectory) -> list[int]:
    """The days that a conversation's texts name."""
    texts = [message.text for message in row.messages if message.role != "tool"]
    return [parse_days(match) for text in texts for match in DAYS.finditer(text)]
