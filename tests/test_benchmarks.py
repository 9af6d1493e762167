"""`make bench` runs every script of eval/bench that measures something."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eval.bench.stateful import list_missed_bounds

ROOT = Path(__file__).parents[1]
BENCH = ROOT / "eval" / "bench"
LEFT_OUT = {
    "endpoint": "the fake endpoint that benchmarks start",
    "replies": "the replies of that endpoint",
    "request_contradictions": "the patterns of planned_requests.py",
    "request_seeds": "the seeds of planned_requests.py",
}
"""Scripts that measure nothing by themselves, and why they are there."""
LIST = re.search(r"^BENCHES := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
BENCHES = LIST[1].replace("\\\n", " ").split() if LIST else []


def test_every_script_is_run_or_left_out_for_a_reason() -> None:
    scripts = {path.stem for path in BENCH.glob("*.py")}
    assert sorted([*BENCHES, *LEFT_OUT]) == sorted(scripts), "add it to BENCHES of the Makefile, or here with a reason"


@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_is_left_out_is_used_by_a_benchmark(name: str) -> None:
    uses = re.compile(rf"^(?:from|import) {name}\b", re.M)
    assert [each for each in BENCHES if uses.search((BENCH / f"{each}.py").read_text(encoding="utf-8"))]


@pytest.mark.parametrize("name", BENCHES)
def test_a_benchmark_runs_without_arguments(name: str) -> None:
    text = (BENCH / f"{name}.py").read_text(encoding="utf-8")
    assert 'if __name__ == "__main__":' in text
    given = re.findall(r"add_argument\(\s*\"[^-][^)]*\)", text)
    assert [each for each in given if 'nargs="?"' not in each] == []


def test_a_world_that_holds_the_state_has_the_bounds_of_its_size() -> None:
    row = {"episodes": 1024, "ratio": 1.43, "pause_ms": 41.0, "step_ms": 0.9, "solved": 1024}
    assert list_missed_bounds(row) == []
    assert list_missed_bounds({**row, "episodes": 256, "solved": 256}) == ["1.15 times the endpoint's time"]
    assert list_missed_bounds({**row, "pause_ms": 100.0, "step_ms": 1.5, "solved": 1023}) == [
        "a pause of 100 ms", "1 ms of CPU a call", "every episode solved",
    ]  # fmt: skip
