"""Read in parts, in one process or several, a run has the same figures; counters stay small and keep what is frequent."""

from __future__ import annotations

import subprocess
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from simia.jobs import Run
from simia.llm.types import Reply, Request
from simia.report import result_counts
from simia.report.collect_statistics import collect_statistics, strip_values
from simia.report.report_rows import describe_cost_per_accepted
from simia.report.result_counts import LossyCounter, count_results, count_results_in_parallel
from simia.report.run_statistics import Histogram, RejectionReason
from simia.trajectory import Usage


def count(run: Run, processes: int) -> dict[str, Any]:
    counts = count_results_in_parallel(run.ledger.db.ledger, run.folder, processes)
    found = {each.name: getattr(counts, each.name) for each in fields(counts)}
    return {name: each.counts if isinstance(each, LossyCounter) else each for name, each in found.items()}


async def test_parts_add_up_to_the_whole(run: Run) -> None:
    whole = count(run, 1)
    assert whole["figures"] == collect_statistics(run).results.figures
    assert whole["figures"]["compared"] == 3
    assert count(run, 3) == whole


async def test_a_part_whose_process_died_is_read_here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    def died(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        started.append(command)
        return real(["false"], **options)

    real = subprocess.Popen
    whole = count(run, 1)
    monkeypatch.setattr(result_counts.subprocess, "Popen", died)
    assert count(run, 3) == whole
    assert len(started) == 2


async def test_what_is_drawn_says_of_how_many_it_is(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = collect_statistics(run)
    assert (facts.results.figures["compared"], facts.accepted) == (3, 3)
    monkeypatch.setattr(result_counts.zlib, "crc32", lambda _: 1)
    monkeypatch.setattr(result_counts, "COMPARED", 1)
    counts = count_results(run.ledger.db.ledger, 0, 9)
    assert counts.figures["compared"] == 0
    assert counts.messages.total() == 3


async def test_yield_over_time_spending_and_prompts(run: Run) -> None:
    facts = collect_statistics(run)
    assert [(s.accepted, s.refused, s.repeats, s.fresh) for s in facts.timeline][2:5] == [
        (1, 0, 0, 1),
        (0, 1, 0, 0),
        (0, 1, 1, 0),
    ]
    assert {fate: (spent.replies, spent.cost, spent.priced) for fate, spent in facts.spent.items()} == {
        "accepted": (3, 0.75, 3),
        "rejected": (3, 0.5, 2),
    }
    assert (
        describe_cost_per_accepted(facts)
        == "200 tokens in, 20 out for each accepted; 50% of the tokens written are in none"
    )
    (prompt,) = facts.prefixes
    assert prompt.static == len("user\ni")
    assert prompt.served == pytest.approx(0.4)
    assert facts.endpoint.faults == {"timeout": 1}
    assert facts.endpoint.again == 1
    assert facts.by_licence == {"CC0-1.0": 3}
    assert {reason.code: reason.examples for reason in facts.reasons}["unparsable"] == ["i5"]


async def test_the_price_of_an_accepted_trajectory_includes_the_judge_of_acceptance(run: Run) -> None:
    request = Request(messages=[{"role": "user", "content": "judge"}])
    for item in ("i0", "i1", "i2"):
        await run.ledger.asked(f"judge-{item}", f"{item}.judge", "judge", request)
        usage = Usage(prompt=300, completion=20, cost=0.5)
        await run.ledger.answered(f"judge-{item}", f"{item}.judge", Reply(text="pass", usage=usage))
    run.ledger.flush()
    told = describe_cost_per_accepted(collect_statistics(run))
    assert told == "500 tokens in, 40 out for each accepted; 75% of the tokens written are in none"


def test_a_bounded_counter_keeps_what_is_frequent() -> None:
    counter = LossyCounter(100)
    for i in range(10_000):
        counter.update([f"once {i}", "often", "half" if i % 2 else "often"])
    assert list(counter.top(2)) == ["often", "half"]
    assert len(counter.counts) <= 100
    other = LossyCounter(100)
    other.update(["half"] * 100_000)
    counter.update(other)
    assert next(iter(counter.top(1))) == "half"


def test_a_histogram_counts_every_value_and_is_not_stretched_by_one() -> None:
    values = Counter(dict.fromkeys(range(100), 10)) + Counter([1_000_000])
    found = Histogram.of(values, bins=10)
    assert sum(found.counts) == values.total()
    assert found.most == 1_000_000
    assert found.low + found.width * len(found.counts) < 200
    assert (found.median, found.p95) == (50, 95)
    assert Histogram.of(Counter()).counts == []


def test_findings_that_differ_in_values_are_one() -> None:
    left = strip_values("ungrounded_id at messages[3].calls[0]: order_id: 'ORD-1' was not said before", "ungrounded_id")
    right = strip_values(
        "ungrounded_id at messages[5].calls[2]: order_id: 'ORD-77' was not said before", "ungrounded_id"
    )
    assert left == right == "order_id: … was not said before"
    assert strip_values("", "leak") == "no detail"
    language = "language at messages[0]: the user writes 'en', the seed ja"
    assert strip_values(language, "language") == "the user writes 'en', the seed ja"


def test_a_value_that_all_findings_have_is_shown() -> None:
    reason = RejectionReason("ungrounded_id")
    for value in ("ORD-1", "ORD-1"):
        reason.add("order_id: … was not said before", f"order_id: '{value}' was not said before")
    assert reason.details == {"order_id: 'ORD-1' was not said before": 2}
    reason.add("order_id: … was not said before", "order_id: 'ORD-2' was not said before")
    reason.add("order_id: … was not said before", "order_id: 'ORD-2' was not said before")
    assert reason.details == {"order_id: … was not said before": 4}
    assert reason.count == 4


@pytest.mark.attack("modules of our names in the working directory")
async def test_a_part_imports_nothing_from_the_working_directory(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orjson.py").write_text("open('MARK', 'w')\n")
    monkeypatch.chdir(tmp_path)
    count(run, 2)
    assert not (tmp_path / "MARK").exists()
