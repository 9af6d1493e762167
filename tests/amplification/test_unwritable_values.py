"""Replies and settings whose values cannot be written: they fail one item, or are refused."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from simia.amplification.model_mix import Writer
from simia.amplification.recheck import recheck_run
from simia.amplification.session import load_seeds, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.config import load_config
from simia.jobs import Run
from simia.llm.types import Reply, Request
from tests.amplification.stub_model import answer_well, use_model

DEPTH = 248  # JSON of this depth can be read, but not written within a trajectory


def answer_deeply(request: Request, draw: str) -> Reply:
    if draw != "i000001.0":
        return answer_well(request, draw)
    call = f'{{"name": "get_order", "arguments": {{"order_id": {"[" * DEPTH}{"]" * DEPTH}}}}}'
    messages = [
        {"role": "user", "content": "Where is ORD-1?"},
        {"role": "assistant", "content": None, "calls": "CALLS"},
        {"role": "tool", "content": {"a": 1}},
        {"role": "assistant", "content": "done"},
    ]
    return Reply(text=orjson.dumps({"messages": messages}).decode().replace('"CALLS"', f"[{call}]"), finish="stop")


async def test_a_result_that_nests_too_deep_is_rejected_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_model(monkeypatch, answer_deeply)
    own = ["seeds.packs=[customer_service]", "llm.model=gpt-5-mini"]
    conf = load_config(AmplifyConfig, "amplify/default", own, n=5)
    made = await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    assert (made.stop.kind, made.progress.accepted) == ("complete", 5)
    for _ in range(2):
        run = Run.read_only(tmp_path, "r")
        item = list(run.ledger.items())[1]
        run.close()
        assert (item.status, item.reason) == ("rejected", "internal")
        assert "the result cannot be written: " in (item.detail or "")
        assert recheck_run(tmp_path, "r", print)[1]["accepted"] == (5, 5)


def test_the_number_of_an_item_fits_into_64_bits() -> None:
    """A request with a longer `seed` cannot be written."""
    settings = [f"seed={1 << 62}", "seeds.packs=[customer_service]", "llm.model=gpt-5-mini"]
    conf = load_config(AmplifyConfig, "amplify/default", settings)
    simulator = Simulator(conf, load_seeds(conf), writers=[Writer("m", "a", True)])
    assert 0 <= simulator.number(3) < 1 << 63
