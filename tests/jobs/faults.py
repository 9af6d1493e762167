"""Random faults in the files of a run: one byte changed, or a file cut. Every command either works or says in one line why not.

`python -m tests.jobs.faults 300` prints each fault with its outcomes, and a table of them; `… 100 200` is the second hundred.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from typer.main import get_command

from simia.cli import build_app
from simia.cli import main as simia
from simia.errors import UserError
from simia.jobs import Run
from simia.trajectory import digest
from tests.fake_endpoint import FakeEndpoint

N = 24
KINDS = ("closed", "wal", "killed")
# How each run ends: closed as usual, killed when it was complete, killed half-way. The last two leave write-ahead logs.
ENDS = {
    "closed": "",
    "wal": "import os; from simia.jobs import Run; Run.close = lambda run: os._exit(0)",
    "killed": f"""
import os; from simia.jobs import Ledger
accept = Ledger.accept
def until(ledger, item, hashed):
    accept(ledger, item, hashed)
    if ledger.accepted_count() > {N // 2}: os._exit(9)
Ledger.accept = until
""",
}
APP = get_command(build_app())  # built once: that takes longer than most commands
COMMANDS = ("list", "show", "resume", "report", "export", "recheck", "rebuild")


@dataclass
class Original:
    """A run before the fault. `whole`: what it accepts when it is complete; `left`: how many calls that takes; `rechecked`: what it accepts
    after a recheck, which of a killed run is less."""

    folder: Path
    whole: dict[str, str]
    left: int
    rechecked: dict[str, str]


@dataclass
class Fault:
    """One change to one file. The same number gives the same one."""

    number: int
    kind: str = ""
    file: str = ""
    what: str = ""

    def apply(self, originals: dict[str, Original], to: Path) -> None:
        dice = random.Random(self.number)
        self.kind = dice.choice(KINDS)
        shutil.copytree(originals[self.kind].folder, to)
        files = sorted(p.name for p in to.iterdir() if p.suffix in (".db", ".db-wal") and p.stat().st_size)
        self.file = dice.choice(files)
        path = to / self.file
        data = bytearray(path.read_bytes())
        place = dice.randrange(len(data))
        if dice.random() < 0.75:
            data[place] ^= dice.randrange(1, 256)
            self.what = f"byte {place}"
        else:
            del data[place:]
            self.what = f"cut at {place}"
        path.write_bytes(data)

    def __str__(self) -> str:
        return f"fault {self.number}: {self.kind} run, {self.file}, {self.what}"


@dataclass
class Done:
    """What a command said."""

    code: int
    out: str
    err: str
    asked: int
    trace: str = ""

    @property
    def told(self) -> bool:
        """Whether it said that something is not as it should be."""
        changed = re.search(r"^\w+: [\d,]+ → ", self.out, re.M)
        return self.code != 0 or "note:" in self.err or "cannot be read" in self.out or changed is not None


@dataclass
class Outcome:
    fault: Fault
    results: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def make(root: Path, endpoint: FakeEndpoint, kinds: Iterable[str] = KINDS) -> dict[str, Original]:
    """One run of each kind, in `root/KIND/r`."""
    made = {}
    endpoint.plan(log=False)  # only the count is asked for, and often
    for kind in kinds:
        before = ENDS[kind]
        place = root / kind
        place.mkdir()
        code = f"{before}\nimport sys; from simia.cli import main; sys.argv = ['simia', *sys.argv[1:]]; main()"
        words = ["amplify", "--config", "amplify/default", "--seeds", "customer_service", "--n", str(N), "--name", "r"]
        for setting in (
            f"llm.base_url={endpoint.url}", "llm.model=fake", "llm.structured=true", "seeds.limit=3", "limits.backoff=0.01",
            "limits.concurrency=4",
        ):  # fmt: skip
            words += ["--set", setting]
        words += ["--runs", str(place)]
        subprocess.run([sys.executable, "-c", code, *words], check=False, capture_output=True, timeout=600)
        folder = place / "r"
        wal = folder / "ledger.db-wal"
        assert wal.is_file() == (kind != "closed"), f"the {kind} run did not end as planned"
        whole = root / f"{kind}-whole" / "r"
        shutil.copytree(folder, whole)
        done = command("resume", whole, endpoint)
        assert done.code == 0, done.err
        rechecked = root / f"{kind}-rechecked" / "r"
        shutil.copytree(folder, rechecked)
        again = command("recheck", rechecked, endpoint)
        assert (again.code, again.err) == (0, ""), again
        made[kind] = Original(folder, accepted(whole), done.asked, accepted(rechecked))
    assert len({json.dumps(each.whole) for each in made.values()}) == 1
    return made


def accepted(folder: Path) -> dict[str, str]:
    """Item → what its trajectory says."""
    run = Run.read_only(folder.parent, str(folder))
    try:
        return {
            row["trajectory"]["provenance"]["item"]: digest(row["trajectory"]["messages"])
            for row in run.ledger.accepted()
        }
    finally:
        run.close()


def command(name: str, folder: Path, endpoint: FakeEndpoint, *more: str) -> Done:
    """`simia …` in this process."""
    words = [name, str(folder)] if name in ("report", "export") else ["runs", name, str(folder)]
    words = ["runs", name, "--runs", str(folder.parent)] if name in ("list", "gc") else words
    if name == "export":
        words += ["--to", "openai", "--out", str(folder.parent / "out")]
    out, err, before, code, trace = io.StringIO(), io.StringIO(), endpoint.log()["count"], 0, ""
    with (
        mock.patch.object(sys, "argv", ["simia", *words, *more]),
        mock.patch.dict(os.environ, {"COLUMNS": "200"}),
        mock.patch("simia.cli.build_app", return_value=APP),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            simia()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            trace = traceback.format_exc()
    return Done(code, out.getvalue(), err.getvalue(), endpoint.log()["count"] - before, trace)


def run_fault(
    number: int, originals: dict[str, Original], place: Path, endpoint: FakeEndpoint, commands: Iterable[str] = COMMANDS
) -> Outcome:
    """These commands on the same damaged run, each on a copy of its own."""
    fault = Fault(number)
    outcome = Outcome(fault)
    fault.apply(originals, place / "damaged" / "r")
    original = originals[fault.kind]
    for name in commands:
        folder = place / name / "r"
        shutil.copytree(place / "damaged" / "r", folder)
        done = command(name, folder, endpoint)
        problem = (
            "a traceback" if done.trace or "Traceback" in done.out + done.err else judge(name, done, folder, original)
        )
        if name == "rebuild" and problem is None:
            problem = repaired(done, folder, original, endpoint)
        if problem is not None:
            outcome.failures.append(f"{fault}: {name}: {problem}\n{done.trace or done.out[-600:] + done.err[-600:]}")
        outcome.results[name] = "works" if not done.told else "works, with a note" if done.code == 0 else "one line"
    return outcome


def judge(name: str, done: Done, folder: Path, original: Original) -> str | None:
    """What is wrong with a command's answer; None for a right one."""
    if done.code == 2:
        lines = done.err.strip().splitlines()
        return None if lines and lines[-1].startswith("simia: ") and len(lines) <= 2 else f"{len(lines)} lines"
    if done.code not in (0, 1):
        return f"exit code {done.code}"
    if name == "recheck":  # changed figures are no word about damage: of a killed run a recheck changes them anyway
        right = done.code != 0 or "note:" in done.err or accepted(folder) == original.rechecked
        return None if right else "other trajectories, without a word"
    if done.told or name in ("list", "rebuild"):
        return None
    if name == "export":
        rows = (folder.parent / "out" / "data.jsonl").read_text().splitlines()
        return None if len(rows) == len(original.whole) else f"{len(rows)} rows"
    if name in ("show", "report"):
        return None if f"{N} of {N} wanted" in done.out else "another count, without a word"
    if name == "resume" and done.asked > original.left:
        return f"{done.asked} calls instead of {original.left}, without a word"
    return None if accepted(folder) == original.whole else "other trajectories, without a word"


def repaired(done: Done, folder: Path, original: Original, endpoint: FakeEndpoint) -> str | None:
    """After a rebuild: nothing is false, and a resume completes the run."""
    if done.code == 2:
        return None if "missing" in done.err or "newer" in done.err else "not rebuilt"
    try:
        kept = accepted(folder)
    except UserError as error:
        return f"unreadable after it: {error}"
    if not kept.items() <= original.whole.items():
        return "trajectories that the run never accepted"
    if done.code == 0 and kept != original.whole:
        return "fewer trajectories, without a word"
    again = command("resume", folder, endpoint)
    if again.trace or again.code != 0:
        return f"no resume after it: {again.trace or again.err[-400:]}"
    return None if accepted(folder) == original.whole else "other trajectories after a resume"


def main(first: int, end: int) -> None:
    endpoint = FakeEndpoint("--respond", "tests.replies:trajectory")
    table: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    try:
        with tempfile.TemporaryDirectory() as root:
            originals = make(Path(root), endpoint)
            for number in range(first, end):
                place = Path(root) / f"fault-{number}"
                outcome = run_fault(number, originals, place, endpoint)
                failures += outcome.failures
                table.update(outcome.results.items())
                shutil.rmtree(place)
                print(f"{outcome.fault}: {json.dumps(outcome.results)}", *outcome.failures, sep="\n", flush=True)
    finally:
        endpoint.stop()
    kinds = ("works", "works, with a note", "one line")
    print(f"{'command':<10}" + "".join(f"{kind:>22}" for kind in kinds))
    for name in COMMANDS:
        print(f"{name:<10}" + "".join(f"{table[name, kind]:>22}" for kind in kinds))
    print(f"{end - first} faults, {len(failures)} failures")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers if len(numbers) == 2 else (0, numbers[0])))
