"""The live panel of a running job; JSON lines when nobody watches a terminal.

`update` is called for every finished item, thousands of times a second in a fast run: it does nothing but look at the
clock until the next picture is due.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

import orjson
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from simia.amplify.progress import Progress

REDRAW_SECONDS = 0.25
LINE_SECONDS = 2.0


class LivePanel:
    """`with LivePanel() as panel: job(on_progress=panel.update)`."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None
        self._next = 0.0
        self._last: Progress | None = None
        self._shown: bytes | None = None

    def __enter__(self) -> LivePanel:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._last is not None:
            self._show(self._last)
        if self._live is not None:
            self._live.stop()

    def update(self, progress: Progress) -> None:
        self._last = progress
        now = time.monotonic()
        if now >= self._next:
            self._next = now + (REDRAW_SECONDS if self._live else LINE_SECONDS)
            self._show(progress)

    def _show(self, progress: Progress) -> None:
        if self._live is not None:
            self._live.update(picture(progress), refresh=True)
            return
        line = orjson.dumps({"event": "progress", **progress.snapshot()})
        if line != self._shown:
            self._shown = line
            sys.stdout.write(line.decode() + "\n")
            sys.stdout.flush()


def picture(progress: Progress) -> Panel:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    bar = ProgressBar(total=progress.n, completed=progress.accepted, width=36)
    counts = Text(f"{progress.accepted:,} of {progress.n:,}")
    if progress.waiting:
        counts.append(f"  (+{progress.waiting:,} waiting for earlier items)", style="dim")
    grid.add_row("accepted", Group(counts, bar))
    rejected = ", ".join(f"{reason} {count:,}" for reason, count in progress.rejected.most_common(4))
    grid.add_row("rejected", f"{sum(progress.rejected.values()):,}" + (f"  {rejected}" if rejected else ""))
    if progress.failed:
        grid.add_row("failed", f"{progress.failed:,}")
    grid.add_row("in flight", f"{progress.in_flight:,}")
    usage = progress.usage
    grid.add_row("tokens", f"{usage.prompt:,} in ({usage.cached:,} cached), {usage.completion:,} out")
    cost = "unknown" if usage.cost is None else f"${usage.cost:,.2f}"
    grid.add_row("cost", cost + (" and some of unknown price" if progress.unpriced and usage.cost is not None else ""))
    eta = progress.eta()
    grid.add_row("to go", "" if eta is None else clock(eta))
    return Panel(
        grid, title=f"simia · {progress.run}", subtitle=progress.stopping or "Ctrl-C stops, nothing is lost", width=78
    )


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
