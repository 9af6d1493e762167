"""The live panel of a running job; JSON lines where the output is not a terminal.

`update` may be called thousands of times a second: it copies the figures only when the next redraw is due. rich's
thread draws the panel from that copy, so that the clock advances while the job waits for a slow model and the figures
do not change while they are drawn.
"""

from __future__ import annotations

import copy
import time

import orjson
from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from simia.jobs.progress import Progress
from simia.report.console import Terminal
from simia.synthesis.stage_progress import SynthesisProgress
from simia.terminal import escape_json, write_count

REDRAWS = 4  # a second
LINE_SECONDS = 2.0
WIDTH = 78


class LivePanel:
    """A context manager: `with LivePanel() as panel: job(on_progress=panel.update)`. It restores the terminal at exit."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Terminal()
        self._due = 0.0
        self._latest: Progress | None = None  # the job's object, which keeps changing
        self._copied: Progress | None = None
        self._missed = False
        self._live: Live | None = None
        if self.console.is_terminal:
            self._live = Live(console=self.console, get_renderable=self._picture, refresh_per_second=REDRAWS)
        self._interval = 1 / REDRAWS if self._live else LINE_SECONDS

    def __enter__(self) -> LivePanel:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._missed:
                self._show()
        finally:
            if self._live is not None:
                self._live.stop()

    def update(self, progress: Progress) -> None:
        self._latest, self._missed = progress, True
        now = time.monotonic()
        if now >= self._due:
            self._due = now + self._interval
            self._show()

    def _show(self) -> None:
        assert self._latest is not None
        self._missed = False
        if self._live is not None:
            self._copied = copy.deepcopy(self._latest)
            return
        line = orjson.dumps({"event": "progress", **self._latest.snapshot()})
        self.console.file.write(escape_json(line.decode()) + "\n")
        self.console.file.flush()

    def _picture(self) -> RenderableType:
        return Text("") if self._copied is None else render_panel(self._copied)


def render_panel(progress: Progress) -> Panel:
    """Render the panel from one set of figures."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    if isinstance(progress, SynthesisProgress):
        add_stage_rows(grid, progress)
    else:
        add_acceptance_rows(grid, progress)
    if progress.failed:
        grid.add_row("failed", f"{progress.failed:,}")
    retries = f", {progress.retries:,} tried again" if progress.retries else ""
    grid.add_row("in flight", f"{progress.in_flight:,} of {progress.limit:,}{retries}")
    if progress.pending:
        grid.add_row("in a batch", f"{write_count(progress.pending, 'request')} written")
    usage = progress.usage
    cached = f" ({usage.cached / usage.prompt:.0%} cached)" if usage.prompt else ""
    grid.add_row("tokens", f"{usage.prompt:,} in{cached}, {usage.completion:,} out")
    grid.add_row("cost", format_cost(progress))
    elapsed, eta = time.monotonic() - progress.started, progress.eta()
    pace = format_rate(progress.accepted - progress.accepted_before, elapsed)
    grid.add_row("time", f"{format_duration(elapsed)}{pace}{'' if eta is None else f', {format_duration(eta)} to go'}")
    ending = f"stopping: {progress.stopping}" if progress.stopping else "Ctrl-C stops, nothing is lost"
    return Panel(grid, title=Text(f"simia · {progress.run}"), subtitle=Text(ending), width=WIDTH)


def add_stage_rows(grid: Table, progress: SynthesisProgress) -> None:
    """Add the current stage of a synthesis, and the items of all stages."""
    grid.add_row("stage", Text(f"{progress.stage}, {progress.stage_number} of {progress.stages}"))
    refused = progress.refused.total()
    counts = Text(f"{progress.made:,} made, {refused:,} refused, {progress.open:,} open of {progress.inputs:,}")
    if progress.waiting:
        counts.append(f"  {progress.waiting:,} made, waiting for earlier items", style="dim")
    grid.add_row("items", counts)
    grid.add_row("", ProgressBar(total=max(1, progress.inputs), completed=progress.made + refused, width=48))
    if refused:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in progress.refused.most_common(4))
        grid.add_row("refused", Text(reasons))
    grid.add_row("all stages", f"{progress.accepted:,} made of {progress.n:,} so far")


def add_acceptance_rows(grid: Table, progress: Progress) -> None:
    """Add how many results were accepted and rejected."""
    counts = Text(f"{progress.accepted:,} of {progress.n:,}")
    if progress.acceptance is not None:
        counts.append(f"  {progress.acceptance:.0%} of judged items", style="dim")
    if progress.waiting:
        counts.append(f"  +{progress.waiting:,} waiting for earlier items", style="dim")
    grid.add_row("accepted", counts)
    grid.add_row("", ProgressBar(total=progress.n, completed=min(progress.accepted, progress.n), width=48))
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in progress.rejected.most_common(4))
    grid.add_row("rejected", Text(f"{sum(progress.rejected.values()):,}" + (f"  {reasons}" if reasons else "")))


def format_cost(progress: Progress) -> str:
    if progress.usage.cost is None:
        return "unknown"
    whole = progress.projected_cost
    ahead = f", about ${whole:,.2f} in all" if whole and progress.accepted < progress.n else ""
    return f"${progress.usage.cost:,.2f}{ahead}" + (
        f", and {progress.unpriced:,} unpriced" if progress.unpriced else ""
    )


def format_rate(made: int, seconds: float) -> str:
    """Format the acceptances per minute of this session; empty before the first one."""
    if made <= 0 or seconds <= 0:
        return ""
    pace = 60 * made / seconds
    return f", {pace:,.0f} a minute" if pace >= 10 else f", {pace:.1f} a minute"


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
