"""Sessions of a synthesis that end early: a batch, a budget, an endpoint that fails; and what recordings of one replay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from scripts.prompt_files import read_replies, write_prompts
from scripts.record_run import record_run
from simia import search_path
from simia.jobs import Run
from simia.llm.replay import read_recording
from simia.synthesis.recheck import recheck_synthesis
from simia.synthesis.session import Synthesized, resume_synthesis, start_synthesis
from tests.fake_endpoint import FakeEndpoint
from tests.synthesis.build_fixtures import read_files
from tests.synthesis.chain_recipe import PROMPT, PROMPTS, ChainConfig, respond

QUESTIONS = 5 + 1 + 5 * 4 + 1  # w5 is refused without one, w3 is asked again


@pytest.fixture(scope="module")
def endpoint() -> Iterator[FakeEndpoint]:
    server = FakeEndpoint("--respond", "tests.synthesis.chain_recipe:respond")
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMIA_PATH", str(PROMPTS))


async def begin(folder: Path, llm: dict[str, Any], **settings: Any) -> Synthesized:
    config = ChainConfig.model_validate({"llm": llm, **settings})
    return await start_synthesis(config, folder / "out", runs=folder / "runs", name="r", say=lambda _: None)


async def go_on(folder: Path, changes: dict[str, Any] | None = None) -> Synthesized:
    return await resume_synthesis("r", runs=folder / "runs", changes=changes, say=lambda _: None)


def reach(endpoint: FakeEndpoint) -> dict[str, Any]:
    endpoint.plan()
    return {"kind": "openai", "base_url": endpoint.url, "model": "gpt-5-mini"}


@pytest.fixture
async def undisturbed(endpoint: FakeEndpoint, tmp_path: Path) -> dict[str, bytes]:
    done = await begin(tmp_path / "undisturbed", reach(endpoint))
    assert done.stop.kind == "complete", done.stop
    assert endpoint.log()["count"] == QUESTIONS
    return read_files(tmp_path / "undisturbed" / "out")


def answer_by_hand(batch: Path, folder: Path) -> list[str]:
    """Answer the open questions of a batch through numbered files; the prompts."""
    count = write_prompts(folder, [batch])
    (folder / "replies").mkdir(exist_ok=True)
    asked = []
    for path in sorted(folder.glob("[0-9]*.txt")):
        if not (reply := folder / "replies" / path.name).exists():
            parts = path.read_text().split("=== user ===\n")
            asked.append(path.read_text())
            first = parts[1].split("\n\n===")[0].strip()
            messages = [{"content": first}] + [{"content": each} for each in parts[2:]]
            reply.write_text(respond({"messages": messages}))
    assert count == len(asked)
    assert read_replies(folder, [batch]) == count
    return asked


async def test_a_batch_asks_in_each_session_what_can_be_answered(
    undisturbed: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = tmp_path / "batch"
    llm = {"kind": "batch", "model": "gpt-5-mini", "folder": str(batch)}
    done, rounds = await begin(tmp_path, llm), []
    while done.stop.kind == "batch":
        assert f" in requests-{len(rounds) + 1:04}.jsonl" in done.stop.detail
        rounds.append(answer_by_hand(batch, tmp_path / "prompts"))
        assert len(rounds) < 10
        done = await go_on(tmp_path)
    assert done.stop.kind == "complete", done.stop
    # first stage, the repeated question, all samples of all groups, the questions that follow from them, the last stage
    assert [len(each) for each in rounds] == [5, 1, 15, 5, 1]
    names = [orjson.loads(line)["custom_id"] for path in batch.glob("requests-*") for line in path.open("rb")]
    assert len(names) == len(set(names)) == QUESTIONS
    packs = read_files(tmp_path / "out")
    assert {name for name in packs if packs[name] != undisturbed[name]} == {
        name for name in packs if name.endswith("synthesis.json")
    }, "only the estimated tokens differ"

    path, count = record_run(
        tmp_path / "runs" / "r", "chain", "rest", estimated=True, answers=batch, recordings=tmp_path / "recordings"
    )
    rows = list(read_recording(path))
    assert len(rows) == count == QUESTIONS
    assert {row.batch for row in rows} == {"batch-001-1", "batch-006-1", "batch-007-1", "batch-022-1", "batch-027-1"}
    hashed = search_path.file_hash(PROMPTS / "prompts" / PROMPT)
    assert all(row.prompts == {PROMPT: hashed} for row in rows)
    assert (tmp_path / "recordings" / "prompts" / "chain" / PROMPT).is_file()
    replay = {"kind": "replay", "path": str(path)}
    assert (await begin(tmp_path / "replayed", replay)).stop.kind == "complete"
    assert read_files(tmp_path / "replayed" / "out") == packs

    other = tmp_path / "changed" / "prompts" / "test"
    other.mkdir(parents=True)
    (other / "chain.j2").write_text("Please name {{ name }}")
    monkeypatch.setenv("SIMIA_PATH", str(tmp_path / "changed"))
    forget_prompts()
    drawn = await begin(tmp_path / "drawn", {**replay, "match": "draw"})
    assert drawn.stop.kind == "complete", drawn.stop
    assert read_files(tmp_path / "drawn" / "out") == packs
    missed = await begin(tmp_path / "missed", replay)
    assert missed.stop.kind == "endpoint"
    assert "no such prompt" in missed.stop.detail
    assert "no answer for 5 items, the first first/w0" in missed.stop.detail


def forget_prompts() -> None:
    from simia import prompts

    prompts.load_template.cache_clear()
    prompts.read_prompt.cache_clear()


@pytest.fixture(autouse=True)
def fresh_prompts() -> Iterator[None]:
    forget_prompts()
    yield
    forget_prompts()


async def test_a_budget_ends_a_session_and_a_higher_one_goes_on(
    endpoint: FakeEndpoint, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    llm = reach(endpoint)
    done = await begin(tmp_path, llm, limits={"max_cost": 0.00001})
    assert done.stop.kind == "budget"
    assert done.packs == []
    assert not (tmp_path / "out").exists()
    first = endpoint.log()["count"]
    assert first < QUESTIONS
    done = await go_on(tmp_path, {"limits.max_cost": None, "limits.max_tokens": 120})
    assert done.stop.kind == "budget"
    done = await go_on(tmp_path, {"limits.max_tokens": 100_000})
    assert done.stop.kind == "complete"
    assert read_files(tmp_path / "out") == undisturbed
    assert endpoint.log()["count"] == QUESTIONS


async def test_an_endpoint_that_fails_ends_the_session_at_its_stage(
    endpoint: FakeEndpoint, undisturbed: dict[str, bytes], tmp_path: Path
) -> None:
    llm = reach(endpoint)
    endpoint.plan(script=["ok", "ok"] + ["500"] * 400)
    done = await begin(tmp_path, llm, limits={"retries": 0, "concurrency": 1, "backoff": 0.01}, stop={"outage": 30})
    assert done.stop.kind == "endpoint"
    assert done.outputs.of("group") == {}
    assert "server_error" in done.stop.detail
    endpoint.plan()
    done = await go_on(tmp_path)
    assert done.stop.kind == "complete"
    assert read_files(tmp_path / "out") == undisturbed
    assert endpoint.log()["count"] == QUESTIONS - 2


async def test_a_changed_prompt_or_source_is_refused_by_a_resume(
    endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simia.errors import UserError

    source = tmp_path / "tasks.txt"
    source.write_text("one")
    await begin(tmp_path, reach(endpoint), source=str(source), limits={"max_tokens": 60})
    run = Run.read_only(tmp_path / "runs", "r")
    assert set(run.ledger.meta("facts")["prompts"]) == {PROMPT}
    run.close()
    other = tmp_path / "changed" / "prompts" / "test"
    other.mkdir(parents=True)
    (other / "chain.j2").write_text("Please name {{ name }}")
    monkeypatch.setenv("SIMIA_PATH", str(tmp_path / "changed"))
    forget_prompts()
    with pytest.raises(UserError, match=r"made with another version of the prompt file test/chain\.j2"):
        await go_on(tmp_path)
    monkeypatch.setenv("SIMIA_PATH", str(PROMPTS))
    forget_prompts()
    source.write_text("two")
    with pytest.raises(UserError, match=r"tasks\.txt has changed since run r was made.*restore it"):
        await resume_synthesis("r", runs=tmp_path / "runs", changes={"limits.max_tokens": None}, say=lambda _: None)
    with pytest.raises(UserError, match=r"tasks\.txt has changed since run r was made.*restore it"):
        recheck_synthesis(tmp_path / "runs", "r", lambda _: None)
