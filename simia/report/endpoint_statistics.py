"""Summarize the calls of a run with SQL: latency, failures, tokens and cost by outcome and seed.

Also measure the common prefix of the stored prompts. Prompts put their static part first so that a prefix cache can
serve it; the measured prefix is reported next to the cached tokens that the endpoint reports.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict

from simia.jobs import Ledger
from simia.jobs.tables import COST, Damaged, build_token_sum
from simia.report.result_counts import VERDICT
from simia.report.run_statistics import EndpointStatistics, Histogram, PromptPrefix, ReplyTotals

MOST_ITEMS = 20_000
MOST_SEEDS = 12  # seeds of a pack whose requests are read
MOST_REQUESTS = 4  # requests per seed
# A reply counts for the item that requested it.
TOKENS_BY_SEED = f"""
SELECT {VERDICT.replace("status", "item.status")}, item.spec ->> '$.pack', item.spec ->> '$.seed', COUNT(*),
  {build_token_sum("prompt")}, {build_token_sum("completion")}, {build_token_sum("cached")}, {COST}, COUNT(cost)
FROM attempt JOIN item ON item.id = attempt.item LEFT JOIN accepted ON accepted.ord = item.ord
WHERE attempt.status = 'got' GROUP BY 1, 2, 3
"""
# Milliseconds below one second, tenths of a second above: few distinct values.
LATENCY = """
SELECT CASE WHEN took < 1 THEN CAST(took * 1000 AS INTEGER) ELSE CAST(took * 10 AS INTEGER) * 100 END, COUNT(*)
FROM (SELECT got_at - asked_at AS took FROM attempt WHERE status = 'got' AND got_at >= asked_at) GROUP BY 1
"""
# Replies of the judge of acceptance: its attempts have the item's id with this suffix.
OF_JUDGE = f"""
SELECT COUNT(*), {build_token_sum("prompt")}, {build_token_sum("completion")}, {build_token_sum("cached")}, {COST}, COUNT(cost)
FROM attempt WHERE status = 'got' AND item LIKE '%.judge'
"""
FAULTS = "SELECT code, COUNT(*) FROM attempt WHERE status = 'failed' GROUP BY code ORDER BY 2 DESC, 1"


def summarize_endpoint(connection: sqlite3.Connection) -> EndpointStatistics:
    """Read latency, failures and time span of the calls."""
    first, last = connection.execute("SELECT MIN(asked_at), MAX(got_at) FROM attempt").fetchone()
    (again,) = connection.execute("SELECT COUNT(DISTINCT item) FROM attempt WHERE n > 0").fetchone()
    latency = Histogram.of(dict(connection.execute(LATENCY).fetchall()), unit=0.001)
    return EndpointStatistics(
        latency, {str(code): count for code, count in connection.execute(FAULTS)}, again, first, last
    )


def sum_spending(
    connection: sqlite3.Connection,
) -> tuple[dict[str, ReplyTotals], dict[str, ReplyTotals], dict[str, float]]:
    """Return the totals by outcome and by seed, and for each pack the share of prompt tokens that was cached."""
    outcomes: dict[str, ReplyTotals] = defaultdict(ReplyTotals)
    seeds: dict[str, ReplyTotals] = defaultdict(ReplyTotals)
    packs: dict[str, ReplyTotals] = defaultdict(ReplyTotals)
    for verdict, pack, seed, *figures in connection.execute(TOKENS_BY_SEED):
        totals = ReplyTotals(*(value or 0 for value in figures))
        for group in (outcomes[verdict], seeds[str(seed)], packs[pack or ""]):
            group.add(totals)
    return outcomes, seeds, {pack: spent.cached / spent.prompt for pack, spent in packs.items() if spent.prompt}


def sum_judging(connection: sqlite3.Connection) -> ReplyTotals:
    """Return the totals of the judge of acceptance."""
    return ReplyTotals(*(value or 0 for value in connection.execute(OF_JUDGE).fetchone()))


def measure_prefixes(ledger: Ledger, cached: dict[str, float]) -> list[PromptPrefix]:
    """Measure the common prefix of prompts, from a few requests of some seeds of each pack."""
    found = []
    for pack, seeds in sorted(choose_items(ledger).items()):
        groups = [texts for items in seeds.values() if (texts := read_prompts(ledger, items))]
        every = [text for texts in groups for text in texts]
        if len(every) < 2:
            continue  # a single request has no common prefix
        static = measure_common_prefix(every)
        shared = [measure_common_prefix(texts) for texts in groups if len(texts) > 1]
        mean_shared = sum(shared) // len(shared) if shared else static
        mean = sum(map(len, every)) // len(every)
        found.append(PromptPrefix(pack, len(every), mean, static, mean_shared, cached.get(pack)))
    return found


def choose_items(ledger: Ledger) -> dict[str, dict[str, list[str]]]:
    """Choose items by pack and seed from the start of the run; later items have prompts of the same kind."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    chosen = "SELECT id, spec ->> '$.pack', spec ->> '$.seed' FROM item ORDER BY rowid LIMIT ?"
    for id_, pack, seed in ledger.db.ledger.execute(chosen, (MOST_ITEMS,)):
        seeds = found[pack or ""]
        if seed in seeds or len(seeds) < MOST_SEEDS:
            items = seeds.setdefault(seed, [])
            items += [id_] if len(items) < MOST_REQUESTS else []
    return found


def read_prompts(ledger: Ledger, items: list[str]) -> list[str]:
    """Return the stored prompts of these items, one text per item."""
    found = []
    for key in (key for item in items for key in ledger.reply_keys(item)[:1]):
        row = ledger.db.replies.execute("SELECT request FROM reply WHERE key = ?", (key,)).fetchone()
        if row is not None:
            try:
                messages = ledger.request(row[0]).get("messages", [])
            except Damaged:  # `simia runs rebuild` has reported this text as unreadable
                continue
            found.append("\n".join(f"{message['role']}\n{message.get('content')}" for message in messages))
    return found


def measure_common_prefix(texts: list[str]) -> int:
    """Return the length of the texts' common prefix: it equals that of the first and the last text in alphabetical order."""
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
