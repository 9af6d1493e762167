"""Sum the figures of a range of a run's items, in this process or in parallel ones.

One core takes long for 90,000 results, and results do not depend on each other: each process reads a range of items and
returns its sums. The processes are separate commands, since a forked process would inherit the open database and a
spawned one would run the caller's script again.
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
from simia.report.running_sums import Sums
from simia.report.tally import Tally

# Ordered by stage and ord as in the index, so that SQLite sorts no bodies.
ITEMS = """
SELECT item.id, item.ord, item.spec,
  CASE WHEN accepted.ord IS NOT NULL THEN 'accepted' WHEN status = 'passed' THEN 'surplus' ELSE status END,
  item.reason, item.detail, body
FROM item LEFT JOIN result ON result.item = item.id LEFT JOIN accepted ON accepted.ord = item.ord
WHERE item.stage = 'amplify' AND item.ord >= ? AND item.ord < ? ORDER BY item.ord
"""


def sum_part(connection: sqlite3.Connection, first: int, end: int, width: int, every: int) -> Sums:
    """Sum the items with `first` <= ord < `end`."""
    heads = {name: orjson.loads(unpack(body)) for name, body in connection.execute("SELECT hash, body FROM head")}
    tally = Tally(dict(read_seeds(connection)), width, every, heads)
    for id_, ord_, packed, verdict, reason, detail, body in connection.execute(ITEMS, (first, end)):
        spec = orjson.loads(packed)
        tally.add_item(id_, ord_, spec, verdict, reason, detail)
        if body is not None:
            tally.add_result(id_, ord_, str(spec.get("seed")), verdict, orjson.loads(unpack(body)))
    return tally.sums


def sum_parts(connection: sqlite3.Connection, folder: Path, end: int, width: int, every: int, processes: int) -> Sums:
    """Sum the whole run in equal parts: the first one in this process, each other one in a process of its own."""
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
            # A process that was killed, for its memory use for example, costs time but no figure.
            sums.add(pickle.loads(out) if other.returncode == 0 else sum_part(connection, first, last, width, every))
    finally:
        for other in others:  # still running if an error was raised above
            other.kill()
            other.wait()
    return sums


def main() -> None:
    folder, *numbers = sys.argv[1:]
    connection = sqlite3.connect(f"{(Path(folder) / 'ledger.db').resolve().as_uri()}?mode=ro", uri=True)
    sys.stdout.buffer.write(pickle.dumps(sum_part(connection, *map(int, numbers))))


if __name__ == "__main__":
    main()
