"""Each figure against the count by hand (see conftest)."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import replace

import pytest
from rich.console import Console

from simia.jobs import Run
from simia.quality.check import estimate_trajectory_tokens
from simia.report.collect_statistics import collect_statistics
from simia.report.report_rows import list_diversity_rows, list_summary_rows
from simia.report.result_counts import read_conversation
from simia.report.run_statistics import Histogram, ToolUsage, explain_reason
from simia.report.terminal_report import print_report
from tests.report.conftest import GIVES_UP, HOSTILE, LIKE_ITS_SEED, PARALLEL, SEEDS, story


async def test_items(run: Run) -> None:
    facts = collect_statistics(run)
    assert (facts.run, facts.n, facts.model, facts.alias) == ("r", 3, "m", "here")
    assert (facts.planned, facts.accepted, facts.surplus, facts.open) == (9, 3, 1, 1)
    assert facts.rejected == {"unknown_tool": 1, "duplicate": 1, "unparsable": 1}
    assert facts.failed == {"timeout": 1}
    assert (facts.refused, facts.decided, facts.rate) == (3, 6, 0.5)
    counted = facts.accepted + facts.surplus + facts.refused + sum(facts.failed.values()) + facts.open
    assert counted == facts.planned == sum(run.ledger.counts().values())
    assert facts.prompts == {"p.j2": "0123456789"}


async def test_money(run: Run) -> None:
    facts = collect_statistics(run)
    assert facts.attempts == {"got": 6, "sent": 3, "failed": 1}
    assert (facts.usage.prompt, facts.usage.completion, facts.usage.cached) == (600, 60, 240)
    assert (facts.usage.cost, facts.unpriced) == (1.25, 1)


async def test_what_may_be_paid_twice(run: Run) -> None:
    """While a process works, only what was asked a second time is known to be lost; a stored reply never is."""
    at_work = collect_statistics(run)
    assert (at_work.working, at_work.possibly_paid_twice) == (True, 1)
    assert at_work.state == "in progress"
    run.close()
    later = Run.read_only(run.folder.parent, "r")
    dead = collect_statistics(later)
    later.close()
    assert (dead.working, dead.possibly_paid_twice) == (False, 2)
    assert dead.state == "complete"


async def test_a_complete_run_that_wants_more_is_not_finished(run: Run) -> None:
    facts = replace(collect_statistics(run), working=False)
    assert replace(facts, n=4).state.startswith("not finished")
    assert replace(facts, stop=None).state.startswith("not finished")
    assert replace(facts, stop="budget", stop_detail="raise it").state == "budget: raise it"


async def test_tools(run: Run) -> None:
    facts = collect_statistics(run)
    assert facts.tools == [
        ToolUsage(pack="shop", name="find_order", accepted=4, rejected=2, seeds=2),
        ToolUsage(pack="shop", name="cancel", accepted=2, rejected=0, seeds=1),
        ToolUsage(pack="shop", name="never"),
    ]
    assert facts.unused == ["never"]
    assert facts.results.invented.counts == {HOSTILE: 1}


async def test_packs_and_seeds(run: Run) -> None:
    facts = collect_statistics(run)
    assert list(facts.packs) == ["shop"]
    assert (facts.packs["shop"].planned, facts.packs["shop"].accepted, facts.packs["shop"].refused) == (9, 3, 3)
    first, second = facts.per_seed
    assert (first.name, first.planned, first.accepted, first.rejected) == ("s1", 6, 2, {"duplicate": 1})
    assert (second.name, second.planned, second.accepted) == ("s2", 3, 1)
    assert second.rejected == {"unknown_tool": 1, "unparsable": 1}
    assert (facts.seeds.read, facts.seeds.used, facts.seeds.refused) == (4, 2, 1)
    assert facts.seeds.reasons == {"bad_arguments": 1}
    assert facts.seeds.examples == ["s3: bad_arguments at messages[1].calls[0]: no order"]


async def test_seeds_of_several_languages_are_counted_apart(run: Run) -> None:
    assert collect_statistics(run).languages == {}
    japanese = story(
        "s2", "注文をキャンセルしていただけますか。", [("find_order", "ORD-200", True)], answer="承知いたしました。"
    )
    run.ledger.set_seeds([(SEEDS[0].id, SEEDS[0]), (SEEDS[1].id, japanese)])
    run.ledger.flush()
    facts = collect_statistics(run)
    assert {name: (of.planned, of.accepted, of.refused) for name, of in facts.languages.items()} == {
        "en": (6, 2, 1),
        "ja": (3, 1, 2),
    }
    out = io.StringIO()
    print_report(facts, Console(file=out, width=100))
    flat = " ".join(out.getvalue().split())
    assert (
        "languages of the seeds language items accepted rate most often rejected for en 6 2 67% duplicate ja 3 1 33%"
        in flat
    )
    assert "requests declined 0% (0%): the last answer refuses what the user asked for" in flat


async def test_lengths(run: Run) -> None:
    facts = collect_statistics(run)
    least, median, most = sorted(estimate_trajectory_tokens(t) for t in (LIKE_ITS_SEED, PARALLEL, GIVES_UP))
    spread = {name: (of.low, of.median, of.most) for name, of in facts.lengths.items()}
    assert spread["messages"] == (4, 6, 7)
    assert spread["calls"] == (1, 2, 3)
    # Two estimates of one thing, of which the check's may round what it joins.
    assert spread["tokens"] == pytest.approx((least, median, most), rel=0.1)


async def test_overlap_with_the_seeds(run: Run) -> None:
    results = collect_statistics(run).results
    same = results.figures
    assert (same["grams"], same["grams_in_seeds"], same["some"], same["half"]) == (11, 3, 1, 1)
    assert (len(results.first_bin), same["same_sequence"]) == (3, 2)
    assert (same["identifiers"], same["identifiers_in_seeds"], same["copiers"]) == (3, 1, 1)


async def test_errors_parallel_calls_and_repairs(run: Run) -> None:
    results = collect_statistics(run).results
    assert (results.figures["with_errors"], results.figures["recovered"]) == (2, 1)
    assert results.figures["parallel"] == 1
    assert results.repairs == {"code_fence": 2, "trailing_comma": 1}
    assert results.figures["repaired"] == 1


async def test_the_figures_are_of_one_moment_and_nothing_is_written(run: Run) -> None:
    before = collect_statistics(run)
    run.ledger.set_meta("stopped", {"kind": "budget", "detail": "x"})  # the read transaction has ended
    after = collect_statistics(run)
    before.stop, before.stop_detail = "budget", "x"
    assert list_summary_rows(before) == list_summary_rows(after)
    assert list_diversity_rows(before) == list_diversity_rows(after)


async def test_a_run_without_seed_facts_has_figures_too(run: Run) -> None:
    run.ledger.set_meta("seeds", None)
    facts = collect_statistics(run)
    assert (facts.accepted, facts.seeds.used) == (3, 0)
    assert {tool.name: tool.accepted for tool in facts.tools} == {"find_order": 4, "cancel": 2, "never": 0}


def test_the_median_of_an_even_number_is_the_lower_one() -> None:
    def spread(*values: int) -> tuple[float, float, float]:
        found = Histogram.of(Counter(values))
        return found.low, found.median, found.most

    assert spread(5) == (5, 5, 5)
    assert spread(1, 2, 3, 9) == (1, 2, 9)
    assert spread(7, 7, 7, 1) == (1, 7, 7)
    assert Histogram.of(Counter()) == Histogram()


def test_a_reason_of_a_newer_version_has_no_meaning_and_does_no_harm() -> None:
    assert explain_reason("of_another_time") == ""
    assert explain_reason("duplicate")


def test_a_success_beside_a_failure_is_no_recovery() -> None:
    at_once = [("find_order", "ORD-1", False), ("find_order", "ORD-2", True)]

    def errors(*turns: list[tuple[str, str, bool]]) -> tuple[bool, bool]:
        walked = read_conversation(story("x", "hello", *turns).to_row())
        return walked.failed, walked.recovered

    assert errors(at_once) == (True, False)
    assert errors(at_once, [("cancel", "ORD-2", True)]) == (True, True)
    assert errors([("cancel", "ORD-2", True)], [("cancel", "ORD-1", False)]) == (True, False)
    assert errors([("cancel", "ORD-2", True)]) == (False, False)


async def test_diversity_stands_beside_the_seeds_own(run: Run) -> None:
    facts = collect_statistics(run)
    told = dict(list_diversity_rows(facts))
    assert facts.diversity is not None
    assert [of.trajectories for of in facts.diversity] == [facts.accepted, 2]
    assert told["tools used"].endswith(")")
    assert "entropy" in told["sequences of tools"]
