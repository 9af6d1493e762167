"""Make tasks for the lockers from a number: person, parcel, request, its wording, and the solution.

    python eval/loop/tasks.py OUT --train 160 --dev 40 --test 100 [--not-in FILE...]

writes a whole pack to OUT. No name, parcel or locker is in two splits, and none from the files of `--not-in` (seeds, amplified data)
is in any task. Test tasks have wordings of their own, which neither train nor dev tasks use.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

PACK = Path(__file__).with_name("pack")
SIZES = ("small", "medium", "large")
KINDS = ("move", "move", "hold", "hold", "long", "return", "hold_number", "return_number", "both", "both")
WORDS = {1: "one day", 2: "two days", 3: "three days", 4: "four days", 5: "five days", 6: "six days", 7: "a week"}
LONGER = ("ten days", "two weeks", "12 days", "a month", "9 days", "three weeks", "20 days", "14 days")
NUMBER = re.compile(r"\b[A-Z]\d{3}\b")
LOCKER = re.compile(r"\b\d{2}[A-Z]\b")
PART = r"[A-Z]\w+(?:['’-][A-Z]\w+)*"  # matches Jean-Luc, but not the I'm before a name
NAME = re.compile(rf"\b{PART} {PART}\b")
MOST_APART = 320  # up to this number of tasks, no two share a locker
GIVEN = [
    "Ada",
    "Amir",
    "Anouk",
    "Arun",
    "Bea",
    "Bilal",
    "Carla",
    "Chen",
    "Dario",
    "Dina",
    "Edda",
    "Elio",
    "Emre",
    "Esra",
    "Fania",
    "Farid",
    "Gita",
    "Goran",
    "Hamid",
    "Heidi",
    "Ida",
    "Ilja",
    "Ines",
    "Ivo",
    "Jana",
    "Jonas",
    "Kaito",
    "Kira",
    "Lars",
    "Leila",
    "Luca",
    "Mara",
    "Mateo",
    "Mina",
    "Nadia",
    "Nils",
    "Noor",
    "Olga",
    "Omar",
    "Pavel",
    "Petra",
    "Rania",
    "Remy",
    "Rosa",
    "Samir",
    "Sanna",
    "Selma",
    "Tariq",
    "Tove",
    "Ugo",
    "Uma",
    "Vera",
    "Viktor",
    "Wanda",
    "Yara",
    "Yusuf",
    "Zane",
    "Zora",
]
FAMILY = [
    "Abbott",
    "Adler",
    "Alvarez",
    "Baker",
    "Banda",
    "Bauer",
    "Berg",
    "Blanco",
    "Brandt",
    "Burke",
    "Castro",
    "Cohen",
    "Costa",
    "Cruz",
    "Dahl",
    "Diaz",
    "Dixon",
    "Drake",
    "Egan",
    "Ferro",
    "Fischer",
    "Flores",
    "Ford",
    "Frost",
    "Garcia",
    "Grant",
    "Greco",
    "Haas",
    "Hale",
    "Hansen",
    "Horvat",
    "Ivanov",
    "Jansen",
    "Jensen",
    "Kaya",
    "Keller",
    "Khan",
    "Klein",
    "Koch",
    "Kovac",
    "Lang",
    "Lopez",
    "Lund",
    "Marin",
    "Meyer",
    "Moreno",
    "Moss",
    "Nagy",
    "Novak",
    "Olsen",
    "Ortiz",
    "Park",
    "Perez",
    "Pope",
    "Quinn",
    "Ramos",
    "Reyes",
    "Romano",
    "Rossi",
    "Ryan",
    "Sato",
    "Silva",
    "Singh",
    "Stone",
    "Sousa",
    "Tanaka",
    "Torres",
    "Vance",
    "Vargas",
    "Vidal",
    "Walsh",
    "Weber",
    "West",
    "Wolf",
    "Wong",
    "Young",
    "Zeman",
]
SAID: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "move": (
            "Hi, the door of my locker jams. Can you move my parcel? {name}",
            "I'm {name}. Please put my parcel into another locker.",
            "My locker is too high for me, could my parcel go into a different one? My name is {name}.",
            "{name} here, my locker will not open. Another one please.",
            "Could you transfer the parcel of {name} to a new locker?",
            "Hello! I can't reach my locker. I am {name}, please change it.",
        ),
        "hold": (
            "I'm {name} and I am away. Please hold my parcel for {days}.",
            "Can you keep my parcel for {days}? The name is {name}.",
            "Hello, {name} here. I need {days} more to pick up my parcel.",
            "Please store the parcel of {name} for {days}.",
            "My name is {name}. Could my parcel stay for {days}?",
        ),
        "return": (
            "I'm {name}. I don't want my parcel any more, send it back.",
            "Please return the parcel for {name}.",
            "Hi, my parcel should go back to the sender. {name}",
            "{name} here. I ordered the wrong thing, please send the parcel back.",
        ),
        "hold_number": (
            "Please hold parcel {parcel} for {days}.",
            "Can {parcel} stay for {days}? I am travelling.",
            "My parcel is {parcel}. Keep it for {days}, please.",
        ),
        "return_number": (
            "Send {parcel} back, please.",
            "Parcel {parcel} is not mine, return it.",
            "I do not need {parcel} any more. Can it go back?",
        ),
        "both": (
            "I'm {name}. Move my parcel to another locker and hold it for {days}.",
            "Hi, {name} here. My locker jams and I am away: please change the locker and keep the parcel for {days}.",
            "Could the parcel of {name} go into another locker and stay for {days}?",
            "My name is {name}. I need a different locker for my parcel, and {days} to collect it.",
        ),
    },
    "test": {
        "move": (
            "Good morning, this is {name}. Something blocks my locker door, so my parcel needs a new place.",
            "There's water in my locker! Get my parcel out of it and into another, I'm {name}.",
            "Name's {name}. Is there any chance of a different locker for my parcel?",
            "The lock on my compartment is broken. Please rehouse my parcel. Thanks, {name}",
            "Can you swap my locker? {name}.",
        ),
        "hold": (
            "This is {name}. I am ill, so would you leave my parcel there for {days}?",
            "I can only come later. Keep it {days} for me, the parcel is under {name}.",
            "{days} is what I need until I can fetch my parcel. I'm called {name}.",
            "Could you extend my parcel's stay to {days}? Thanks, {name}",
        ),
        "return": (
            "This is {name}. Would you ship my parcel back to the shop?",
            "I changed my mind about my order; the parcel can go back. {name}.",
            "Name's {name}: take my parcel back, it is damaged.",
        ),
        "hold_number": (
            "I would like {parcel} to wait for me for {days}.",
            "About {parcel}: I can collect it late, so give me {days}.",
            "{parcel} needs to be kept for {days}, thank you.",
        ),
        "return_number": (
            "Good evening, {parcel} should be returned to its sender.",
            "About {parcel}: wrong delivery. Ship it back.",
        ),
        "both": (
            "This is {name}. The locker is wet: another one for my parcel, please, and let it stay there for {days}.",
            "I'm called {name}. Keep my parcel for {days}, but in a different locker, since this one jams.",
            "Two things for {name}: my parcel has to change lockers, and I will fetch it in {days}, so hold it.",
        ),
    },
}


class Drawn:
    """Gives random values, none of them twice and none that is in `taken`."""

    def __init__(self, source: random.Random, taken: Iterable[str]) -> None:
        self._random, self._taken = source, set(taken)

    def name(self) -> str:
        return self._new(lambda r: f"{r.choice(GIVEN)} {r.choice(FAMILY)}")

    def parcel(self) -> str:
        return self._new(lambda r: f"{r.choice('ABCDEFGHJKLMNPRSTUVWXYZ')}{r.randint(100, 999)}")

    def locker(self) -> str:
        return self._new(lambda r: f"{r.randint(10, 99)}{r.choice('ABCDEFGHJKLMNPRSTUVWXYZ')}")

    def _new(self, make: Any) -> str:
        while (value := str(make(self._random))) in self._taken:
            pass
        self._taken.add(value)
        return value


def entities(text: str) -> set[str]:
    """Return everything in a text that looks like a parcel, a locker or a person."""
    return {*NUMBER.findall(text), *LOCKER.findall(text), *NAME.findall(text)}


def task(number: int, split: str, source: random.Random, drawn: Drawn) -> dict[str, Any]:
    """Make one task, in one of the split's wordings. Its number determines its kind."""
    kind = KINDS[number % len(KINDS)]
    wording = source.choice(SAID["test" if split == "test" else "train"]["hold" if kind == "long" else kind])
    return make_task(f"{split}-{number:03d}", split, kind, wording, source, drawn)


