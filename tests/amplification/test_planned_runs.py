"""Whole runs with plans: what is planned, checked, balanced and reported, and what becomes of runs that were made before plans."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from simia.amplification.model_mix import Writer, read_writers
from simia.amplification.recheck import recheck_items
from simia.amplification.session import load_seeds, resume_amplification, start_amplification
from simia.amplification.settings import AmplifyConfig
from simia.amplification.simulate import Simulator
from simia.amplification.tool_counts import ToolCounts
from simia.config import load_config
from simia.errors import UserError
from simia.jobs import Item, Run
from simia.report.collect_statistics import collect_statistics
from simia.report.html_page import write_html
from simia.report.terminal_report import print_report
from tests.fake_endpoint import FakeEndpoint


@pytest.fixture(scope="module")
def endpoint() -> Any:
    server = FakeEndpoint("--respond", "tests.replies:trajectory")
    yield server
    server.stop()


def config(endpoint: FakeEndpoint, *settings: str) -> AmplifyConfig:
    endpoint.plan()
    own = ["llm.model=fake", "llm.structured=true", "seeds.packs=[customer_service]", "limits.backoff=0.01"]
    own += ["prompt.scenarios=true", "select.near=null"]
    return load_config(AmplifyConfig, "amplify/default", [f"llm.base_url={endpoint.url}", *own, *settings])


async def test_what_does_not_follow_its_plan_is_rejected_and_the_report_compares(
    endpoint: FakeEndpoint, tmp_path: Path
) -> None:
    conf = config(endpoint, "n=20", "stop.attempts=150", "stop.min_yield=0")
    await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    items = list(run.ledger.items())
    reasons = run.ledger.reasons()
    statistics = collect_statistics(run)
    console = Console(width=100, record=True, file=io.StringIO())
    print_report(statistics, console)
    write_html(run, statistics, tmp_path / "page.html")
    run.close()
    assert reasons.get("goal_missed", 0) > 0, (reasons, [item.detail for item in items][:5])
    assert statistics.accepted > 0
    rejected = next(item for item in items if item.reason == "goal_missed")
    assert "was planned" in (rejected.detail or "")
    rows = {share.name: share for share in statistics.plans}
    assert rows["1 goal"].wanted == pytest.approx(0.6)
    assert rows["1 goal"].planned == sum(len(item.spec["plan"]["goals"]) == 1 for item in items)
    assert rows["1 goal"].of_accepted == statistics.accepted
    told = console.export_text()
    assert re.search(r"1 goal +60% +\d+% \(\d+\)", told)
    assert "tool error with recovery" in (tmp_path / "page.html").read_text(encoding="utf-8")


async def test_a_batch_is_balanced_as_a_live_run_is(endpoint: FakeEndpoint) -> None:
    """Nothing is accepted while a batch is planned."""
    conf = config(endpoint)
    seeds = load_seeds(conf)
    from simia.amplification.simulate import read_plan
    from simia.amplification.tool_counts import PlanCounts

    simulator = Simulator(conf, seeds, writers=[Writer("fake", "fake", structured=True)])

    def plan(*, live: bool) -> Counter[str]:
        counts, used = PlanCounts(used=True), Counter[str]()
        for ord_ in range(1500):
            found = read_plan(simulator.item(ord_, counts.counts(ord_)))
            assert found is not None
            counts.note_plan(ord_, found.calls)
            if live:
                counts.note(found.calls)
                counts.decided(ord_)
            used.update(goal.tool for goal in found.goals)
        return used

    batch, live = plan(live=False), plan(live=True)
    blind = Counter(read_plan(simulator.item(ord_, ToolCounts())).goals[0].tool for ord_ in range(1500))  # type: ignore[union-attr]
    assert spread(batch) < 1.5 * spread(live)
    assert len(batch) == len(live) == 20
    assert min(batch.values()) >= 10
    assert blind


def spread(used: Counter[str]) -> float:
    """The most frequent quarter of the tools beside the least frequent quarter."""
    counts = sorted(used.values())
    part = len(counts) // 4
    return sum(counts[-part:]) / sum(counts[:part])


async def test_an_unfinished_run_does_not_report_what_is_not_decided(endpoint: FakeEndpoint, tmp_path: Path) -> None:
    from simia.report.report_rows import list_timeline_rows

    conf = config(endpoint, "n=60", "limits.max_requests=30", "checks.goals=false")
    await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.read_only(tmp_path, "r")
    statistics = collect_statistics(run)
    run.close()
    assert any(not part.decided for part in statistics.timeline), "some items wait for their replies"
    rows = dict(list_timeline_rows(statistics))
    assert not rows["accepted"].endswith(" 0% last")


async def test_a_run_of_scenarios_is_rechecked_and_not_resumed(
    endpoint: FakeEndpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was made before plans: its items hold a scenario, its prompt files were others."""

    def item(self: Simulator, ord_: int, counts: ToolCounts = ToolCounts()) -> Item:
        made = plain_item(self, ord_, counts)
        made.spec["scenario"] = ["is in a hurry", ["get_order"], "The result is empty."]
        made.spec.pop("plan", None)
        return made

    plain_item = Simulator.item
    conf = config(endpoint, "n=10", "stop.attempts=20", "stop.min_yield=0")
    with monkeypatch.context() as patch:
        patch.setattr(Simulator, "item", item)
        await start_amplification(conf, runs=tmp_path, name="r", say=lambda _: None)
    run = Run.open(tmp_path, "r")
    simulator = Simulator(conf, load_seeds(conf), writers=[Writer("fake", "fake", structured=True)])
    first = next(iter(run.ledger.items()))
    asked = simulator.prompt(first).messages[-1]["content"]
    before = run.ledger.accepted_count()
    assert before > 0
    facts = run.ledger.meta("facts")
    facts["prompts"]["amplify/request.j2"] = "0123456789abcdef"
    run.ledger.set_meta("facts", facts, twice=True)
    monkeypatch.setattr("simia.amplification.simulate.render_scenario", lambda spec: "Other words.")
    figures = recheck_items(run, conf, load_seeds(conf), read_writers(run.ledger.meta("facts")))
    passed = [t for t in run.ledger.accepted() if t]
    run.close()
    assert asked.endswith("The user is in a hurry. Calls, in whatever order fits: get_order. The result is empty.")
    assert figures["accepted"] == (before, before), "found by the item, since the prompt is another"
    assert passed
    count = endpoint.log()["count"]
    with pytest.raises(
        UserError,
        match=r"another version of the prompt file amplify/request\.j2.*restore that file.*or start a new run",
    ):
        await resume_amplification("r", runs=tmp_path, changes={"n": 12}, say=lambda _: None)
    assert endpoint.log()["count"] == count, "nothing is paid twice"
