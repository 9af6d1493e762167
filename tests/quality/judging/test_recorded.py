"""Recorded verdicts of a strong model on sound and on spoilt seeds, through the whole of the pre-filter.

A changed prompt is a miss, which shows as an error verdict: record again (see recordings/README.md), never edit a reply.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simia.errors import Code
from simia.llm.engine import Engine
from simia.llm.replay import ReplayBackend, ReplaySettings
from simia.quality.judging.panel import judge_seeds_by_llm
from simia.quality.judging.settings import PrefilterSettings
from tests.quality.judging.cases import SOUND, all_cases

RECORDINGS = Path(__file__).parents[2] / "recordings"
ASKED = str(RECORDINGS / "asked/judge/system.j2")  # as it was when the verdicts were recorded
EXPECTED = json.loads((RECORDINGS / "prefilter.verdicts.json").read_text())["verdicts"]


def engine() -> Engine:
    return Engine(ReplayBackend(ReplaySettings(path=RECORDINGS / "prefilter.jsonl")))


async def test_sound_seeds_stay_and_spoilt_ones_go_for_their_own_fault() -> None:
    cases = all_cases()
    assert cases.keys() == EXPECTED.keys()
    async with engine() as opened:
        verdicts = await judge_seeds_by_llm(list(cases.values()), PrefilterSettings(system=ASKED), opened)
    got = dict(zip(cases, verdicts, strict=True))
    assert {name: verdict.error for name, verdict in got.items() if verdict.error} == {}
    for name, expected in EXPECTED.items():
        said = {dimension: got[name].dimensions[dimension] for dimension in expected}
        assert said == expected, (name, got[name].rationale)
        assert got[name].passed is (name in SOUND), name
    issues = [issue for verdict in verdicts for issue in verdict.issues]
    assert {issue.code for issue in issues} == {Code.JUDGED_BAD}
    assert all(issue.detail for issue in issues)


@pytest.mark.parametrize("change", [{"dimensions": ["logic"]}, {"sampling": {"temperature": 1.0}}])
async def test_what_was_not_recorded_is_an_error_and_keeps_the_seed(change: dict[str, object]) -> None:
    seeds = list(all_cases().values())[:2]
    settings = PrefilterSettings.model_validate({"system": ASKED, **change})
    async with engine() as opened:
        verdicts = await judge_seeds_by_llm(seeds, settings, opened)
    assert [verdict.error for verdict in verdicts] == [Code.REPLAY_MISS] * 2
    assert [verdict.passed for verdict in verdicts] == [None, None]
