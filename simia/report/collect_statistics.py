"""Collect the statistics of a run in one pass over its ledger, in bounded memory.

They answer a data reviewer's questions: How much was accepted, and why was the rest rejected? Is a tool missing or
overused? How much repeats the seeds? What did it cost, and was a call paid for twice? They do not measure correctness:
the checks are structural.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from simia.errors import Code
from simia.jobs import Run
from simia.jobs.integrity import is_worked_on
from simia.llm.question_files import find_batch_folders
from simia.quality.judging.run_judgement import load_judgement
from simia.quality.language import find_trajectory_languages
from simia.report.diversity import measure_run_diversity
from simia.report.endpoint_statistics import measure_prefixes, sum_judging, sum_spending, summarize_endpoint
from simia.report.model_outcomes import count_models
from simia.report.plan_distribution import count_plans
from simia.report.result_counts import (
    VERDICT,
    ResultCounts,
    compute_bin_width,
    count_results_in_parallel,
    get_last_ord,
)
from simia.report.run_statistics import (
    MOST_EXAMPLES,
    Histogram,
    Outcomes,
    RejectionReason,
    ReplyTotals,
    RunStatistics,
    SeedFilterCounts,
    SeedOutcomes,
    TimelineBin,
    ToolUsage,
    VerdictCounts,
)
from simia.trajectory import Trajectory

MANY = 10_000  # items from which several processes are faster than one
MOST_PROCESSES = 4
UNKNOWN = "unknown"
LONGEST = 160  # characters of a finding
ITEMS = f"""
SELECT id, item.ord, spec ->> '$.pack', spec ->> '$.seed', spec ->> '$.task', {VERDICT}, reason, detail
FROM item LEFT JOIN accepted ON accepted.ord = item.ord WHERE stage = 'amplify' ORDER BY item.ord
"""
# An attempt whose item has a later attempt came from a dead process, even while another process works on the run.
UNANSWERED = """
SELECT reply_key FROM attempt AS this WHERE status = 'sent'
AND (NOT ? OR EXISTS (SELECT 1 FROM attempt AS later WHERE later.item = this.item AND later.n > this.n))
"""
# Two findings that differ only in values count as one.
VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|(\d+)")


def collect_statistics(run: Run) -> RunStatistics:
    """Collect all statistics in one transaction, so that they are consistent while another process writes."""
    connection = run.ledger.db.ledger
    connection.execute("BEGIN")
    try:
        return _collect(run)
    finally:
        connection.execute("ROLLBACK")  # nothing was written


def _collect(run: Run) -> RunStatistics:
    ledger, connection = run.ledger, run.ledger.db.ledger
    about, seed_counts, stopped = (ledger.meta(name) or {} for name in ("facts", "seeds", "stopped"))
    usage, attempts = ledger.spent()
    seeds = dict(ledger.seeds())
    working = is_worked_on(run.folder)
    # While another process works on the run, only a single transaction is consistent. That process needs the other cores.
    alone = working or get_last_ord(connection) < MANY
    processes = 1 if alone else min(MOST_PROCESSES, os.cpu_count() or 1)
    results = count_results_in_parallel(connection, run.folder, processes)
    statistics = RunStatistics(
        run=run.id,
        created=ledger.meta("created"),
        working=working,
        stop=stopped.get("kind"),
        stop_detail=stopped.get("detail", ""),
        model=str(about.get("model", "unknown")),
        alias=str(about.get("alias", "unknown")),
        n=run.saved_config().get("n", 0),
        prompts=about.get("prompts", {}),
        licences=sorted({str(seed.get("licence") or "unknown") for seed in seed_counts.get("used", [])}),
        attempts=attempts,
        possibly_paid_twice=count_unanswered(run, working=working),
        usage=usage,
        unpriced=connection.execute("SELECT COUNT(*) FROM attempt WHERE status = 'got' AND cost IS NULL").fetchone()[0],
        seeds=summarize_seed_filter(seed_counts),
        endpoint=summarize_endpoint(connection),
        results=results,
        tools=count_tools(results, seeds),
        diversity=measure_run_diversity(ledger, list(seeds.values())),
    )
    statistics.spent, spent_by_seed, cached = sum_spending(connection)
    statistics.judging = sum_judging(connection)
    statistics.verdicts = count_verdicts(run)
    if find_batch_folders(run.saved_config()):  # an answer has no latency: it was read from a file
        statistics.endpoint = replace(statistics.endpoint, latency=Histogram(), first=None, last=None)
    statistics.models = count_models(connection, about)
    statistics.prefixes = measure_prefixes(ledger, cached)
    count_items(connection, statistics, seeds, spent_by_seed)
    statistics.plans = count_plans(connection, run.saved_config().get("plan") or {})
    return statistics


def count_items(
    connection: sqlite3.Connection,
    statistics: RunStatistics,
    seeds: dict[str, Trajectory],
    spent: dict[str, ReplyTotals],
) -> None:
    """Count the items by outcome: of the whole run, by pack, seed and reason, and over time. `spent`: by seed."""
    per_seed = {
        id_: SeedOutcomes(name=seed.task_id or id_, pack=seed.pack or "", licence=seed.provenance.licence or "unknown")
        for id_, seed in seeds.items()
    }
    packs: dict[str, Outcomes] = defaultdict(Outcomes, {seed.pack: Outcomes() for seed in per_seed.values()})
    languages = name_languages(seeds)
    per_language = {name: Outcomes() for name in sorted(set(languages.values()))}
    bins: dict[int, TimelineBin] = defaultdict(TimelineBin)
    reasons: dict[str, RejectionReason] = {}
    width = compute_bin_width(get_last_ord(connection))
    for id_, ord_, pack, seed, task, verdict, code, detail in connection.execute(ITEMS):
        pack, reason = pack or "", str(code or Code.INTERNAL)
        if seed not in per_seed:
            per_seed[seed] = SeedOutcomes(name=str(task or seed), pack=pack)
        for each in (statistics, packs[pack], per_seed[seed], bins[ord_ // width]):
            each.add(verdict, reason)
        if seed in languages:
            per_language[languages[seed]].add(verdict, reason)
        if verdict == "rejected":
            found = reasons.setdefault(reason, RejectionReason(reason))
            found.add(strip_values(detail or "", reason), strip_place(detail or "", reason)[:LONGEST])
            found.examples += [id_] if len(found.examples) < MOST_EXAMPLES else []
    for bin_ in statistics.results.first_bin.values():
        bins[bin_].fresh += 1
    for name, outcomes in per_seed.items():
        outcomes.spent = spent.get(name, outcomes.spent)
    statistics.packs, statistics.timeline = packs, list(bins.values())
    statistics.languages = per_language
    statistics.per_seed = sorted(per_seed.values(), key=lambda outcomes: (outcomes.pack, outcomes.name))
    statistics.reasons = sorted(reasons.values(), key=lambda reason: -reason.count)


def name_languages(seeds: dict[str, Trajectory]) -> dict[str, str]:
    """Return the language of each seed by its id, such as "ja", "en, ja" or "unknown"; empty if all have the same."""
    names = {id_: ", ".join(sorted(find_trajectory_languages(seed))) or UNKNOWN for id_, seed in seeds.items()}
    return names if len(set(names.values()) - {UNKNOWN}) > 1 else {}


def count_tools(results: ResultCounts, seeds: dict[str, Trajectory]) -> list[ToolUsage]:
    """Count the calls of every tool that a seed or a result lists, per pack."""
    found: dict[tuple[str, str], ToolUsage] = {}
    for seed in seeds.values():
        pack = seed.pack or ""
        for tool in seed.tools:
            found.setdefault((pack, tool.name), ToolUsage(pack, tool.name))
        for _, _, call in seed.calls():
            if known := found.get((pack, call.name)):
                known.seeds += 1
    for (pack, name, verdict), count in results.tools.items():
        setattr(found.setdefault((pack, name), ToolUsage(pack, name)), verdict, count)
    return sorted(found.values(), key=lambda tool: (tool.pack, -tool.accepted, tool.name))


def count_verdicts(run: Run) -> VerdictCounts:
    """Count the verdicts of `simia judge` on the trajectories that are accepted now."""
    judgement = load_judgement(run.folder)
    if not judgement.rows:
        return VerdictCounts()
    rows = run.ledger.db.ledger.execute("SELECT item FROM accepted")
    accepted = {item for (item,) in rows}
    judged = judgement.judged_items() & accepted
    asked = {row.item for row in judgement.rows} & accepted
    return VerdictCounts(len(judged), len(judgement.failed().keys() & accepted), len(asked - judged))


def count_unanswered(run: Run, *, working: bool) -> int:
    """Count calls that a dead process sent and whose reply was not received: the endpoint may charge for them twice.

    A reply counts as received when it is stored, even if the process died before the attempt was marked. If a later
    attempt with the same key was answered, the stored reply belongs to that attempt and the first reply was lost.
    """
    connection, replies = run.ledger.db.ledger, run.ledger.db.replies
    count = 0
    for (key,) in connection.execute(UNANSWERED, (working,)):
        stored = replies.execute("SELECT 1 FROM reply WHERE key = ?", (key,)).fetchone()
        marked = connection.execute("SELECT 1 FROM attempt WHERE reply_key = ? AND status = 'got'", (key,)).fetchone()
        count += not stored or marked is not None
    return count


def summarize_seed_filter(seeds: dict[str, Any]) -> SeedFilterCounts:
    """Summarize the stored result of the seed pre-filter. An issue begins with its code: `bad_arguments at messages[1]: …`."""
    refused = [(seed["name"], issue) for seed in seeds.get("refused", []) for issue in seed["issues"][:1]]
    reasons = Counter(re.split("[: ]", issue, maxsplit=1)[0] for _, issue in refused)
    return SeedFilterCounts(
        read=seeds.get("read", 0),
        used=len(seeds.get("used", [])),
        refused=len(seeds.get("refused", [])),
        reasons=dict(reasons.most_common()),
        examples=[f"{name}: {issue}" for name, issue in refused[:10]],
    )


def strip_values(detail: str, reason: str) -> str:
    """Remove location and values from a finding, so that equal mistakes are counted together. The name of a language stays."""
    text = strip_place(detail, reason)
    return (text if reason == Code.LANGUAGE else VALUES.sub(lambda value: "#" if value[1] else "…", text))[:LONGEST]


def strip_place(detail: str, reason: str) -> str:
    """Remove the location from a finding."""
    return (detail.partition(": ")[2] if detail.startswith(reason) else detail) or "no detail"
