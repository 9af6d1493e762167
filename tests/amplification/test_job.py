"""The job against an endpoint that fails: exact counts, stated stops, no surplus bought, two draws two replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simia.amplification.model_mix import Writer, read_writers
from simia.amplification.recheck import recheck_items
from simia.amplification.session import Amplified, load_seeds, resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.config import load_config
from simia.errors import Code, UserError
from simia.jobs import Item, Run
from simia.llm.types import LLMFault, Reply, Request
from tests.fake_endpoint import FakeEndpoint


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:trajectory")
    yield server
    server.stop()


def config(endpoint: FakeEndpoint, *settings: str) -> AmplifyConfig:
    endpoint.plan()
    return load_config(
        AmplifyConfig,
        "amplify/default",
        [
            f"llm.base_url={endpoint.url}",
            "llm.model=fake",
            "llm.structured=true",
            "seeds.packs=[customer_service]",
            "seeds.limit=3",
            "limits.backoff=0.01",
            *settings,
        ],
    )


async def start(conf: AmplifyConfig, runs: Path) -> Amplified:
    return await start_amplification(conf, runs=runs, name="r", say=lambda _: None)


async def test_exactly_n_and_every_rejection_has_a_reason(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=60"), tmp_path)
    assert made.stop.kind == "complete"
    kept = list(made.trajectories())
    assert len(kept) == len({t.id for t in kept}) == 60
    assert set(made.progress.rejected) >= {"ungrounded_id", "bad_arguments", "unknown_tool", "bad_ending"}
    run = Run.read_only(tmp_path, "r")
    counts = run.ledger.counts()
    assert counts["passed"] == 60, "nothing was bought that could not be used"
    assert sum(counts.values()) == endpoint.log()["count"]
    assert sum(run.ledger.reasons().values()) == counts["rejected"]
    run.close()
    first = kept[0]
    assert first.provenance.seed_ids == [f"cs-{int((first.provenance.item or '')[1:]) % 3 + 1:03}"], "seeds take turns"
    assert first.provenance.prompts
    assert first.provenance.reply_keys
    assert first.usage.prompt > 0
    assert (first.system or "").startswith("# Pebbleford")


async def test_faults_of_the_endpoint_lose_nothing(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=60")
    endpoint.plan(rate=0.35, mix=["500", "429:20ms", "cut", "reset", "garbage"])
    made = await start(conf, tmp_path / "a")
    assert (made.stop.kind, made.progress.accepted) == ("complete", 60)
    endpoint.plan()
    calm = await start(conf, tmp_path / "b")
    assert [t.messages for t in made.trajectories()] == [t.messages for t in calm.trajectories()]


async def test_items_that_fail_again_and_again_do_not_hold_up_the_rest(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=40", "limits.retries=0", "stop.outage=40", "stop.item_tries=2")
    endpoint.plan(rate=0.45, mix=["500"])
    made = await start(conf, tmp_path)
    assert (made.stop.kind, made.progress.accepted) == ("complete", 40)
    assert made.progress.failed > 0, "some were given up, and passed over"
    run = Run.read_only(tmp_path, "r")
    assert run.ledger.accepted_count() == 40
    run.close()


async def test_a_budget_stops_cleanly_and_goes_on_when_raised(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=30", "limits.max_requests=12"), tmp_path)
    assert made.stop.kind == "budget"
    assert "raise max_requests" in made.stop.detail
    assert endpoint.log()["count"] == 12
    more = await resume_amplification("r", runs=tmp_path, changes={"limits.max_requests": None}, say=lambda _: None)
    assert (more.stop.kind, more.progress.accepted) == ("complete", 30)
    prompts = [str(r["body"]["messages"]) for r in endpoint.requests]
    assert len(prompts) == len(set(prompts)), "nothing was asked twice"


async def test_a_raised_n_goes_on(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    await start(config(endpoint, "n=5"), tmp_path)
    more = await resume_amplification("r", runs=tmp_path, changes={"n": 9}, say=lambda _: None)
    assert len(list(more.trajectories())) == 9


async def test_an_n_below_the_accepted_is_refused(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    await start(config(endpoint, "n=5"), tmp_path)
    with pytest.raises(UserError, match=r"^--n 4 is below the 5 accepted; "):
        await resume_amplification("r", runs=tmp_path, changes={"n": 4}, say=lambda _: None)
    again = await resume_amplification("r", runs=tmp_path, changes={"n": 5}, say=lambda _: None)
    assert (again.stop.kind, len(list(again.trajectories()))) == ("complete", 5)


async def test_an_outage_stops_and_the_run_goes_on_later(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=20", "limits.retries=0", "stop.outage=5", "limits.concurrency=4")
    endpoint.plan(rate=1.0, mix=["503"])
    made = await start(conf, tmp_path)
    assert made.stop.kind == "endpoint"
    assert "server_error" in made.stop.detail
    endpoint.plan()
    more = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    assert (more.stop.kind, more.progress.accepted) == ("complete", 20)


IMPATIENT = [
    "limits.retries=1",
    "limits.backoff=0.01",
    "limits.backoff_max=0.02",
    "limits.concurrency=4",
    "stop.outage=4",
]


@pytest.mark.parametrize("outage", [60, 0])
async def test_a_short_outage_is_waited_out(endpoint: FakeEndpoint, tmp_path: Path, outage: float) -> None:
    """Of 503s, far beyond the retries of each call and the eight failures that stop a run."""
    conf = config(endpoint, "n=20", f"limits.outage={outage}", *IMPATIENT)
    endpoint.plan(script=["ok"] * 6 + ["503"] * 60)
    made = await start(conf, tmp_path)
    if outage:
        assert (made.stop.kind, made.progress.accepted, made.progress.failed) == ("complete", 20, 0)
        assert endpoint.log()["count"] >= 20 + 60
    else:
        assert made.stop.kind == "endpoint"
        assert endpoint.log()["count"] < 6 + 60


async def test_a_long_outage_stops(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=20", "limits.outage=0.5", *IMPATIENT)
    endpoint.plan(script=["ok"] * 6, rate=1.0, mix=["503"])
    made = await start(conf, tmp_path)
    assert made.stop.kind == "endpoint"


async def test_one_prompt_that_the_endpoint_fails_on_is_not_waited_for(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=20", *IMPATIENT, "limits.concurrency=1", "limits.start=1")
    endpoint.plan(script=["ok"] * 6, rate=1.0, mix=["500"])
    made = await start(conf, tmp_path)
    assert made.stop.kind == "endpoint", "500 may come from the prompt"


async def test_a_refused_key_stops_at_once(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=20", "limits.concurrency=2")
    endpoint.plan(rate=1.0, mix=["401"])
    made = await start(conf, tmp_path)
    assert made.stop.kind == "endpoint"
    assert endpoint.log()["count"] <= 4


async def test_a_single_refused_prompt_holds_up_neither_the_run_nor_a_resume(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    """A router answers 403 for a prompt that its moderation flags, a tunnel 404 for a moment."""
    conf = config(endpoint, "n=10", "limits.concurrency=1", "limits.start=1")
    endpoint.plan(script=["ok", "ok", "ok", "403", "ok", "404"])
    made = await start(conf, tmp_path)
    assert (made.stop.kind, made.progress.accepted, made.progress.failed) == ("complete", 10, 2)
    endpoint.plan(script=["403", "403"])
    more = await resume_amplification("r", runs=tmp_path, changes={"n": 12}, say=lambda _: None)
    assert (more.stop.kind, more.progress.accepted, more.progress.failed) == ("complete", 12, 2)
    endpoint.plan()
    last = await resume_amplification("r", runs=tmp_path, changes={"n": 16}, say=lambda _: None)
    assert (last.stop.kind, last.progress.accepted, last.progress.failed) == ("complete", 16, 0), "asked once more"


async def test_a_key_that_is_refused_later_stops_too(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=40", "limits.concurrency=2", "stop.outage=6")
    endpoint.plan(script=["ok"] * 5, rate=1.0, mix=["401"])
    made = await start(conf, tmp_path)
    assert made.stop.kind == "endpoint"
    assert "auth" in made.stop.detail
    assert endpoint.log()["count"] <= 5 + 6 + 2 + 2  # two in flight, and two launched before the stop was noticed
    endpoint.plan()
    more = await resume_amplification("r", runs=tmp_path, say=lambda _: None)
    assert (more.stop.kind, more.progress.accepted, more.progress.failed) == ("complete", 40, 0)


async def test_a_reply_whose_rest_does_not_fit_the_context_is_a_cut_reply(endpoint: FakeEndpoint) -> None:
    """Not a failure of the endpoint: several in a row would stop the run."""
    conf = config(endpoint)
    simulator = Simulator(conf, load_seeds(conf), writers=[Writer("fake", "a", True)])

    async def ask(item: Item, request: Request, draw: str) -> tuple[Reply, str]:
        if draw.endswith(".1"):
            raise LLMFault(Code.BAD_REQUEST, "HTTP 400: the maximum context length is 8192 tokens", retry=False)
        return Reply(text='{"messages": [{"role": "user", "content": "Where', finish="length"), draw

    result = await simulator.produce(simulator.item(0), ask)
    assert result.issues[0].code is Code.TRUNCATED


async def test_seeds_that_yield_nothing_are_a_stated_stop(tmp_path: Path) -> None:
    server = FakeEndpoint()  # echoes the prompt: never a trajectory
    try:
        conf = config(server, "n=50", "stop.window=20")
        made = await start(conf, tmp_path)
        assert made.stop.kind == "yield"
        assert "only 0 of the latest 20" in made.stop.detail
    finally:
        server.stop()


async def test_a_stop_by_attempts_names_the_main_reason(tmp_path: Path) -> None:
    server = FakeEndpoint()  # echoes the prompt: never a trajectory
    try:
        made = await start(config(server, "n=50", "stop.attempts=10"), tmp_path)
        ((reason, count),) = made.progress.rejected.most_common(1)
        assert (made.stop.kind, count) == ("attempts", 10)
        assert f"10 items tried and 0 accepted, mostly {reason} (" in made.stop.detail
    finally:
        server.stop()


async def test_attempts_are_a_stated_stop(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=30", "stop.attempts=10"), tmp_path)
    assert made.stop.kind == "attempts"
    assert 0 < made.progress.accepted < 10


async def test_a_resume_refuses_another_identity(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    await start(config(endpoint, "n=3"), tmp_path)
    with pytest.raises(UserError, match=r"a different sampling.temperature: 1.0 → 0.2"):
        await resume_amplification("r", runs=tmp_path, changes={"sampling.temperature": 0.2}, say=lambda _: None)


async def test_recheck_derives_the_same_and_sees_a_changed_check(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    conf = config(endpoint, "n=60")
    await start(conf, tmp_path)
    asked = endpoint.log()["count"]
    run = Run.open(tmp_path, "r")
    facts = run.ledger.meta("facts")
    seeds = load_seeds(conf, None)
    same = recheck_items(run, conf, seeds, read_writers(facts))
    assert all(before == after for before, after in same.values()), same
    lax = conf.model_copy(
        update={
            "checks": conf.checks.model_copy(
                update={"identifiers": False, "result_entities": False, "written_values": False}
            )
        }
    )
    looser = recheck_items(run, lax, seeds, read_writers(facts))
    assert looser["passed"][1] > looser["passed"][0]
    assert looser["accepted"][1] == 60
    run.close()
    assert endpoint.log()["count"] == asked


async def test_two_passes_over_one_seed_store_two_replies(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    made = await start(config(endpoint, "n=4", "seeds.limit=1"), tmp_path)
    run = Run.read_only(made.folder.parent, "r")
    rows = list(run.ledger.replies())
    run.close()
    assert len({row["key"] for row in rows}) == len(rows) >= 4
    assert len({row["draw"] for row in rows}) == len(rows)
