"""The stages around the simulation, in whole runs: what is selected, planned, continued, judged beforehand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import orjson
import pytest

from simia.amplification.model_mix import Writer
from simia.amplification.recheck import recheck_items
from simia.amplification.seeds import keep_judged_seeds
from simia.amplification.session import Amplified, load_seeds, resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Run
from tests.fake_endpoint import FakeEndpoint
from tests.replies import trajectory


def staged(body: dict[str, Any]) -> str | dict[str, Any]:
    """Judges, continuations and trajectories, made out by what the prompt says."""
    messages = body["messages"]
    said = json.dumps(messages)
    if "cut off at its length limit" in messages[-1]["content"]:
        whole = trajectory({"messages": messages[:-2]})
        return whole[len(messages[-2]["content"]) - 30 :]  # with the last words once more, as models do
    if "dimension" in json.dumps(body.get("response_format") or {}) or "completeness" in said:
        fine = {"pass": True, "why": "fine"}
        logic = {"pass": "much store credit do I have" not in said, "why": "it contradicts itself"}
        return json.dumps({"completeness": fine, "logic": logic, "format": fine})
    text = trajectory(body)
    if text.startswith("{") and len(said) % 3 == 0:  # some are cut at their limit
        return {"content": text[: len(text) * 2 // 3], "finish_reason": "length"}
    return text


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.amplification.test_stages:staged")
    yield server
    server.stop()


def config(endpoint: FakeEndpoint, *settings: str) -> AmplifyConfig:
    endpoint.plan()
    own = ["llm.model=fake", "llm.structured=true", "seeds.packs=[customer_service]", "limits.backoff=0.01"]
    return load_config(AmplifyConfig, "amplify/default", [f"llm.base_url={endpoint.url}", *own, *settings])


async def start(conf: AmplifyConfig, runs: Path, name: str = "r") -> Amplified:
    return await start_amplification(conf, runs=runs, name=name, say=lambda _: None)


def reasons(runs: Path) -> dict[str, int]:
    run = Run.read_only(runs, "r")
    found = run.ledger.reasons()
    run.close()
    return found


async def test_near_copies_are_refused_in_order_and_a_resume_agrees(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    """All replies are short forms of one story: at a low threshold few are left."""
    settings = ["n=12", "stop.attempts=60", "stop.min_yield=0", "select.near=0.4", "limits.max_requests=30"]
    first = await start(config(endpoint, *settings), tmp_path)
    assert first.stop.kind == "budget"
    await resume_amplification("r", runs=tmp_path, changes={"limits.max_requests": None}, say=lambda _: None)
    assert reasons(tmp_path)["near_duplicate"] > 0
    calm = await start(config(endpoint, *settings[:-1]), tmp_path / "calm")
    assert [t.messages for t in first.trajectories(partial=True)] == [
        t.messages for t in calm.trajectories(partial=True)
    ]
    run = Run.open(tmp_path, "r")
    conf = config(endpoint, *settings)
    before = run.ledger.accepted_count()
    figures = recheck_items(run, conf, load_seeds(conf, None), [Writer("fake", "127.0.0.1", True)])
    detail = next(item.detail for item in run.ledger.items() if item.reason == "near_duplicate")
    run.close()
    assert figures["accepted"] == (before, before)
    assert "nearly the same as item" in (detail or "")


async def test_exact_copies_only_where_near_is_off(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=12", "select.near=null"), tmp_path)
    assert made.stop.kind == "complete"
    assert "near_duplicate" not in reasons(tmp_path)


async def test_what_repeats_a_named_benchmark_is_refused(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    clean = await start(config(endpoint, "n=6"), tmp_path / "clean")
    stolen = next(clean.trajectories())
    task = {"id": "t-7", "instruction": stolen.messages[0].text + " " + stolen.messages[-1].text}
    (tmp_path / "tasks.jsonl").write_bytes(orjson.dumps(task))
    named = f"select.benchmarks={{retail: ['{tmp_path / 'tasks.jsonl'}']}}"
    made = await start(config(endpoint, "n=6", named, "select.ngram=4"), tmp_path)
    assert stolen.messages not in [t.messages for t in made.trajectories()]
    run = Run.read_only(tmp_path, "r")
    found = [item.detail or "" for item in run.ledger.items() if item.reason == "contaminated"]
    run.close()
    assert found
    assert "retail, task" in found[0]
    assert "t-7" in found[0]
    with pytest.raises(UserError, match="benchmark gone"):
        await start(config(endpoint, "n=1", f"select.benchmarks={{gone: ['{tmp_path / 'nope'}']}}"), tmp_path, "s")


async def test_scenarios_are_planned_from_what_was_accepted_and_a_resume_plans_the_same(
    endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simia.amplification.tool_counts.STRETCH", 10)
    settings = ["n=50", "prompt.scenarios=true", "select.near=null", "limits.concurrency=8"]
    calm = await start(config(endpoint, *settings), tmp_path / "calm")
    cut = await start(config(endpoint, *settings, "limits.max_requests=23"), tmp_path)
    assert cut.stop.kind == "budget"
    await resume_amplification("r", runs=tmp_path, changes={"limits.max_requests": None}, say=lambda _: None)

    def plans(runs: Path) -> list[Any]:
        run = Run.read_only(runs, "r")
        found = [item.spec["plan"] for item in run.ledger.items()]
        run.close()
        return found

    one, other = plans(tmp_path / "calm"), plans(tmp_path)
    both = min(len(one), len(other))
    assert one[:both] == other[:both]
    assert [t.messages for t in calm.trajectories()] == [t.messages for t in cut.trajectories()]
    assert len({plan["persona"] for plan in one}) > 20
    asked = endpoint.requests[0]["body"]["messages"][-1]["content"]
    assert "It follows this plan:" in asked
    assert "The user " in asked


async def test_a_cut_reply_is_continued_once_and_counts_its_tokens(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=60", "seeds.limit=4", "select.near=null"), tmp_path)
    run = Run.read_only(tmp_path, "r")
    keys = {item.id: run.ledger.reply_keys(item.id) for item in run.ledger.items()}
    twice = {t.provenance.item: t for t in made.trajectories() if len(t.provenance.reply_keys) == 2}
    assert twice, "some were cut, and are whole now"
    for item, t in twice.items():
        assert t.provenance.reply_keys == keys[item or ""]
        parts = [run.ledger.recall(key) for key in t.provenance.reply_keys]
        assert t.usage.completion == sum(part.usage.completion for part in parts if part)
        assert t.end.kind == "terminated"
    run.close()


async def test_a_reply_that_is_cut_twice_is_given_up(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=1", "stop.attempts=8", "seeds.limit=1")
    endpoint.plan(finish="length")
    made = await start(conf, tmp_path)
    assert made.progress.accepted == 0
    run = Run.read_only(tmp_path, "r")
    assert {len(run.ledger.reply_keys(item.id)) for item in run.ledger.items()} == {2}
    run.close()


async def test_seeds_are_judged_once_and_a_resume_keeps_the_same_ones(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    settings = ["n=8", "prefilter.enabled=true", "seeds.limit=6", "limits.max_requests=9"]
    conf = config(endpoint, *settings)
    made = await start(conf, tmp_path)
    assert made.stop.kind == "budget"
    run = Run.read_only(tmp_path, "r")
    verdicts, seeds = run.ledger.meta("prefilter"), run.ledger.meta("seeds")
    assert len(verdicts) == 6
    refused = [name for name, verdict in verdicts.items() if verdict["passed"] is False]
    assert refused
    assert seeds["refused"][0]["issues"] == ["judged_bad at logic: it contradicts itself"]
    assert {seed["id"] for seed in seeds["used"]} == verdicts.keys() - set(refused)
    assert len(keep_judged_seeds(run, load_seeds(conf, None)).order) == 6 - len(refused)
    run.close()
    before = endpoint.log()["count"]
    more = await resume_amplification("r", runs=tmp_path, changes={"limits.max_requests": None}, say=lambda _: None)
    assert more.stop.kind == "complete"
    asked = [json.dumps(request["body"]["messages"]) for request in endpoint.requests[before:]]
    assert not any("completeness" in prompt for prompt in asked), "a verdict is paid once"
    assert not {t.provenance.seed_ids[0] for t in more.trajectories()} & {
        seed.task_id for seed in load_seeds(conf, None).order if seed.id in refused
    }


async def test_a_judge_that_cannot_be_reached_is_one_line(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=3", "prefilter.enabled=true", "seeds.limit=2", "limits.retries=0")
    endpoint.plan(rate=1.0, mix=["401"])
    with pytest.raises(UserError, match="gave no verdict"):
        await start(conf, tmp_path)
