"""docs/cost.md: its tables are those that the script computes from the stored figures."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from simia.llm.prices import Price

sys.path.append(str(Path(__file__).parents[2] / "eval" / "cost"))
import tables

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_tables_of_the_stored_figures() -> None:
    figures = json.loads((ROOT / "eval" / "cost" / "figures.json").read_text())
    page = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")
    assert page == tables.write_page(page, tables.render(figures, tables.estimate_request())), (
        "run python eval/cost/tables.py"
    )


def test_a_line_goes_through_both_runs() -> None:
    runs = [{"n": 100, "cpu_ms_each": 20.0, "peak_mb": 150.0, "disk_kb_each": 10.0}, {"n": 300, "cpu_ms_each": 10.0, "peak_mb": 170.0, "disk_kb_each": 10.0}]  # fmt: skip
    processor = tables.Line.through(runs, "cpu_ms")
    assert (processor.base, processor.each) == (1500.0, 5.0)
    assert [processor.at(run["n"]) for run in runs] == [2000.0, 3000.0]
    assert tables.Line.through(runs, "memory_mb").at(1000) == pytest.approx(240.0)
    assert tables.Line.through(runs, "disk_kb").base == pytest.approx(0.0)


def test_the_bound_is_what_takes_longest() -> None:
    runs = [{"n": 100, "cpu_ms_each": 10.0, "peak_mb": 150.0, "disk_kb_each": 10.0}, {"n": 300, "cpu_ms_each": 10.0, "peak_mb": 170.0, "disk_kb_each": 10.0}]  # fmt: skip
    request = tables.estimate_request()
    slow, fast = (tables.compute_size(90_000, runs, request, rate) for rate in (50, 500))
    assert slow["endpoint_h"] == pytest.approx(90_000 / 0.8 / 50 / 3600)
    assert (slow["bound"], fast["bound"]) == ("the endpoint", "the processor of one process")
    assert tables.compute_size(100_000_000, runs, request, 50)["bound"] == "the endpoint; memory, above 16 GB"
    assert slow["memory_gb"] * 1024 == pytest.approx(tables.LARGE_RUN["peak_mb"]), "the measured run"


def test_rates_and_memory_are_those_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = [f"{rate:,}" for rate in tables.RATES if rate != 50]
    assert (
        "| replies per second with 256 / 1,024 requests at once and replies after 0.5 s (at most 512 / 2,048), each stored before it is used "
        f"| {' / '.join(ours)} |"
    ) in readme
    large = f"{tables.LARGE_RUN['accepted_per_second']:.0f}/s, {tables.LARGE_RUN['peak_mb']:.0f} MB"
    assert f"| 90,000 trajectories end to end, 12 KB replies, 5 % malformed | {large} |" in readme


def test_a_prefix_cache_lowers_the_price_of_the_shared_part_alone() -> None:
    price = Price(input=1.0, cached=0.1, output=10.0)
    low, high = tables.compute_price(1e6, 1000, 900, 50, price)
    assert high == pytest.approx(1000 + 500)
    assert low == pytest.approx(100 + 90 + 500)
