"""Figures by matplotlib: intervals of points, and what is said without the extra."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from simia.errors import UserError
from simia.report import plots
from simia.report.plots import PlotDot, PlotLine, PlotPanel, render_svg, save_figure

PANEL = PlotPanel(
    "Growth", lines=[PlotLine("$5 and $6", [(70, 0.5), (210, 0.75)], bounds=[(0.25, 1.0), (0.5, 2.0)])], x="rows"
)


def test_points_have_their_intervals_and_places() -> None:
    root = ElementTree.fromstring(render_svg([PANEL]))
    name = "{http://www.w3.org/2000/svg}"
    words = [each.text for each in root.iter(f"{name}text")]
    assert {"Growth", "$5 and $6", "rows", "70", "210"} <= set(words)
    (line,) = [each for each in root.iter(f"{name}g") if each.get("id") == "line-1"]
    path = next(line.iter(f"{name}path")).get("d") or ""
    assert path.split() == ["M", "230", "109", "L", "650", "71.5"]  # half and three quarters of 150 points above 184
    bands = [each for each in root.iter(f"{name}path") if "opacity: 0.15" in (each.get("style") or "")]
    assert bands or [each for each in root.iter(f"{name}use") if "opacity: 0.15" in (each.get("style") or "")]


def test_a_png_of_the_same_panels(tmp_path: Path) -> None:
    save_figure([PANEL, PlotPanel("dots", dots=[PlotDot("a", 0.5, 0.4, 0.6)])], tmp_path / "new" / "figure.png")
    assert (tmp_path / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"figure\.pdf: a figure is written as \.svg or \.png"):
        save_figure([PANEL], tmp_path / "figure.pdf")


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'simia\[plots\]'"):
        render_svg([PANEL])
