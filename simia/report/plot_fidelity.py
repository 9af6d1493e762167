"""The plot of `simia fidelity`: one row of dots and one line for each variant of the simulator."""

from __future__ import annotations

from collections.abc import Mapping

from simia.evaluation.fidelity import Fidelity
from simia.report.plot import PlotDot, PlotLine, PlotPanel


def make_fidelity_panels(found: Mapping[str, Fidelity]) -> list[PlotPanel]:
    """Make the panels for several named variants: F1, repeated values, and distance of the changes. Names that end in "no ledger"
    have a colour of their own."""
    shown: list[PlotPanel] = []
    for measure, title in (
        ("value_f1", "F1 of the values, against the real world"),
        ("memory", "Earlier values that are repeated"),
    ):
        made = [(name, each.interval(measure)) for name, each in found.items()]
        dots = [
            PlotDot(name, each.value, each.low, each.high, int(name.endswith("no ledger")))
            for name, each in made
            if each is not None
        ]
        if dots:
            shown.append(PlotPanel(title, dots=dots))
    lines = [
        PlotLine(name, list(each.distance.items()), n) for n, (name, each) in enumerate(found.items()) if each.distance
    ]
    if lines:
        shown.append(PlotPanel("Distance of the simulated changes from the real ones, by step", lines=lines))
    return shown
