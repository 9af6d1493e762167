"""Collect the figures of a run in one pass over its ledger, in bounded memory.

The figures answer a data reviewer's questions: How much was accepted, and why was the rest rejected? Is a tool missing
or overused? How much repeats the seeds? What did it cost, and was a call paid for twice? They do not measure
correctness: the checks are structural.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

from simia.jobs import Run
from simia.jobs.integrity import is_worked_on
from simia.report import calls
from simia.report.parallel_read import sum_parts
from simia.report.run_figures import RunFacts, SeedsFacts, explain_reason
from simia.report.tally import compute_bin_width, compute_sample_interval, fill_facts
from simia.report.variety import measure_variety

__all__ = ["RunFacts", "explain_reason", "gather_facts"]

EXAMPLES = 10
MANY = 10_000  # items from which several processes are faster than one
MOST_PROCESSES = 4
# An attempt whose item has a later attempt came from a dead process, even while another process works on the run.
UNANSWERED = """
SELECT reply_key FROM attempt AS this WHERE status = 'sent'
AND (NOT ? OR EXISTS (SELECT 1 FROM attempt AS later WHERE later.item = this.item AND later.n > this.n))
"""


def gather_facts(run: Run) -> RunFacts:
    """Read all figures of a run in one transaction, so that they are consistent while another process writes."""
    connection = run.ledger.db.ledger
    connection.execute("BEGIN")
    try:
        return _collect_facts(run)
    finally:
        connection.execute("ROLLBACK")  # nothing was written


def _collect_facts(run: Run) -> RunFacts:
    ledger, connection = run.ledger, run.ledger.db.ledger
    about, seeds, stopped = (ledger.meta(name) or {} for name in ("facts", "seeds", "stopped"))
    usage, attempts = ledger.spent()
    used = seeds.get("used", [])
    working = is_worked_on(run.folder)
    facts = RunFacts(
        run=run.id,
        created=ledger.meta("created"),
        working=working,
        stop=stopped.get("kind"),
        stop_detail=stopped.get("detail", ""),
        model=str(about.get("model", "unknown")),
        alias=str(about.get("alias", "unknown")),
        n=run.saved_config().get("n", 0),
        attempts=attempts,
        possibly_paid_twice=count_unanswered(run, working=working),
        usage=usage,
        unpriced=connection.execute("SELECT COUNT(*) FROM attempt WHERE status = 'got' AND cost IS NULL").fetchone()[0],
        seeds=summarize_seeds(seeds),
        prompts=about.get("prompts", {}),
        licences=sorted({str(seed.get("licence") or "unknown") for seed in used}),
    )
    facts.endpoint = calls.summarize_endpoint(run)
    by_seed, served = calls.sum_spending(run, facts)
    known = dict(ledger.seeds())
    (most,) = connection.execute("SELECT COALESCE(MAX(ord), 0) FROM item").fetchone()
    width = compute_bin_width(most)
    # While another process works on the run, only one transaction is consistent, and that process needs the other cores.
    several = 1 if working or most < MANY else min(MOST_PROCESSES, os.cpu_count() or 1)
    sums = sum_parts(connection, run.folder, most + 1, width, compute_sample_interval(most), several)
    fill_facts(facts, sums, known, width, by_seed)
    facts.static = calls.measure_prefixes(ledger, served)
    facts.variety = measure_variety(ledger, list(known.values()))
    return facts


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


def summarize_seeds(seeds: dict[str, Any]) -> SeedsFacts:
    refused = seeds.get("refused", [])
    reasons = Counter(parse_issue_code(issue) for seed in refused for issue in seed["issues"][:1])
    return SeedsFacts(
        read=seeds.get("read", 0),
        used=len(seeds.get("used", [])),
        refused=len(refused),
        reasons=dict(reasons.most_common()),
        examples=[f"{seed['name']}: {'; '.join(seed['issues'][:1])}" for seed in refused[:EXAMPLES]],
    )


def parse_issue_code(issue: str) -> str:
    """Return the code that an issue's text begins with, as in `bad_arguments at messages[1].calls[0]: …`."""
    return issue.split(":")[0].split(" ")[0]
