"""Scatter plots as SVG: bubbles of several groups, with or without axes. Equal points give equal bytes; the background is white."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from simia.report.graph_drawing import cut_label

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 760, 460, 46, 40, 14
LEGEND = 200  # width
COLOURS = (
    "#1d4ed8", "#c2410c", "#15803d", "#7e22ce", "#0e7490", "#a16207", "#be123c", "#4d7c0f", "#6d28d9", "#0f766e", "#b45309", "#334155",
)  # fmt: skip
INK, FAINT = "#222", "#d4d4d4"
MOST_POINTS = 3_000


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """A bubble. `label` is shown when the pointer is on it, and next to it if the plot is labelled."""

    x: float
    y: float
    label: str
    group: int = 0
    """Index of its colour."""
    radius: float = 4.0
    strength: float = 0.7
    """Opacity, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class PlotAxes:
    """Names of the axes, which begin at 0."""

    x: str
    y: str


def draw_scatter(
    points: Sequence[ScatterPoint], *, axes: PlotAxes | None = None, legend: Sequence[str] = (), labelled: bool = False
) -> str:
    """Draw points to scale. Without axes the plot fits the points; with them it begins at 0. `legend`: names of the groups."""
    shown = points[:MOST_POINTS]
    xs, ys = [p.x for p in shown] or [0.0], [p.y for p in shown] or [0.0]
    low_x, low_y = (0.0, 0.0) if axes else (min(xs), min(ys))
    high_x, high_y = (round_up(max(xs)), round_up(max(ys))) if axes else (max(xs), max(ys))
    margin = 14.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low_x) / ((high_x - low_x) or 1)
        up = (y - low_y) / ((high_y - low_y) or 1)
        return (
            LEFT + margin + across * (WIDTH - LEFT - 2 * margin),
            HEIGHT - BOTTOM - margin - up * (HEIGHT - BOTTOM - TOP - 2 * margin),
        )

    whole = WIDTH + (LEGEND if legend else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" viewBox="0 0 {whole} {HEIGHT}" width="{whole}" height="{HEIGHT}" role="img"'
        ' font-family="system-ui,sans-serif" font-size="12">',
        f'<rect width="{whole}" height="{HEIGHT}" fill="#fff"/>',
    ]
    if axes:
        for n in range(5):
            x, y = low_x + (high_x - low_x) * n / 4, low_y + (high_y - low_y) * n / 4
            (across, floor), (side, up) = place(x, low_y), place(low_x, y)
            parts.append(
                f'<path d="M{across:.1f} {TOP}V{floor:.1f}M{side:.1f} {up:.1f}H{WIDTH}" stroke="{FAINT}" fill="none"/>'
            )
            parts.append(
                f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 4}" text-anchor="middle" fill="{INK}">{x:g}</text>'
            )
            parts.append(f'<text x="{LEFT + 4}" y="{up + 4:.1f}" text-anchor="end" fill="{INK}">{y:g}</text>')
        parts.append(
            f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="{INK}">{escape(axes.x)}</text>'
        )
        parts.append(
            f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle" fill="{INK}">{escape(axes.y)}</text>'
        )
    for point in shown:
        x, y = place(point.x, point.y)
        colour = COLOURS[point.group % len(COLOURS)]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{point.radius:.1f}" fill="{colour}" fill-opacity="{point.strength:.2f}">'
            f"<title>{escape(point.label[:200])}</title></circle>"
        )
        if labelled:
            name = escape(cut_label(point.label.partition(":")[0]))
            parts.append(f'<text x="{x + point.radius + 4:.1f}" y="{y + 4:.1f}" fill="{INK}">{name}</text>')
    for n, name in enumerate(legend[:25]):
        y = TOP + 10 + 17 * n
        parts.append(f'<circle cx="{WIDTH + 14}" cy="{y}" r="5" fill="{COLOURS[n % len(COLOURS)]}"/>')
        parts.append(f'<text x="{WIDTH + 26}" y="{y + 4}" fill="{INK}">{escape(cut_label(name))}</text>')
    return "\n".join([*parts, "</svg>"])


def round_up(value: float) -> float:
    """Round up to a number of the form 1, 2, 4, 8 or 10 times a power of ten, at least 1."""
    if value <= 1:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next((step * power for step in (1, 2, 4, 8, 10) if value <= step * power), 10 * power)
