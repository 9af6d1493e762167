"""The panels of `simia fidelity`: F1, repeated values, and distance of the changes. `simia.report.plots` draws them."""

from __future__ import annotations

from collections.abc import Mapping

from simia.evaluation.fidelity import Fidelity
from simia.report.plots import PlotDot, PlotLine, PlotPanel


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
    panels.append(PlotPanel("Distance of the simulated changes from the real ones", lines=lines, x="step"))
    return [panel for panel in panels if panel.dots or panel.lines]
