"""Recorded completions of real models, read again: what was accepted stays accepted, what was refused keeps its reason.

`recordings/*.jsonl` hold prompts with the replies that real models gave to them; `*.expected.json` what a person who read
each of them says of it. A changed prompt is a clear miss: record again (see recordings/README.md), never edit a reply.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simia.amplification.session import start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.jobs import Run

RECORDINGS = Path(__file__).parents[1] / "recordings"
CASES = sorted(path.stem.removesuffix(".expected") for path in RECORDINGS.glob("*.expected.json"))


@pytest.fixture(autouse=True)
def seeds_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our packs go on; the prompts that were answered were made of the seeds in recordings/seeds."""
    monkeypatch.setenv("SIMIA_PATH", str(RECORDINGS))


def test_there_are_recordings() -> None:
    assert {"quickstart", "small-tagged", "strong-json", "strong-tagged"} <= set(CASES)


@pytest.mark.parametrize("name", CASES)
async def test_every_recorded_reply_gets_its_verdict(name: str, tmp_path: Path) -> None:
    expected = json.loads((RECORDINGS / f"{name}.expected.json").read_text())
    settings = ["llm.kind=replay", f"llm.path={RECORDINGS / f'{name}.jsonl'}", *expected["settings"]]
    verdicts = expected["verdicts"]
    config = load_config(
        AmplifyConfig, expected["config"], settings, n=max(1, sum(v == "passed" for v in verdicts.values()))
    )
    made = await start_amplification(config, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    got = {item.id: item.reason or item.status for item in run.ledger.items()}
    details = {item.id: item.detail for item in run.ledger.items() if item.detail}
    run.close()
    assert {k: got.get(k) for k in verdicts} == verdicts, details
    assert made.stop.kind == expected.get("stop", "complete")


async def test_a_changed_prompt_is_a_clear_miss(tmp_path: Path) -> None:
    settings = ["llm.kind=replay", f"llm.path={RECORDINGS / 'quickstart.jsonl'}", "prompt.shots=1", "stop.attempts=1"]
    config = load_config(AmplifyConfig, "amplify/quickstart", settings, n=1)
    await start_amplification(config, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    (item,) = run.ledger.items()
    run.close()
    assert (item.status, item.reason) == ("failed", "replay_miss")
    assert "against the nearest recorded one" in (item.detail or "")
