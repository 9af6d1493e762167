"""A resume that stops early: its figures are those of the whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from simia.amplification.session import resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.cli.terminal_output import describe_accepted
from simia.config import load_config
from simia.errors import Code
from simia.jobs import Run
from simia.llm.types import LLMFault, Reply, Request
from tests.amplification.stub_model import answer_well, use_model


def fail_fourth(request: Request, draw: str) -> Reply | LLMFault:
    if draw == "i000003.0":
        return LLMFault(Code.TIMEOUT, "no answer", retry=False)
    return answer_well(request, draw)


def fail(request: Request, draw: str) -> LLMFault:
    return LLMFault(Code.CONNECTION, "down", retry=False)


async def test_accepted_results_after_an_open_item_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = use_model(monkeypatch, fail_fourth)
    own = ["seeds.packs=[customer_service]", "llm.model=gpt-5-mini"]
    conf = load_config(AmplifyConfig, "amplify/default", own, n=12)
    made = await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    assert (made.stop.kind, made.progress.accepted, made.progress.failed) == ("complete", 12, 1)
    stub.answer = fail
    made = await resume_amplification("r", runs=tmp_path, changes={"n": 30}, say=lambda _: None)
    assert made.stop.kind == "endpoint"
    assert describe_accepted(made.progress).startswith("12 of 30 accepted, ")
    run = Run.read_only(tmp_path, "r")
    assert run.ledger.accepted_count() == 12
    run.close()
    stub.answer = answer_well
    made = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    assert (made.stop.kind, made.progress.accepted) == ("complete", 30)
