"""A run becomes a recording with its prompt files, which replays after the prompts have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts.record_run import MOST, RECORDINGS, record_run
from simia import search_path
from simia.amplification.session import start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import UserError
from simia.jobs.run import iterate_accepted
from simia.llm.replay import read_recording
from tests.fake_endpoint import FakeEndpoint


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:judged")
    yield server
    server.stop()


async def make_run(runs: Path, *settings: str, n: int = 4) -> Path:
    given = ["seeds.packs=[customer_service]", "seeds.limit=3", *settings]
    made = await start_amplification(
        load_config(AmplifyConfig, "amplify/default", given, n=n), runs=runs, name="r", say=lambda _: None
    )
    assert made.stop.kind == "complete", made.stop
    return made.folder


async def test_a_run_is_recorded_with_its_prompts(
    endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = [f"llm.base_url={endpoint.url}", "llm.model=fake", "judge.enabled=true"]
    folder = await make_run(tmp_path / "live", *live)
    path, count = record_run(folder, "mine", "mine-1", estimated=True, recordings=tmp_path)
    rows = list(read_recording(path))
    assert len(rows) == count > 4
    assert {row.batch for row in rows} == {"mine-1"}
    assert all(row.reply and row.reply.usage.estimated for row in rows)
    kept = tmp_path / "prompts" / "mine"
    assert {row.prompts["amplify/system.j2"] for row in rows} == {search_path.file_hash(kept / "amplify" / "system.j2")}
    assert (kept / "judge" / "quality.md").is_file(), "the judge's files are among them"
    assert record_run(folder, "mine", "mine-1", recordings=tmp_path)[1] == 0, "each reply once"

    changed = tmp_path / "changed" / "prompts"
    for name in ("amplify/system.j2", "judge/system.j2"):
        (changed / name).parent.mkdir(parents=True, exist_ok=True)
        (changed / name).write_text(f"Changed.\n{(kept / name).read_text()}")
    monkeypatch.setenv("SIMIA_PATH", str(changed.parent))
    with pytest.raises(UserError, match=r"amplify/system\.j2 has changed"):
        record_run(folder, "other", "b", recordings=tmp_path)
    again = ["llm.kind=replay", f"llm.path={path}", "llm.match=draw", "judge.enabled=true"]
    replayed = await make_run(tmp_path / "replayed", *again)
    assert [t.messages for t in read(replayed)] == [t.messages for t in read(folder)]
    assert {t.provenance.prompts["amplify/system.j2"] for t in read(replayed)} == {
        row.prompts["amplify/system.j2"] for row in rows
    }


def read(folder: Path) -> list[Any]:
    return list(iterate_accepted(folder, partial=False))


async def test_a_batch_has_twenty_prompts_at_most(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    folder = await make_run(tmp_path, f"llm.base_url={endpoint.url}", "llm.model=fake", n=MOST + 1)
    with pytest.raises(UserError, match=f"at most {MOST}: ask in several contexts"):
        record_run(folder, "mine", "mine-1", recordings=tmp_path)


def test_new_recordings_keep_the_policy() -> None:
    """Rows that name a batch: 20 prompts at most in each, their prompt files are stored, and unmeasured tokens are marked."""
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        if path.stem == "oracle_injected":  # rows of another form
            continue
        rows = [row for row in read_recording(path) if row.batch]
        for batch in {row.batch for row in rows}:
            assert sum(row.batch == batch for row in rows) <= MOST, f"{path.name}: batch {batch}"
        for row in rows:
            for name, hashed in row.prompts.items():
                file = RECORDINGS / "prompts" / path.stem / name
                assert search_path.file_hash(file) == hashed, f"{path.name}: {name}"
            if row.reply is not None and (row.reply.usage.prompt or row.reply.usage.completion):
                assert row.reply.usage.estimated, (
                    f"{path.name}: {row.draw}: tokens that no endpoint counted are estimates"
                )
