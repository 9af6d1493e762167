"""Summarize the calls of a run with SQL: latency, failures, tokens and cost by outcome and seed.

Also measure the common prefix of the stored prompts. Prompts put their static part first so that a prefix cache can
serve it; the measured prefix is reported next to the cached tokens that the endpoint reports.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import orjson

from simia.jobs import Ledger, Run
from simia.jobs.tables import COST, Damaged, build_token_sum
from simia.report.histograms import Histogram
from simia.report.run_figures import EndpointFacts, PromptFacts, ReplyTotals, RunFacts

MOST_ITEMS = 20_000
MOST_SEEDS = 12  # seeds of a pack whose requests are read
MOST_REQUESTS = 4  # requests per seed
# A reply counts for the item that requested it. An item's outcome is `accepted`, `surplus` or its status.
TOKENS_BY_SEED = f"""
SELECT CASE WHEN accepted.ord IS NOT NULL THEN 'accepted' WHEN item.status = 'passed' THEN 'surplus' ELSE item.status END,
  item.spec ->> '$.pack', item.spec ->> '$.seed', COUNT(*),
  {build_token_sum("prompt")}, {build_token_sum("completion")}, {build_token_sum("cached")}, {COST}, COUNT(cost)
FROM attempt JOIN item ON item.id = attempt.item LEFT JOIN accepted ON accepted.ord = item.ord
WHERE attempt.status = 'got' GROUP BY 1, 2, 3
"""
# Milliseconds below one second, tenths of a second above: few distinct values.
LATENCY = """
SELECT CASE WHEN took < 1 THEN CAST(took * 1000 AS INTEGER) ELSE CAST(took * 10 AS INTEGER) * 100 END, COUNT(*)
FROM (SELECT got_at - asked_at AS took FROM attempt WHERE status = 'got' AND got_at >= asked_at) GROUP BY 1
"""


def summarize_endpoint(run: Run) -> EndpointFacts:
    """Read latency, failures and time span of the calls."""
    connection = run.ledger.db.ledger
    first, last = connection.execute("SELECT MIN(asked_at), MAX(got_at) FROM attempt").fetchone()
    took: Counter[int] = Counter(dict(connection.execute(LATENCY).fetchall()))
    faults = "SELECT code, COUNT(*) FROM attempt WHERE status = 'failed' GROUP BY code ORDER BY 2 DESC, 1"
    (again,) = connection.execute("SELECT COUNT(DISTINCT item) FROM attempt WHERE n > 0").fetchone()
    return EndpointFacts(
        latency=Histogram.of(took).scale(0.001) if took else Histogram(),
        faults={str(code): count for code, count in connection.execute(faults)},
        again=again,
        first=first,
        last=last,
    )


def sum_spending(run: Run, facts: RunFacts) -> tuple[dict[str, ReplyTotals], dict[str, float]]:
    """Fill `facts.spent` by outcome. Return the totals by seed, and for each pack the share of prompt tokens that was cached."""
    seeds: dict[str, ReplyTotals] = defaultdict(ReplyTotals)
    packs: dict[str, ReplyTotals] = defaultdict(ReplyTotals)
    for fate, pack, seed, *figures in run.ledger.db.ledger.execute(TOKENS_BY_SEED):
        names = ("replies", "prompt", "completion", "cached", "cost", "priced")
        one = ReplyTotals(**{name: value or 0 for name, value in zip(names, figures, strict=True)})
        facts.spent.setdefault(fate, ReplyTotals()).add(one)
        seeds[str(seed)].add(one)
        packs[str(pack or "")].add(one)
    return seeds, {pack: spent.cached / spent.prompt for pack, spent in packs.items() if spent.prompt}


def measure_prefixes(ledger: Ledger, served: dict[str, float]) -> list[PromptFacts]:
    """Measure the common prefix of prompts, from a few requests of some seeds of each pack."""
    found = []
    for pack, seeds in sorted(choose_items(ledger).items()):
        groups = [texts for items in seeds.values() if (texts := read_prompts(ledger, items))]
        every = [text for texts in groups for text in texts]
        if len(every) < 2:
            continue  # a single request has no common prefix
        static = measure_common_prefix(every)
        shared = [measure_common_prefix(texts) for texts in groups if len(texts) > 1]
        found.append(
            PromptFacts(
                pack=pack,
                requests=len(every),
                characters=sum(map(len, every)) // len(every),
                static=static,
                of_seed=sum(shared) // len(shared) if shared else static,
                served=served.get(pack),
            )
        )
    return found


def choose_items(ledger: Ledger) -> dict[str, dict[str, list[str]]]:
    """Choose items by pack and seed from the start of the run; later items have prompts of the same kind."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for id_, spec in ledger.db.ledger.execute("SELECT id, spec FROM item ORDER BY rowid LIMIT ?", (MOST_ITEMS,)):
        about = orjson.loads(spec)
        seeds, seed = found[str(about.get("pack") or "")], str(about.get("seed"))
        if seed in seeds or len(seeds) < MOST_SEEDS:
            items = seeds.setdefault(seed, [])
            items += [id_] if len(items) < MOST_REQUESTS else []
    return found


def read_prompts(ledger: Ledger, items: list[str]) -> list[str]:
    """Return the stored prompts of these items, one text per item."""
    found = []
    for item in items:
        for key in ledger.reply_keys(item)[:1]:
            row = ledger.db.replies.execute("SELECT request FROM reply WHERE key = ?", (key,)).fetchone()
            if row is not None:
                try:
                    messages = ledger.request(row[0]).get("messages", [])
                except Damaged:  # `simia runs rebuild` has reported this text as unreadable
                    continue
                found.append("\n".join(f"{m['role']}\n{m.get('content')}" for m in messages))
    return found


def measure_common_prefix(texts: list[str]) -> int:
    """Return the length of the common prefix, which is the one of the first and the last text in alphabetical order."""
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
