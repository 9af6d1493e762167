"""A run that mixes models: each item has one model by its number, with its own price, one budget, and a report by model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simia.amplification.model_mix import Writer, choose_writer, read_writers
from simia.amplification.recheck import recheck_items, recheck_run
from simia.amplification.session import Amplified, load_seeds, resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Run
from simia.report.collect_statistics import collect_statistics
from simia.report.report_rows import list_summary_rows
from tests.fake_endpoint import FakeEndpoint

TWO = "mix=[{llm: {model: large, price: {input: 4, cached: 4, output: 4}}, weight: 3}]"


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:trajectory")
    yield server
    server.stop()


def config(endpoint: FakeEndpoint, *settings: str) -> AmplifyConfig:
    endpoint.plan()
    own = [f"llm.base_url={endpoint.url}", "llm.model=small", "llm.price={input: 1, cached: 1, output: 1}"]
    own += ["llm.structured=true", "seeds.packs=[customer_service]", "seeds.limit=3", "limits.backoff=0.01"]
    return load_config(AmplifyConfig, "amplify/default", [*own, *settings])


def bodies(endpoint: FakeEndpoint) -> list[dict[str, Any]]:
    return [request["body"] for request in endpoint.requests]


async def start(conf: AmplifyConfig, runs: Path, name: str = "r") -> Amplified:
    return await start_amplification(conf, runs=runs, name=name, say=lambda _: None)


def test_an_items_model_follows_from_its_number_and_the_weights() -> None:
    writers = [Writer("a", "x", True), Writer("b", "x", True, 3.0)]
    chosen = [choose_writer(writers, number) for number in range(4000)]
    assert chosen == [choose_writer(writers, number) for number in range(4000)]
    assert sum(chosen) == pytest.approx(3000, rel=0.03)
    assert sum(chosen[::38]) == pytest.approx(0.75 * len(chosen[::38]), rel=0.15), "each seed has both"
    assert {choose_writer(writers[:1], number) for number in range(10)} == {0}


async def test_two_models_share_a_run(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=60", TWO)
    assert conf.mix[0].llm.base_url == conf.llm.base_url  # type: ignore[union-attr]
    made = await start(conf, tmp_path)
    assert made.stop.kind == "complete"
    asked = [request["model"] for request in bodies(endpoint)]
    kept = list(made.trajectories())
    by_model = {name: sum(t.provenance.model == name for t in kept) for name in ("small", "large")}
    assert sum(by_model.values()) == 60
    assert by_model["large"] > by_model["small"] > 0
    run = Run.read_only(tmp_path, "r")
    items = {item.id: item for item, *_ in run.ledger.outcomes()}
    for t in kept:
        item = items[t.provenance.item or ""]
        assert t.provenance.model == ("small", "large")[item.spec["writer"]]
    statistics = collect_statistics(run)
    usage, _ = run.ledger.spent()
    run.close()
    small, large = statistics.models
    assert (small.accepted, large.accepted) == (by_model["small"], by_model["large"])
    assert (small.spent.replies, large.spent.replies) == (asked.count("small"), asked.count("large"))
    assert small.refused + large.refused == statistics.refused > 0
    assert small.spent.cost == pytest.approx(1e-6 * (small.spent.prompt + small.spent.completion))
    assert large.spent.cost == pytest.approx(4e-6 * (large.spent.prompt + large.spent.completion))
    assert small.spent.cost + large.spent.cost == pytest.approx(usage.cost)
    lines = [line for name, line in list_summary_rows(statistics) if name == "model"]
    assert lines[1].startswith(f"large (127.0.0.1): {large.planned} items (75% planned), {large.accepted} accepted")


async def test_one_budget_holds_over_all_models(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=60", TWO, "limits.max_requests=20"), tmp_path)
    assert made.stop.kind == "budget"
    assert endpoint.log()["count"] == 20
    assert len({request["model"] for request in bodies(endpoint)}) == 2
    made = await start(config(endpoint, "n=60", TWO, "limits.max_cost=0.05", "limits.concurrency=4"), tmp_path, "cost")
    assert made.stop.kind == "budget"
    assert made.progress.usage.cost == pytest.approx(0.05, abs=0.02)
    assert made.progress.usage.cost <= 0.05


async def test_a_resumed_mix_accepts_what_an_undisturbed_one_does(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=40", TWO)
    whole = list((await start(conf, tmp_path, "whole")).trajectories())
    await start(config(endpoint, "n=40", TWO, "limits.max_requests=15"), tmp_path)
    limits = {"limits.max_requests": None}
    made = await resume_amplification("r", runs=tmp_path, changes=limits, say=lambda _: None)
    assert made.stop.kind == "complete"
    assert [t.provenance.model for t in made.trajectories()] == [t.provenance.model for t in whole]
    assert [t.messages for t in made.trajectories()] == [t.messages for t in whole]
    _, figures, _ = recheck_run(tmp_path, "r", lambda _: None)
    assert figures["accepted"] == (40, 40)


async def test_a_recheck_reads_the_replies_of_both_models(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=20", TWO)
    await start(conf, tmp_path)
    run = Run.open(tmp_path, "r")
    facts = run.ledger.meta("facts")
    same = recheck_items(run, conf, load_seeds(conf), read_writers(facts))
    run.close()
    assert same["accepted"] == (20, 20)
    assert same["passed"][0] == same["passed"][1]


async def test_weights_and_models_are_the_runs_and_its_limits_are_not(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    await start(config(endpoint, "n=5", TWO), tmp_path)
    heavier = [{"llm": config(endpoint, TWO).mix[0].llm.model_dump(mode="json"), "weight": 9}]
    with pytest.raises(UserError, match="was made with a different mix"):
        await resume_amplification("r", runs=tmp_path, changes={"mix": heavier}, say=lambda _: None)
    entry = config(endpoint, TWO).mix[0].model_dump(mode="json") | {"limits": {"concurrency": 2}}
    entry["llm"]["price"] = {"input": 9, "cached": 9, "output": 9}
    made = await resume_amplification("r", runs=tmp_path, changes={"mix": [entry], "n": 8}, say=lambda _: None)
    assert made.progress.accepted == 8


async def test_one_model_stays_as_it_was(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    await start(config(endpoint, "n=5"), tmp_path)
    run = Run.read_only(tmp_path, "r")
    assert "mix" not in run.ledger.meta("facts")
    assert run.ledger.meta("names").startswith("Faker ")
    assert all("writer" not in item.spec for item, *_ in run.ledger.outcomes())
    assert collect_statistics(run).models == []
    run.close()


async def test_models_that_differ_in_structured_output_get_their_own_form(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    conf = config(endpoint, "n=10", "mix=[{llm: {model: plain, structured: false}}]", "stop.attempts=20")
    await start(conf, tmp_path)
    for request in bodies(endpoint):
        assert ("response_format" in request) == (request["model"] == "small")
        assert ("<tool_call>" in request["messages"][0]["content"]) == (request["model"] == "plain")


async def test_mistakes_are_one_line(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mix\.0\.limits: .*max_cost.* apply to all models together"):
        config(endpoint, "mix=[{llm: {model: x}, limits: {max_cost: 3}}]")
    with pytest.raises(UserError, match=r"mix\.0\.weight"):
        config(endpoint, "mix=[{llm: {model: x}, weight: 0}]")
    unpriced = config(endpoint, "mix=[{llm: {model: unknown}}]", "limits.max_cost=1")
    with pytest.raises(UserError, match="needs a price and none is known for unknown"):
        await start(unpriced, tmp_path)
    with pytest.raises(UserError, match=r"mix: model small at 127\.0\.0\.1 is listed twice"):
        await start(config(endpoint, "mix=[{llm: {model: small}}]"), tmp_path, "twice")
