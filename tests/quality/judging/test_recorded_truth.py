"""A strong model's verdicts on trajectories whose faults no structural check found, and on right ones.

The 84 verdicts are on `tests/quality/data/truth/unseen`: all 60 right trajectories, and the 24 corrupted ones that the structural
checks let pass when the set was opened.
"""

from __future__ import annotations

import json
from pathlib import Path

from simia.amplification.settings import AmplifyConfig
from simia.llm.replay import read_recording
from simia.quality.judging.judge_reply import read_verdict
from simia.quality.judging.rubric import Rubric

ROOT = Path(__file__).parents[2]
UNSEEN = ROOT / "quality" / "data" / "truth" / "unseen"
# Written as right, and rightly rejected: a call has a value that only the result of another call of the same turn shows.
GUESSED = {"ja-right-05", "ja-right-10", "zh-right-06", "zh-right-08", "zh-right-09", "zh-right-15"}


def read_kinds() -> dict[str, str]:
    rows = [
        json.loads(line)
        for name in ("right", "corrupted")
        for line in (UNSEEN / f"{name}.jsonl").read_text().splitlines()
    ]
    return {row["id"]: row["kind"] for row in rows}


def test_a_strong_judge_finds_what_structure_does_not() -> None:
    dimensions = list(Rubric(AmplifyConfig().judge).dimensions)
    kinds = read_kinds()
    failed, passed = set(), set()
    for row in read_recording(ROOT / "recordings" / "judge-truth.jsonl"):
        assert row.reply is not None
        verdict = read_verdict(row.reply, dimensions)
        assert verdict.error is None, (row.draw, verdict.detail)
        (passed if verdict.passed else failed).add((row.draw or "").removesuffix(".judge"))
    assert len(passed) + len(failed) == 84
    assert {name for name in failed if kinds[name] == "right"} == GUESSED
    assert len({name for name in failed if kinds[name] != "right"}) == 24
    assert not {name for name in passed if kinds[name] != "right"}
