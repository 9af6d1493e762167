"""The report of packs that are shipped: it reads what the stages of a synthesis write."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from simia.pack import Pack
from simia.report.pack_rows import (
    list_assessment_rows,
    list_pack_rows,
    list_price_rows,
    list_reason_cells,
    list_tool_cells,
)
from simia.report.pack_statistics import PackStatistics
from simia.report.synthesis_counts import GYM_STEPS, count_gym_tasks
from simia.report.synthesis_record import RECORD, read_record
from simia.search_path import data_root
from simia.synthesis.stage_figures import SynthesisFigures
from tests.command import run_simia

SEEDS = data_root() / "seeds"
FIXTURES = Path(__file__).parents[1] / "synthesis" / "fixtures" / "report"
GYMS = sorted(path.parent.name for path in SEEDS.glob("gyms/*/pack.yaml"))


def describe_shipped(name: str) -> PackStatistics:
    """A shipped pack with its record; its tests are not run."""
    pack = Pack.load(SEEDS / name)
    assert pack.root is not None
    record = read_record(pack.root)
    assert record is not None
    return PackStatistics(pack, record.narrow(pack.name), not_run="not asked for")


def test_the_assessment_has_its_interval_and_what_was_not_judged() -> None:
    rows = [text for _, text in list_assessment_rows(describe_shipped("hotel_front_desk"))]
    assert rows == ["hotel_front_desk: 1.000 [0.741, 1.000] in 12 rounds: passed 11, invalid 1"]


@pytest.mark.parametrize(
    ("name", "tests", "rounds"), [("hotel_front_desk", (74, 56), (2, 2)), ("job_seeking", (57, 39), (12, 12))]
)
def test_tests_of_the_synthesis_by_outcome(name: str, tests: tuple[int, int], rounds: tuple[int, int]) -> None:
    of = describe_shipped(name)
    rows = [text for _, text in list_pack_rows(of)]
    assert f"in the synthesis: {tests[0]} success, {tests[1]} anticipated refusal, 0 unexpected failure" in rows
    assert f"{rounds[0]} in {rounds[1]} tools" in rows
    shown = [tuple(int(n or 0) for n in row[3:5]) for row in list_tool_cells(of)]
    assert (sum(row[0] for row in shown), sum(row[1] for row in shown)) == tests, "also in the table of the tools"


def test_each_gym_counts_its_own_tools_and_tasks() -> None:
    """What the notes say is what the packs hold: 84 tools and 327 tasks in all."""
    for name in GYMS:
        of = describe_shipped(f"gyms/{name}")
        assert of.record is not None
        assert count_gym_tasks(of.record.notes, name) == len(of.pack.tasks)
        assert of.record.notes["gyms"][name]["tools"] == len(of.pack.tools)


def test_the_price_of_a_run_is_divided_by_what_the_run_made() -> None:
    alone, folder = (
        " ".join(run_simia("pack", "report", SEEDS / name, "--no-run").stdout.split())
        for name in ("gyms/parcel-vans", "gyms")
    )
    for out in (alone, folder):
        # 155,156 tokens of the environments' stages for 84 tools; 15,798 of the others, 170,954 in all, for 327 tasks
        assert "1.0 questions, ~1,847 tokens, 84 made (ScaleEnv: 546,000 tokens a domain; here ~15,516, 10 made)" in out
        assert "0.03 questions, ~48 tokens, 327 made (with all stages ~523; ScaleEnv: 93,200 tokens a task)" in out
    assert re.search(r"all 84 0 84 0 327 72 140\.30 ~170,954", folder), "399 inputs were proposed"
    rows = dict(list_price_rows(describe_shipped("hotel_front_desk")))
    assert rows["each accepted tool"].startswith("3.2 questions, ~20,858 tokens, 33 made")
    assert rows["each accepted task"].startswith("4.0 questions, ~34,488 tokens, 24 made (with all stages ~63,167;")


def test_inputs_of_gyms_that_became_no_task_have_reasons() -> None:
    assert list_reason_cells(describe_shipped("gyms/ferry-trip")) == [
        ("calls_out_of_bounds", "9", "the oracle makes too few or too many calls on the input"),
        ("observe_suffices", "2", "a function that calls only `observe` and `done` finds the answer"),
    ]
    rows = [text for _, text in list_pack_rows(describe_shipped("gyms/parcel-vans"))]
    assert "3 inputs refused: calls_out_of_bounds 3" in rows
    assert list_reason_cells(describe_shipped("hotel_front_desk")) == []


def test_a_fixture_has_only_keys_that_stages_write() -> None:
    """A record that no synthesis can have written would test a report that reads nothing real."""
    written = {
        stage: {name for note in notes.values() for name in note}
        for name in ("hotel_front_desk", "gyms/bakery-shelf")
        for stage, notes in orjson.loads((SEEDS / name / RECORD).read_bytes())["notes"].items()
    }
    made_by_hand = SynthesisFigures.model_validate_json((FIXTURES / RECORD).read_bytes())
    for stage, notes in made_by_hand.notes.items():
        assert {name for note in notes.values() for name in note} <= written[stage], stage
    read = {(stage, name) for steps in GYM_STEPS for stage, name, _ in steps if name != "hard_enough"}
    assert not [(stage, name) for stage, name in read if name not in written[stage]]
