"""The price of a run before it: every kind of request, at the price of its own model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simia import formats
from simia.amplification.cost_estimate import RequestGroup, describe_cost, estimate_cost
from simia.amplification.model_mix import list_writers
from simia.amplification.seeds import take_seeds
from simia.amplification.session import open_models, open_preview
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.cli.amplify import resolve_amplify_config, show_dry_run
from simia.config import load_config
from simia.llm.prices import Price, look_up_price
from simia.pack import Pack
from simia.quality.fast_tokens import estimate_text_tokens
from simia.trajectory import Trajectory

FLAT = Price(input=1, cached=0.5, output=10)


def estimate(*settings: str, config: str = "amplify/default") -> list[RequestGroup]:
    resolved = load_config(AmplifyConfig, config, [*settings, "seeds.packs=[customer_service]"])
    simulator, seeds = open_preview(resolved)
    return estimate_cost(resolved, seeds, simulator)


def test_one_model_is_one_group_of_n_requests() -> None:
    (group,) = estimate("n=1000", "llm.model=o4-mini")
    assert (group.model, group.requests, group.price) == ("o4-mini", 1000, look_up_price("o4-mini"))
    config = load_config(AmplifyConfig, "amplify/default", ["seeds.packs=[customer_service]", "seeds.limit=1"])
    simulator, seeds = open_preview(config)
    (one,) = estimate_cost(config, seeds, simulator)
    messages = simulator.prompt(simulator.item(0)).messages
    assert one.prompt == estimate_text_tokens("\n".join(message["content"] for message in messages))
    assert 0 < one.static < one.prompt


def test_the_price_of_a_group_is_arithmetic() -> None:
    group = RequestGroup("trajectories", "m", requests=1000, prompt=2000, reply=300, static=1500, price=FLAT)
    assert group.cost(cached=False) == pytest.approx(1000 * (2000 * 1 + 300 * 10) / 1e6)
    assert group.cost(cached=True) == pytest.approx(1000 * (500 * 1 + 1500 * 0.5 + 300 * 10) / 1e6)
    assert describe_cost([group]) == [
        "price: about $4.25 to $5.00, depending on the prefix cache; reasoning tokens and rejected items not counted"
    ]


def test_a_mix_is_priced_by_its_weights() -> None:
    small, large = estimate("n=900", "llm.model=gpt-5-mini", "mix=[{llm: {model: gpt-5}, weight: 2}]")
    assert [(each.model, each.requests) for each in (small, large)] == [("gpt-5-mini", 300), ("gpt-5", 600)]
    assert (small.price, large.price) == (look_up_price("gpt-5-mini"), look_up_price("gpt-5"))
    assert small.prompt == large.prompt
    lines = describe_cost([small, large])
    assert lines[1].startswith("  trajectories by gpt-5: 600 requests of about ")
    total = (small.cost(cached=False) or 0) + (large.cost(cached=False) or 0)
    assert f"to ${total:,.2f}, depending" in lines[-1]


def test_the_prefilter_is_counted() -> None:
    judge = "prefilter.llm={kind: openai, model: gpt-5}"
    _, group = estimate("prefilter.enabled=true", "prefilter.votes=3", judge)
    assert (group.what, group.model, group.requests) == ("pre-filter of the seeds", "gpt-5", 3 * 38)
    assert group.prompt > group.static > 0
    assert group.reply == 150, "three dimensions"


def test_an_unknown_price_is_named_and_the_rest_is_summed() -> None:
    groups = estimate("n=10", "llm.model=o4-mini", "mix=[{llm: {model: mystery}}]")
    assert describe_cost(groups)[-1].startswith("price: unknown for mystery; set llm.price; the rest: about $0.")
    assert describe_cost(estimate("llm.model=mystery")) == ["price: unknown for mystery; set llm.price"]


def test_a_batch_is_half_the_price_of_the_configs_model() -> None:
    (live,), (batch,) = (
        estimate("llm.model=o4-mini"),
        estimate("llm.model=o4-mini", "llm.kind=batch", "llm.folder=b"),
    )
    assert batch.model == "o4-mini"
    assert live.price is not None
    assert batch.price is not None
    assert batch.price.input == live.price.input / 2


def test_a_dry_run_without_a_key_prices_the_named_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    show_dry_run(resolve_amplify_config(None, ["office"], 1000, ["llm.model=gpt-5-mini"]))
    said = capsys.readouterr().err
    assert "42 seeds of 42 read" in said, "not the short ones of the quickstart"
    assert "price: about $" in said
    assert "$0.00" not in said


def test_a_seed_counts_the_same_in_every_form() -> None:
    """Rows of columns lack their nulls, and keep what they were; that is no part of a reply."""
    config = load_config(AmplifyConfig, "amplify/default", ["llm.model=o4-mini"])
    rows = list(formats.write(Pack.load("customer_service").seeds[:5], "openai"))
    replies = set()
    for from_columns in (False, True):
        seeds = take_seeds(list(trajectories(rows, from_columns)), config.seeds, config.checks)
        simulator = Simulator(config, seeds, writers=list_writers(open_models(config, say=print), config.mix))
        replies.add(estimate_cost(config, seeds, simulator)[0].reply)
    assert len(replies) == 1


def trajectories(rows: list[dict[str, object]], from_columns: bool) -> Iterator[Trajectory]:
    for row in formats.read_rows(rows, from_columns=from_columns):
        assert isinstance(row, Trajectory)
        yield row
