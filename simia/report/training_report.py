"""The report of a training: curves of reward, length, endings and agreement over its steps, on the terminal, as a page and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from markupsafe import Markup
from rich.console import Console
from rich.text import Text

from simia.report.console import make_plain_text, make_table
from simia.report.html_page import make_page_environment, read_page_file, save_page
from simia.report.plots import NO_PLOTS, PlotLine, PlotPanel, can_plot, render_svg
from simia.report.report_rows import draw_sparkline, format_counts
from simia.report.terminal_report import make_grid
from simia.report.training_statistics import StepStatistics, TrainingStatistics
from simia.terminal import write_count

MOST_ROWS = 20
MOST_MARKS = 60  # characters of a curve
HEAD = ("steps", ">episodes", ">scored", ">reward", ">solved", ">turns", ">tokens", ">ended", ">judge = rules")
Curve = Callable[[StepStatistics], float | None]
CURVES: tuple[tuple[str, Curve], ...] = (
    ("mean reward", lambda step: step.reward),
    ("solved", lambda step: step.solved),
    ("turns", lambda step: step.turns),
    ("tokens", lambda step: step.tokens),
    ("ended by itself", lambda step: step.share_ended("terminated")),
    ("cut by a limit", lambda step: step.share_ended("truncated")),
    ("aborted", lambda step: step.share_ended("aborted")),
    ("judge = rules", lambda step: step.agreement),
)


def print_training(training: TrainingStatistics, to: Console) -> None:
    """Print the figures of a training: a summary, its curves, and a table of at most `MOST_ROWS` rows for all steps."""
    to.print(Text(f"run {training.run}", style="bold"), make_grid(list_training_rows(training)))
    if training.total is None:
        return
    to.print(Text("\nfrom the first step to the last", style="bold"), make_grid(draw_curves(training.steps)))
    for title, steps in (("steps", training.steps), ("validations", training.validations)):
        if not steps:
            continue
        to.print(Text(f"\n{title}", style="bold"))
        table = make_table(*HEAD)
        for step in thin_out(steps, MOST_ROWS):
            table.add_row(*map(make_plain_text, list_step_cells(step)))
        to.print(table)
        if len(steps) > MOST_ROWS:
            to.print(f"{MOST_ROWS} of {len(steps)} are shown; --html and --json have all", highlight=False)


def list_training_rows(training: TrainingStatistics) -> list[tuple[str, str]]:
    """List the names and values of the summary."""
    rows = [
        ("training", f"{training.trainer}, {'in progress' if training.in_progress else 'not running'}"),
        ("policy", training.model),
        ("pack", training.pack),
        ("checkpoints", training.checkpoints),
    ]
    if (total := training.total) is None:
        return [*rows, ("episodes", "none yet")]
    of = f"{total.episodes:,} in {write_count(len(training.steps), 'step')} ({total.first} to {total.last}), {total.scored:,} scored"
    rows.append(("episodes", of))
    if training.superseded:
        rows.append(
            ("", f"{training.superseded:,} more of steps that were played again after a restart are not counted")
        )
    rows.append(("groups", f"{total.groups:,} with a reward, {total.flat:,} of them with equal rewards only"))
    if total.reward is not None:
        rows.append(("reward", f"{total.reward:.3f} mean, {total.solved or 0:.0%} solved"))
    rows.append(("ended", format_counts(total.ends)))
    if total.judged:
        rows.append(
            (
                "judge",
                f"agrees with the rules on {total.agreed:,} of {write_count(total.judged, 'episode')} that both judged",
            )
        )
    return rows


def list_step_cells(step: StepStatistics) -> list[str]:
    """List the cells of a table's row."""

    def share(value: float | None) -> str:
        return "" if value is None else f"{value:.0%}"

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    return [
        str(step.first) if step.first == step.last else f"{step.first} to {step.last}",
        f"{step.episodes:,}",
        f"{step.scored:,}",
        number(step.reward, ".3f"),
        share(step.solved),
        number(step.turns, ".1f"),
        number(step.tokens, ",.0f"),
        share(step.terminated),
        share(step.agreement),
    ]


def draw_curves(steps: Sequence[StepStatistics]) -> list[tuple[str, str]]:
    """Draw a line of characters for each known figure. Height shows the share; for numbers, the share of the largest one."""
    rows = []
    for name, get in CURVES:
        values = [value for step in thin_out(steps, MOST_MARKS) if (value := get(step)) is not None]
        if len(values) < 2 or not any(values):
            continue
        top = max(1.0, *values)
        rows.append((name, f"{draw_sparkline(max(0.0, v) / top for v in values)}  {values[0]:.2f} → {values[-1]:.2f}"))
    return rows


def thin_out(steps: Sequence[StepStatistics], most: int) -> list[StepStatistics]:
    """Take at most `most` steps at even distances, including the first and the last."""
    if len(steps) <= most:
        return list(steps)
    return [steps[round(n * (len(steps) - 1) / (most - 1))] for n in range(most)]


def make_training_panels(training: TrainingStatistics) -> list[PlotPanel]:
    """Make the panels of the page."""

    def draw(name: str, get: Curve, steps: Sequence[StepStatistics], colour: int = 0) -> PlotLine:
        points = [(step.first, value) for step in steps if (value := get(step)) is not None]
        return PlotLine(name, points, colour)

    found = dict(CURVES)
    panels = [
        ("Reward", [draw("training", found["mean reward"], training.steps)]),
        ("Share of solved episodes", [draw("training", found["solved"], training.steps)]),
        ("Tokens of the policy in an episode", [draw("training", found["tokens"], training.steps)]),
        ("Messages of the policy in an episode", [draw("training", found["turns"], training.steps)]),
        ("Endings", [draw(name, found[name], training.steps, n) for n, name in enumerate(list(found)[4:7])]),
        ("Judge and rules agree", [draw("training", found["judge = rules"], training.steps)]),
    ]
    for (_, lines), name in zip(panels, ("mean reward", "solved", "tokens", "turns"), strict=False):
        lines.append(draw("validation", found[name], training.validations, 1))
    drawn = [(title, [line for line in lines if line.points]) for title, lines in panels]
    return [
        PlotPanel(title, lines=lines, top=max(1.0, *(value for line in lines for _, value in line.points)), x="step")
        for title, lines in drawn
        if lines
    ]


def write_training_page(training: TrainingStatistics, path: Path) -> None:
    """Write the report as one HTML page without scripts. Raises `UserError` if it cannot be written."""
    page = (
        make_page_environment()
        .get_template("training.html.j2")
        .render(
            training=training,
            summary=list_training_rows(training),
            plot=Markup(render_svg(make_training_panels(training))) if can_plot() else NO_PLOTS,
            head=[name.lstrip(">") for name in HEAD],
            tables=[
                (title, [list_step_cells(step) for step in steps])
                for title, steps in (("Steps", training.steps), ("Validations", training.validations))
                if steps
            ],
            style=Markup(read_page_file("page.css")),
        )
    )
    save_page(page, path)
