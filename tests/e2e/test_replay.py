"""Recorded completions of real models, read again: what was accepted stays accepted, what was refused keeps its reason.

`recordings/*.jsonl` hold requests with the replies that real models gave to them; `*.expected.json` what a person who read each of
them says of it. A row answers the item and sample for which it was recorded (`llm.match=draw`), so that a changed prompt loses no
reply: each is parsed and checked by today's code (see recordings/README.md). Never edit a reply.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simia.amplification.recheck import recheck_run
from simia.amplification.session import start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.jobs import Run
from simia.llm.replay import read_recording

RECORDINGS = Path(__file__).parents[1] / "recordings"
CASES = sorted(path.stem.removesuffix(".expected") for path in RECORDINGS.glob("*.expected.json"))
KEYS_ONLY = {
    "oracle-tau",
    "oracle-office",
    "oracle_injected",
    "tau2-airline-user",
}  # their prompts hold what is not ours, or are files of their own


@pytest.fixture(autouse=True)
def seeds_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our packs go on; the prompts that were answered were made of the seeds in recordings/seeds."""
    monkeypatch.setenv("SIMIA_PATH", str(RECORDINGS))


def test_there_are_recordings() -> None:
    assert {"quickstart", "small-tagged", "strong-json", "strong-tagged"} <= set(CASES)


def test_a_recording_holds_its_own_prompts() -> None:
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        if path.stem in KEYS_ONLY:
            continue
        for number, row in enumerate(read_recording(path), 1):
            assert row.request is not None, f"{path.name}:{number} has no request"
            assert row.request.messages, f"{path.name}:{number} has an empty request"
    assert {"system.j2", "request.j2"} == {path.name for path in (RECORDINGS / "asked" / "oracle").iterdir()}


@pytest.mark.parametrize("name", CASES)
async def test_every_recorded_reply_gets_its_verdict(name: str, tmp_path: Path) -> None:
    expected = json.loads((RECORDINGS / f"{name}.expected.json").read_text())
    recording = RECORDINGS / f"{name}.jsonl"
    settings = ["llm.kind=replay", "llm.match=draw", f"llm.path={recording}", *expected["settings"]]
    verdicts = expected["verdicts"]
    config = load_config(
        AmplifyConfig, expected["config"], settings, n=max(1, sum(v == "passed" for v in verdicts.values()))
    )
    made = await start_amplification(config, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    got = {item.id: item.reason or item.status for item in run.ledger.items()}
    details = {item.id: item.detail for item in run.ledger.items() if item.detail}
    asked = {reply["draw"]: reply["request"] for reply in run.ledger.replies()}
    run.close()
    assert {k: got.get(k) for k in verdicts} == verdicts, details
    assert made.stop.kind == expected.get("stop", "complete")
    recorded = {row.draw: row.request.canonical() for row in read_recording(recording) if row.request}
    assert asked == {draw: recorded[draw] for draw in asked}, "a run stores the requests that were answered"


async def test_a_changed_prompt_is_a_clear_miss(tmp_path: Path) -> None:
    settings = ["llm.kind=replay", f"llm.path={RECORDINGS / 'quickstart.jsonl'}", "prompt.shots=1", "stop.attempts=1"]
    config = load_config(AmplifyConfig, "amplify/quickstart", settings, n=1)
    await start_amplification(config, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    (item,) = run.ledger.items()
    run.close()
    assert (item.status, item.reason) == ("failed", "replay_miss")
    assert "against the nearest recorded one" in (item.detail or "")


async def test_a_changed_prompt_loses_no_reply_that_is_matched_by_draw(tmp_path: Path) -> None:
    """The provenance names the recorded prompts, not today's, and `recheck` derives the same results."""
    recording = RECORDINGS / "strong-small.jsonl"
    settings = ["llm.kind=replay", "llm.match=draw", f"llm.path={recording}", "prompt.shots=1", "stop.attempts=2"]
    config = load_config(AmplifyConfig, "amplify/quickstart", settings, n=2)
    made = await start_amplification(config, runs=tmp_path, name="r", say=lambda _: None)
    assert made.stop.kind == "complete"
    first = list(made.trajectories())
    assert {name for t in first for name in t.provenance.prompts} == {"recorded requests"}
    _, figures, _ = recheck_run(tmp_path, "r", lambda _: None)
    assert figures["accepted"] == (2, 2)
    assert list(made.trajectories()) == first


JUDGED_BAD = {
    "i000008": "consistency",  # a count of one, and two products
    "i000012": "grounding",  # an injury that the user never told of
    "i000013": "consistency",  # an event in place of a phone number
    "i000017": "honesty",  # "no news", and there is a mail
    "i000022": "consistency",  # above the user's limit
    "i000023": "results",  # a file whose name does not match
    "i000024": "consistency",  # another day than the result's
}


async def test_a_recorded_judge_rejects_what_structure_lets_pass(tmp_path: Path) -> None:
    """A strong model's verdicts on the 20 trajectories of the small model that pass the structural checks."""
    judge = {"kind": "replay", "match": "draw", "path": str(RECORDINGS / "judge-quickstart.jsonl"), "alias": "batch"}
    settings = ["llm.kind=replay", "llm.match=draw", f"llm.path={RECORDINGS / 'quickstart.jsonl'}"]
    settings += json.loads((RECORDINGS / "quickstart.expected.json").read_text())["settings"]
    settings += ["judge.enabled=true", f"judge.llm={json.dumps(judge)}", "stop.attempts=25"]
    config = load_config(AmplifyConfig, "amplify/quickstart", settings, n=25)
    made = await start_amplification(config, runs=tmp_path, name="r", say=lambda _: None)
    assert (made.stop.kind, made.progress.accepted) == ("attempts", 13)
    run = Run.read_only(tmp_path, "r")
    rejected = {item.id: item.detail or "" for item in run.ledger.items() if item.reason == "judged_bad"}
    run.close()
    assert rejected.keys() == JUDGED_BAD.keys()
    for item, detail in rejected.items():
        assert detail.startswith(f"judged_bad at {JUDGED_BAD[item]}: "), detail
    _, figures, _ = recheck_run(tmp_path, "r", lambda _: None)
    assert figures["accepted"] == (13, 13)
