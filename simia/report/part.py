"""Reading a part of a run's items, here or in a process of its own.

90,000 results take one core longer than a reader likes to wait, and nothing in them depends on another: each process
takes a range of the run's order and hands back its sums. They are started as a command of their own, since a forked
one would inherit the open database, and a spawned one would run the caller's script again.
"""

from __future__ import annotations

import pickle
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import orjson

from simia.jobs import read_seeds
from simia.jobs.tables import unpack
from simia.report.sums import Sums
from simia.report.tally import Tally

# By stage and ord: the index has them in this order, so that no body is ever sorted.
ITEMS = """
SELECT item.id, item.ord, item.spec,
  CASE WHEN accepted.ord IS NOT NULL THEN 'accepted' WHEN status = 'passed' THEN 'surplus' ELSE status END,
  item.reason, item.detail, body
FROM item LEFT JOIN result ON result.item = item.id LEFT JOIN accepted ON accepted.ord = item.ord
WHERE item.stage = 'amplify' AND item.ord >= ? AND item.ord < ? ORDER BY item.ord
"""


def sum_part(connection: sqlite3.Connection, first: int, end: int, width: int, every: int) -> Sums:
    """The sums of the items from `first` until before `end`."""
    heads = {name: orjson.loads(unpack(body)) for name, body in connection.execute("SELECT hash, body FROM head")}
    tally = Tally(dict(read_seeds(connection)), width, every, heads)
    for id_, ord_, packed, verdict, reason, detail, body in connection.execute(ITEMS, (first, end)):
        spec = orjson.loads(packed)
        tally.item(id_, ord_, spec, verdict, reason, detail)
        if body is not None:
            tally.result(id_, ord_, str(spec.get("seed")), verdict, orjson.loads(unpack(body)))
    return tally.sums


def sum_parts(connection: sqlite3.Connection, folder: Path, end: int, width: int, every: int, processes: int) -> Sums:
    """The whole run in equal parts: the first one here, each other in a process."""
    ends = [end * i // processes for i in range(processes + 1)]
    command = [sys.executable, "-P", "-m", __name__, str(folder)]  # -P: import nothing from the current folder
    others = [
        subprocess.Popen([*command, str(first), str(last), str(width), str(every)], stdout=subprocess.PIPE)
        for first, last in pairwise(ends[1:])
    ]
    try:
        sums = sum_part(connection, ends[0], ends[1], width, every)
        for other, first, last in zip(others, ends[1:], ends[2:], strict=False):
            out, _ = other.communicate()
            # A process that the system ended (for its memory, say) costs time and no figure.
            sums.add(pickle.loads(out) if other.returncode == 0 else sum_part(connection, first, last, width, every))
    finally:
        for other in others:  # those that are still at work when an error has stopped us
            other.kill()
            other.wait()
    return sums


def main() -> None:
    folder, *numbers = sys.argv[1:]
    connection = sqlite3.connect(f"{(Path(folder) / 'ledger.db').resolve().as_uri()}?mode=ro", uri=True)
    sys.stdout.buffer.write(pickle.dumps(sum_part(connection, *map(int, numbers))))


if __name__ == "__main__":
    main()
