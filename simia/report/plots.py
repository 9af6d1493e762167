"""All figures of simia: estimates with intervals, and lines over steps, sizes or turns, drawn by matplotlib (the extra `plots`) in one style.

A figure is a list of panels below each other. Panels hold numbers only, so a figure is drawn again from stored results. With one version of
matplotlib the same panels give the same bytes: no date, fixed identifiers, fixed places. The background is white, so that a figure can be
read on light and dark pages. Scatter plots and graphs of report pages are not drawn here: their elements have tooltips.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simia.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, LEFT, RIGHT = 720, 230, 70  # points, as all lengths here
ROW, HEAD, FOOT, LINES, LEGEND = 22, 34, 24, 150, 15
COLOURS = ("#1d4ed8", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be123c", "#334155")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)))  # keep coinciding lines visible
INK, DIM, FAINT = "#222222", "#666666", "#d4d4d4"
STYLE: Any = {
    "svg.hashsalt": "simia",
    "svg.fonttype": "none",  # text stays text
    "font.family": ["DejaVu Sans"],  # matplotlib brings it
    "font.size": 9.0,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign is not the start of a formula
    "axes.edgecolor": FAINT,
    "grid.color": FAINT,
    "xtick.color": DIM,
    "ytick.color": DIM,
}


@dataclass(frozen=True, slots=True)
class PlotDot:
    """An estimate with its interval. `colour`: index into `COLOURS`."""

    label: str
    value: float
    low: float
    high: float
    colour: int = 0


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A number at each step, size or turn. `bounds`: the interval of each point, drawn as a band."""

    label: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    bounds: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """A title with rows of dots, or with lines over a common axis. The axis of the numbers goes from `bottom` to `top`; `x` names the other."""

    title: str
    dots: Sequence[PlotDot] = ()
    lines: Sequence[PlotLine] = ()
    top: float = 1.0
    bottom: float = 0.0
    x: str = ""


NO_PLOTS = "figures need matplotlib: pip install 'simia[plots]'"


def can_plot() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def render_svg(panels: Sequence[PlotPanel]) -> str:
    """Render the panels below each other. Values outside an axis are drawn at its edge. Raises `UserError` without matplotlib."""
    text = render_figure(panels, "svg").decode()
    return text[text.index("<svg") :]


def save_figure(panels: Sequence[PlotPanel], path: Path) -> None:
    """Write the panels as .svg or .png. Raises `UserError` without matplotlib, or for another ending."""
    if path.suffix not in (".svg", ".png"):
        raise UserError(f"{path}: a figure is written as .svg or .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(render_svg(panels).encode() if path.suffix == ".svg" else render_figure(panels, "png"))


def render_figure(panels: Sequence[PlotPanel], form: str) -> bytes:
    if not can_plot():
        raise UserError(NO_PLOTS)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    heights = [measure_panel(panel) for panel in panels]
    height = max(sum(heights), 1)
    with rc_context(STYLE):
        figure, top, made = Figure(figsize=(WIDTH / 72, height / 72), facecolor="white"), 0.0, io.BytesIO()
        for panel, size in zip(panels, heights, strict=True):
            draw_panel(figure, panel, top, height)
            top += size
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) if form == "svg" else {"Software": None}
        figure.savefig(made, format=form, dpi=72 if form == "svg" else 144, metadata=metadata)
    return made.getvalue()


def measure_panel(panel: PlotPanel) -> float:
    return HEAD + measure_axes(panel) + FOOT + (ROW if panel.x else 0)


def measure_axes(panel: PlotPanel) -> float:
    return max(LINES, LEGEND * len(panel.lines)) if panel.lines else ROW * len(panel.dots)


def draw_panel(figure: Figure, panel: PlotPanel, top: float, height: float) -> None:
    """Draw a panel whose upper edge is `top` points below that of the figure."""
    own = measure_axes(panel)
    figure.text(12 / WIDTH, 1 - (top + 20) / height, panel.title, weight=700, size=10)
    place = (LEFT / WIDTH, 1 - (top + HEAD + own) / height, (WIDTH - LEFT - RIGHT) / WIDTH, own / height)
    axes = figure.add_axes(place)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, pad=6)
    axes.set_xlabel(panel.x, color=DIM)
    for side in ("top", "right", "left", "bottom"):
        axes.spines[side].set_visible(False)
    if panel.lines:
        draw_lines(axes, panel)
    else:
        draw_dots(axes, panel)


