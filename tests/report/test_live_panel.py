"""The panel on a terminal, and the JSON lines elsewhere: few, the first and the last among them, and all put back."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from simia.jobs.progress import Progress
from simia.report import live_panel
from simia.report.live_panel import LivePanel, format_duration, format_rate, render_panel
from simia.trajectory import Usage


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets."""
    at = [1000.0]
    monkeypatch.setattr(live_panel.time, "monotonic", lambda: at[0])
    return at


def lines(out: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_json_lines_are_few_and_have_the_first_and_the_last(now: list[float]) -> None:
    out, progress = io.StringIO(), Progress("r", 9000)
    with LivePanel(Console(file=out)) as panel:
        for second in range(9):
            now[0] = 1000.0 + second
            for _ in range(1000):
                progress.accepted += 1
                panel.update(progress)
    found = lines(out)
    assert [line["accepted"] for line in found] == [1, 2001, 4001, 6001, 8001, 9000]
    assert all(line["event"] == "progress" and line["run"] == "r" for line in found)


def test_a_line_is_not_repeated_at_the_end(now: list[float]) -> None:
    out = io.StringIO()
    with LivePanel(Console(file=out)) as panel:
        panel.update(Progress("r", 1, accepted=1))
    assert len(lines(out)) == 1


def test_nothing_is_said_of_a_job_that_never_began() -> None:
    out = io.StringIO()
    with LivePanel(Console(file=out)):
        pass
    assert out.getvalue() == ""


def test_an_interrupt_puts_the_terminal_back_and_shows_the_last_figures() -> None:
    out = io.StringIO()

    def work() -> None:
        progress = Progress("r", 10, accepted=3)
        with LivePanel(Console(file=out, force_terminal=True, width=90)) as panel:
            panel.update(progress)
            progress.accepted = 7
            panel.update(progress)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    text = out.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is shown again"
    assert "7 of 10" in text


def test_between_two_pictures_the_figures_stand_still(now: list[float]) -> None:
    """The picture is drawn by another thread: it must not read counters that the job is changing."""
    progress = Progress("r", 10, accepted=1)
    panel = LivePanel(Console(file=io.StringIO(), force_terminal=True, width=90))

    def seen() -> str:
        out = io.StringIO()
        Console(file=out, width=90).print(panel._picture())
        return out.getvalue()

    panel.update(progress)
    progress.rejected["leak"] = 5
    panel.update(progress)
    assert "leak" not in seen()
    now[0] += 0.3
    panel.update(progress)
    assert "leak 5" in seen()


def test_the_picture_tells_the_figures() -> None:
    progress = Progress("r", 10, accepted=4, waiting=2, failed=1, in_flight=3)
    progress.rejected["leak"] = 4
    progress.usage = Usage(prompt=1000, completion=10, cached=250, cost=0.5)
    progress.unpriced = 2
    progress.stopping = "budget"
    out = io.StringIO()
    Console(file=out, width=80).print(render_panel(progress))
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    shown = (
        "4 of 10",
        "50% of judged items",
        "+2 waiting",
        "leak 4",
        "1,000 in (25% cached), 10 out",
        "$0.50, about $1.25 in all, and 2 unpriced",
    )
    for words in (*shown, "stopping: budget", "to go"):
        assert words in text, words


def test_an_unknown_cost_is_not_nothing() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(render_panel(Progress("r", 10)))
    assert "unknown" in out.getvalue()


def test_rates_and_clocks() -> None:
    assert [format_duration(s) for s in (0, 59.6, 3600, 86_399)] == ["0:00", "1:00", "1:00:00", "23:59:59"]
    assert [format_rate(0, 5), format_rate(5, 0), format_rate(1, 60), format_rate(100, 60)] == [
        "",
        "",
        ", 1.0 a minute",
        ", 100 a minute",
    ]