def name_wordings(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the sentence of `SAID["test"]` that each test task is worded with, such as `hold-2`: the unit that intervals draw."""
    forms = {
        f"{kind}-{number}": re.compile(".+".join(map(re.escape, re.split(r"\{\w+\}", wording))), re.IGNORECASE)
        for kind, wordings in SAID["test"].items()
        for number, wording in enumerate(wordings)
    }
    return {
        row["id"]: next(name for name, form in forms.items() if form.fullmatch(row["instruction"]))
        for row in rows
        if row["split"] == "test"
    }


def make_task(name: str, split: str, kind: str, wording: str, source: random.Random, drawn: Drawn) -> dict[str, Any]:
    """One task in a world of its own: three parcels, a free locker of each size.

    Args:
        name: The task's id.
        split: The task's split.
        kind: One of `KINDS`.
        wording: The user's message, with `{name}`, `{parcel}` and `{days}` where they are wanted.
        source: Chooses sizes, places and days.
        drawn: Gives names, parcels and lockers.
    """
    sizes = [source.choice(SIZES) for _ in range(3)]
    lockers = {drawn.locker(): {"size": size, "works": True} for size in (*sizes, *SIZES)}
    places = list(lockers)
    parcels = {
        drawn.parcel(): {"owner": drawn.name(), "size": size, "locker": place, "days": 0, "returning": False}
        for size, place in zip(sizes, places, strict=False)
    }
    parcel = source.choice(list(parcels))
    row = parcels[parcel]
    free = min(place for place in places[3:] if lockers[place]["size"] == row["size"])
    days = source.randint(1, 7)
    spoken = source.choice(LONGER) if kind == "long" else source.choice((WORDS[days], f"{days} day{'s' * (days > 1)}"))
    asked = 7 if kind == "long" else days
    find = call("find_parcel", name=row["owner"])
    move = [call("free_locker", size=row["size"]), call("move_parcel", parcel=parcel, locker=free)]
    hold, back = call("hold_parcel", parcel=parcel, days=asked), call("return_parcel", parcel=parcel)
    steps, told = {
        "move": ([find, *move], f"Your parcel {parcel} is now in locker {free}."),
        "hold": ([find, hold], f"Your parcel {parcel} is held for {plural(asked)}."),
        "long": ([find, hold], f"Your parcel {parcel} is held for {plural(asked)}, the most we can do."),
        "return": ([find, back], f"Your parcel {parcel} goes back to the sender."),
        "hold_number": ([hold], f"Parcel {parcel} is held for {plural(asked)}."),
        "return_number": ([back], f"Parcel {parcel} goes back to the sender."),
        "both": ([find, *move, hold], f"Your parcel {parcel} is now in locker {free} and is held for {plural(asked)}."),
    }[kind]
    words = wording.format(name=row["owner"], parcel=parcel, days=spoken)
    if wording.startswith("{"):
        words = words[0].upper() + words[1:]
    return {
        "id": name,
        "split": split,
        "instruction": words,
        "initial": {"patch": {"parcels": parcels, "lockers": lockers}},
        "script": [{"user": words}, *({"calls": [step]} for step in steps), {"agent": told}],
        "reward": {"parts": [{"kind": "state"}]},
        "tags": [kind],
    }


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def plural(days: int) -> str:
    return f"{days} day{'s' * (days != 1)}"


def tasks(counts: dict[str, int], taken: Iterable[str] = ()) -> Iterator[dict[str, Any]]:
    """Make the tasks of all splits. Equal counts and taken values give equal tasks; dev is first, so it does not depend on other counts.

    No value is in two splits. With many tasks, those of one split share values: there are 2,070 lockers, and a task has six.
    """
    known = set(taken)
    once = sum(counts.values()) <= MOST_APART
    for split in ("dev", "train", "test"):
        source = random.Random(f"lockers/{split}")
        given_out = set[str]()
        for number in range(counts.get(split, 0)):
            made = task(number, split, source, Drawn(source, known | given_out if once else known))
            given_out |= entities(json.dumps(made["initial"]))
            yield made
        known |= given_out


def write(out: Path, counts: dict[str, int], not_in: Iterable[Path] = ()) -> dict[str, int]:
    """Write a pack to `out`: this folder's pack with these tasks added to its own. Returns the number of tasks of each split."""
    taken = set[str]()
    for path in (PACK / "tasks.jsonl", PACK / "seeds.jsonl", *not_in):
        taken |= entities(path.read_text()) if path.is_file() else set()
    made = list(tasks(counts, taken))
    shutil.copytree(PACK, out, dirs_exist_ok=True)
    own = (PACK / "tasks.jsonl").read_text()
    (out / "tasks.jsonl").write_text(own + "".join(json.dumps(row) + "\n" for row in made))
    return {split: sum(row["split"] == split for row in made) for split in counts}


def shared(left: Iterable[str], right: Iterable[str]) -> set[str]:
    """Return the entities that are in both."""
    return set[str]().union(*map(entities, left)) & set[str]().union(*map(entities, right))


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a pack of lockers with many tasks.")
    parser.add_argument("out", type=Path)
    for split, count in (("train", 160), ("dev", 40), ("test", 100)):
        parser.add_argument(f"--{split}", type=int, default=count)
    parser.add_argument("--not-in", type=Path, nargs="*", default=[], help="files whose names and numbers are not used")
    given = parser.parse_args()
    print(write(given.out, {"train": given.train, "dev": given.dev, "test": given.test}, given.not_in))


if __name__ == "__main__":
    main()