def draw_dots(axes: Axes, panel: PlotPanel) -> None:
    axes.set_xlim(panel.bottom, panel.top)
    axes.set_ylim(len(panel.dots) - 0.5, -0.5)
    axes.grid(axis="x")
    axes.set_yticks(range(len(panel.dots)), [dot.label for dot in panel.dots], color=INK)
    axes.tick_params(axis="y", pad=12)
    for row, dot in enumerate(panel.dots):
        value, low, high = (clamp(each, panel) for each in (dot.value, dot.low, dot.high))
        colour = COLOURS[dot.colour % len(COLOURS)]
        axes.hlines(row, low, high, colors=colour, linewidth=2, clip_on=False)
        axes.plot([value], [row], "o", color=colour, markersize=7, clip_on=False)
        axes.annotate(
            format_value(dot.value, panel), (1, row), (12, 0), ("axes fraction", "data"), "offset points",
            color=colour, verticalalignment="center_baseline",
        )  # fmt: skip


def draw_lines(axes: Axes, panel: PlotPanel) -> None:
    places = sorted({place for line in panel.lines for place, _ in line.points})
    axes.set_ylim(panel.bottom, panel.top)
    axes.grid(axis="y")
    if len(places) > 1:
        axes.set_xlim(places[0], places[-1])
    if all(float(place).is_integer() for place in places):
        axes.set_xticks(list(choose_marks([int(place) for place in places])))
    for number, line in enumerate(panel.lines):
        colour, dashes = COLOURS[line.colour % len(COLOURS)], DASHES[number % len(DASHES)]
        xs, ys = [place for place, _ in line.points], [clamp(value, panel) for _, value in line.points]
        (drawn,) = axes.plot(
            xs, ys, color=colour, linestyle=dashes, linewidth=2, label=line.label, clip_on=False,
            marker="o" if len(places) <= 12 else "", markersize=4,
        )  # fmt: skip
        drawn.set_gid(f"line-{number + 1}")
        if line.bounds:
            lows, highs = ([clamp(each, panel) for each in side] for side in zip(*line.bounds, strict=True))
            axes.fill_between(xs, lows, highs, color=colour, alpha=0.15, linewidth=0).set_gid(f"band-{number + 1}")
    axes.legend(
        loc="upper left", bbox_to_anchor=(12 - LEFT, 0, LEFT, measure_axes(panel) + 4), frameon=False, borderaxespad=0,
        bbox_transform=offset_points(axes), handlelength=2.2,
    )  # fmt: skip


def offset_points(axes: Axes) -> Any:
    """Points from the lower left corner of the axes."""
    from matplotlib.transforms import Affine2D, ScaledTranslation

    assert axes.figure is not None
    scale = axes.figure.dpi_scale_trans
    corner = axes.get_position()
    width, height = axes.figure.get_size_inches()  # type: ignore[union-attr]
    return Affine2D().scale(1 / 72) + scale + ScaledTranslation(corner.x0 * width, corner.y0 * height, scale)


def choose_marks(places: Sequence[int]) -> Iterator[int]:
    """Choose the places of axis marks: all of a few; of many the first, the last and multiples of a round number between them."""
    if len(places) <= 12:
        yield from places
        return
    first, last = places[0], places[-1]
    step = max(5, -(-(last - first) // 50) * 5)
    yield first
    yield from range(first - first % step + step, last - step // 2, step)
    yield last


def clamp(value: float, panel: PlotPanel) -> float:
    return min(max(value, panel.bottom), panel.top)


def format_value(value: float, panel: PlotPanel) -> str:
    return format(value, ",.0f" if max(abs(panel.top), abs(panel.bottom)) > 10 else ".2f")
