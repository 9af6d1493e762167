"""Derive a synthesis again: by today's code, after a prompt has changed, with replies that are missing, and from a lost ledger."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simia import prompts
from simia.jobs import Run
from simia.jobs.cleanup import clean
from simia.synthesis import session
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.recheck import Rechecked, rebuild_synthesis, recheck_synthesis
from simia.synthesis.session import resume_synthesis, start_synthesis
from simia.synthesis.stage import StageContext, StageInput
from simia.synthesis.stage_figures import cost_by_stage
from tests.synthesis import chain_recipe
from tests.synthesis.build_fixtures import read_files
from tests.synthesis.chain_recipe import PROMPTS, ChainConfig, respond
from tests.synthesis.word_backend import WordBackend

PACKS = 6


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[WordBackend]:
    monkeypatch.setenv("SIMIA_PATH", str(PROMPTS))
    found = WordBackend(respond)
    monkeypatch.setattr(session, "open_backend", lambda *_, **__: found)
    prompts.load_template.cache_clear()
    prompts.read_prompt.cache_clear()
    yield found
    prompts.load_template.cache_clear()
    prompts.read_prompt.cache_clear()


@pytest.fixture
def made(backend: WordBackend, tmp_path: Path) -> dict[str, bytes]:
    done = asyncio.run(start_synthesis(ChainConfig(), tmp_path / "out", runs=tmp_path, name="r", say=lambda _: None))
    assert done.stop.kind == "complete"
    assert len(done.packs) == PACKS
    backend.asked.clear()
    return read_files(tmp_path / "out")


def check_again(folder: Path) -> Rechecked:
    return recheck_synthesis(folder, "r", lambda _: None)


def resume(folder: Path, out: str) -> dict[str, bytes]:
    done = asyncio.run(resume_synthesis("r", folder / out, runs=folder, say=lambda _: None))
    assert done.stop.kind == "complete", done.stop
    return read_files(folder / out)


def test_the_same_code_derives_the_same(made: dict[str, bytes], backend: WordBackend, tmp_path: Path) -> None:
    found = check_again(tmp_path)
    assert found.complete
    assert found.missing == []
    assert found.figures == {"passed": (11, 11), "rejected": (1, 1)}
    assert resume(tmp_path, "again") == made
    assert backend.asked == []


def test_code_that_refuses_more_leaves_out_what_followed_from_it(
    made: dict[str, bytes], backend: WordBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = chain_recipe.First.make

    async def make(self: Any, given: StageInput, context: StageContext) -> Any:
        if given.key == "w0":
            raise Refused(Reason.UNVERIFIED, "refused today")
        return await before(self, given, context)

    monkeypatch.setattr(chain_recipe.First, "make", make)
    found = check_again(tmp_path)
    assert found.figures == {"passed": (11, 8), "rejected": (1, 2), "open": (0, 1)}
    assert found.missing == ["last/all.draft"], "the last question names the words of all groups"
    assert not found.complete
    run = Run.read_only(tmp_path, "r")
    assert "stopped (rechecked)" in str(run.verify())
    assert [(each.name, each.made, each.open) for each in cost_by_stage(run)] == [
        ("first", 4, 0), ("group", 4, 0), ("last", 0, 1),
    ]  # fmt: skip
    run.close()
    packs = resume(tmp_path, "again")
    assert backend.asked == ["last/all.draft"]
    assert not any(name.startswith("w0") for name in packs)
    monkeypatch.undo()


def test_a_changed_prompt_is_matched_by_sample(
    made: dict[str, bytes], backend: WordBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "changed" / "prompts" / "test"
    folder.mkdir(parents=True)
    (folder / "chain.j2").write_text("Please name {{ name }}")
    monkeypatch.setenv("SIMIA_PATH", str(tmp_path / "changed"))
    prompts.load_template.cache_clear()
    prompts.read_prompt.cache_clear()
    found = check_again(tmp_path)
    assert found.complete
    assert found.missing == []
    assert found.notes == ["prompt files changed since the run was made (test/chain.j2): replies are matched by sample"]


def test_a_lost_reply_is_named(made: dict[str, bytes], backend: WordBackend, tmp_path: Path) -> None:
    remove_reply(tmp_path / "r", "group/w1/group.sample2")
    found = check_again(tmp_path)
    assert found.missing == ["group/w1/group.sample2"]
    assert found.figures["open"] == (0, 1)


def remove_reply(folder: Path, draw: str) -> None:
    with sqlite3.connect(folder / "replies.db") as connection:
        assert connection.execute("DELETE FROM reply WHERE draw = ?", (draw,)).rowcount == 1
    connection.close()


def test_replies_freed_on_request_keep_their_verdict(
    made: dict[str, bytes], backend: WordBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ChainConfig.model_validate({"sampling": {"tries": 1}})  # w3 is refused: its reply cannot be read
    done = asyncio.run(start_synthesis(config, tmp_path / "few", runs=tmp_path, name="f", say=lambda _: None))
    assert done.outputs.refused["first"]["w3"].reason == "unreadable_reply"
    assert [line for line in clean(tmp_path / "f", replies=True).done if line.startswith("1 reply of rejected")]
    backend.asked.clear()
    found = recheck_synthesis(tmp_path, "f", lambda _: None)
    assert (found.complete, found.missing) == (True, [])
    done = asyncio.run(resume_synthesis("f", tmp_path / "again", runs=tmp_path, say=lambda _: None))
    assert read_files(tmp_path / "again") == read_files(tmp_path / "few")
    assert backend.asked == []


@pytest.mark.parametrize("lost", ["ledger.db", "item rows"])
def test_a_lost_ledger_is_rebuilt(
    lost: str, made: dict[str, bytes], backend: WordBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lost == "ledger.db":
        for path in (tmp_path / "r").glob("ledger.db*"):
            path.unlink()
    else:
        with sqlite3.connect(tmp_path / "r" / "ledger.db") as connection:
            connection.execute("DELETE FROM item WHERE ord > 3")
        connection.close()
    salvaged, found = rebuild_synthesis(tmp_path, "r")
    assert salvaged.lost_replies == 0
    assert found.complete
    run = Run.read_only(tmp_path, "r")
    assert run.verify().complete, run.verify()
    assert {each.name: each.questions for each in cost_by_stage(run)} == {"first": 6, "group": 20, "last": 1}
    run.close()
    assert resume(tmp_path, "again") == made
    assert backend.asked == []
