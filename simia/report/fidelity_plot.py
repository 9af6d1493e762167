"""Plots as SVG, of `simia fidelity` and of trainings: estimates with intervals, and lines over steps. The output is byte-identical each time.

A plot has a white background, so that it is readable on light and dark pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

from simia.evaluation.fidelity import Fidelity

WIDTH, LEFT, RIGHT = 720, 230, 70
ROW, HEAD, LINES = 22, 34, 150
COLOURS = ("#1d4ed8", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#a16207")
INK, FAINT = "#222", "#d4d4d4"


@dataclass(frozen=True, slots=True)
class PlotDot:
    """A share with its interval, all from 0 to 1. `colour`: index into `COLOURS`."""

    label: str
    value: float
    low: float
    high: float
    colour: int = 0


@dataclass(frozen=True, slots=True)
class PlotLine:
    """A share, 0 to 1, or another number at each step."""

    label: str
    points: Sequence[tuple[int, float]]
    colour: int = 0


@dataclass(frozen=True, slots=True)
class PlotPanel:
    """A title with rows of dots, or with lines over a common axis of steps. `top`: the largest value of the lines' axis."""

    title: str
    dots: Sequence[PlotDot] = ()
    lines: Sequence[PlotLine] = ()
    top: float = 1.0


@dataclass(slots=True)
class SvgCanvas:
    """SVG elements and the vertical position of the next panel."""

    parts: list[str] = field(default_factory=list)
    top: float = 8.0

    def text(
        self, x: float, y: float, words: str, *, anchor: str = "start", colour: str = INK, bold: bool = False
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0) -> None:
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width:g}"/>'
        )


def make_fidelity_panels(found: Mapping[str, Fidelity]) -> list[PlotPanel]:
    """Make the panels for several named variants: F1, repeated values, and distance of the changes. Names that end in
    "no ledger" have a colour of their own."""
    panels = []
    for measure, title in (
        ("value_f1", "F1 of the values, against the real world"),
        ("memory", "Earlier values that are repeated"),
    ):
        estimates = {name: each.interval(measure) for name, each in found.items()}
        dots = [
            PlotDot(name, each.value, each.low, each.high, int(name.endswith("no ledger")))
            for name, each in estimates.items()
            if each is not None
        ]
        panels.append(PlotPanel(title, dots=dots))
    lines = [
        PlotLine(name, list(each.distance.items()), n) for n, (name, each) in enumerate(found.items()) if each.distance
    ]
    panels.append(PlotPanel("Distance of the simulated changes from the real ones, by step", lines=lines))
    return [panel for panel in panels if panel.dots or panel.lines]


def render_svg(panels: Sequence[PlotPanel]) -> str:
    """Render the panels below each other. Values outside of the axis are drawn at its edge."""
    page = SvgCanvas()
    for panel in panels:
        page.text(12, page.top + 18, panel.title, bold=True)
        page.top += HEAD
        if panel.dots:
            draw_dots(page, panel.dots)
        if panel.lines:
            draw_lines(page, panel.lines, panel.top)
    height = page.top + 4
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        'font-family="system-ui, sans-serif" font-size="12">'
    )
    ground = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#fff"/>'
    return "\n".join([head, ground, *page.parts, "</svg>", ""])


def scale_share(value: float) -> float:
    """Return the x coordinate of a share."""
    return LEFT + min(max(value, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def draw_scale(page: SvgCanvas, top: float, bottom: float) -> None:
    for share in (0, 0.2, 0.4, 0.6, 0.8, 1):
        page.line(scale_share(share), top, scale_share(share), bottom, FAINT)
        page.text(scale_share(share), bottom + 14, f"{share:g}", anchor="middle", colour="#666")


def draw_dots(page: SvgCanvas, dots: Sequence[PlotDot]) -> None:
    bottom = page.top + ROW * len(dots)
    draw_scale(page, page.top, bottom)
    for n, dot in enumerate(dots):
        y, colour = page.top + ROW * (n + 0.5), COLOURS[dot.colour % len(COLOURS)]
        page.text(LEFT - 12, y + 4, dot.label, anchor="end")
        page.line(scale_share(dot.low), y, scale_share(dot.high), y, colour, 2)
        page.parts.append(f'<circle cx="{scale_share(dot.value):.1f}" cy="{y:.1f}" r="4.5" fill="{colour}"/>')
        page.text(WIDTH - RIGHT + 14, y + 4, f"{dot.value:.2f}", colour=colour)
    page.top = bottom + 28


def draw_lines(page: SvgCanvas, lines: Sequence[PlotLine], most: float = 1.0) -> None:
    bottom = page.top + LINES
    last = max((step for line in lines for step, _ in line.points), default=1)
    for fifth in range(6):
        y = bottom - LINES * fifth / 5
        page.line(LEFT, y, WIDTH - RIGHT, y, FAINT)
        page.text(
            LEFT - 8, y + 4, format(most * fifth / 5, ",.0f" if most > 10 else ".3g"), anchor="end", colour="#666"
        )

    def scale_step(step: int) -> float:
        return scale_share((step - 1) / max(last - 1, 1))

    each = max(5, -(-last // 50) * 5)  # steps between two marks, at most ten of them
    for step in sorted({1, last, *range(each, last - (each > 5) * each // 3, each)}):
        page.text(scale_step(step), bottom + 14, str(step), anchor="middle", colour="#666")
    for n, line in enumerate(lines):
        colour = COLOURS[line.colour % len(COLOURS)]
        places = " ".join(
            f"{scale_step(step):.1f},{bottom - LINES * min(max(value / most, 0.0), 1.0):.1f}"
            for step, value in line.points
        )
        dashes = f' stroke-dasharray="{5 + n} {3 + n}"' if n else ""  # keeps coinciding lines visible
        page.parts.append(f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>')
        page.line(12, page.top + 14 * n + 6, 28, page.top + 14 * n + 6, colour, 2)
        page.text(34, page.top + 14 * n + 10, line.label)
    page.top = bottom + 28
