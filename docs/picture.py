"""Draw docs/quickstart.svg from a real run: `python docs/picture.py RUN_FOLDER`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console

from simia.jobs import Run
from simia.report.collect_statistics import collect_statistics
from simia.report.conversation import print_trajectory
from simia.report.terminal_report import print_report
from simia.trajectory import Trajectory

folder = Path(sys.argv[1])
run = Run.read_only(folder.parent, str(folder))
console = Console(record=True, width=96, file=io.StringIO(), force_terminal=True)
console.print("[bold]$ make quickstart[/bold]")
print_report(collect_statistics(run), console)
print_trajectory(Trajectory.from_row(list(run.ledger.accepted())[-1]["trajectory"]), console)
console.print(f"next: simia export {run.id} --to llamafactory --out data/{run.id}", highlight=False)
run.close()
console.save_svg(str(Path(__file__).with_name("quickstart.svg")), title="simia")
