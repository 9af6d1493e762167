"""What was asked of the endpoint, as sums that the database makes: latency, failures, tokens and cost by fate and seed.

And how much of the prompts is the same each time: a law of this house is that the static part stands first, and only
stored requests can say whether it is kept. What an endpoint says its cache served stands beside it.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import orjson

from simia.jobs import Ledger, Run
from simia.jobs.tables import COST, Damaged, build_token_sum
from simia.report.figures import EndpointFacts, PromptFacts, ReplyTotals, RunFacts
from simia.report.spread import Histogram

MOST_ITEMS = 20_000
MOST_SEEDS = 12  # of a pack, whose requests are read
MOST_REQUESTS = 4  # of each such seed
# A reply counts for the item that asked for it; an item's fate is `accepted`, `surplus` or its status.
TOKENS_BY_SEED = f"""
SELECT CASE WHEN accepted.ord IS NOT NULL THEN 'accepted' WHEN item.status = 'passed' THEN 'surplus' ELSE item.status END,
  item.spec ->> '$.pack', item.spec ->> '$.seed', COUNT(*),
  {build_token_sum("prompt")}, {build_token_sum("completion")}, {build_token_sum("cached")}, {COST}, COUNT(cost)
FROM attempt JOIN item ON item.id = attempt.item LEFT JOIN accepted ON accepted.ord = item.ord
WHERE attempt.status = 'got' GROUP BY 1, 2, 3
"""
# Milliseconds up to a second, then tenths: few enough values to count each.
LATENCY = """
SELECT CASE WHEN took < 1 THEN CAST(took * 1000 AS INTEGER) ELSE CAST(took * 10 AS INTEGER) * 100 END, COUNT(*)
FROM (SELECT got_at - asked_at AS took FROM attempt WHERE status = 'got' AND got_at >= asked_at) GROUP BY 1
"""


def summarize_endpoint(run: Run) -> EndpointFacts:
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
    """Fill what was spent by fate; return it by seed, and the share of each pack's prompts that the cache served."""
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
    """What the prompts have in common: read from a few requests of some seeds of each pack."""
    found = []
    for pack, seeds in sorted(choose_items(ledger).items()):
        groups = [texts for items in seeds.values() if (texts := read_prompts(ledger, items))]
        every = [text for texts in groups for text in texts]
        if len(every) < 2:
            continue  # one request begins with all of itself
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
    """Items by pack and seed, from the beginning of the run: later ones are made in the same way."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for id_, spec in ledger.db.ledger.execute("SELECT id, spec FROM item ORDER BY rowid LIMIT ?", (MOST_ITEMS,)):
        about = orjson.loads(spec)
        seeds, seed = found[str(about.get("pack") or "")], str(about.get("seed"))
        if seed in seeds or len(seeds) < MOST_SEEDS:
            items = seeds.setdefault(seed, [])
            items += [id_] if len(items) < MOST_REQUESTS else []
    return found


def read_prompts(ledger: Ledger, items: list[str]) -> list[str]:
    """The prompts of these items as one text each, as far as they are stored."""
    found = []
    for item in items:
        for key in ledger.reply_keys(item)[:1]:
            row = ledger.db.replies.execute("SELECT request FROM reply WHERE key = ?", (key,)).fetchone()
            if row is not None:
                try:
                    messages = ledger.request(row[0]).get("messages", [])
                except Damaged:  # a text that `simia runs rebuild` could not read, which it said
                    continue
                found.append("\n".join(f"{m['role']}\n{m.get('content')}" for m in messages))
    return found


def measure_common_prefix(texts: list[str]) -> int:
    """How many characters all begin with: as many as the first and the last in the alphabet."""
    first, last = min(texts), max(texts)
    return next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
