"""Rows of the report's sections: spending, prompts, endpoint, timeline, frequent values.

Each section is a list of plain rows, which the terminal and the page both show.
"""

from __future__ import annotations

import time

from simia.report.histograms import Histogram
from simia.report.run_figures import ReplyTotals, RunFacts, TimelineBin

FATES = ("accepted", "surplus", "rejected", "failed", "open")
SPARKS = " ▁▂▃▄▅▆▇█"
MOST_WIDE = 110
NAMES = {
    "sequences": "sequences of tools",
    "openings": "openings of the user",
    "identifiers": "identifiers in calls",
}


def list_spending(facts: RunFacts) -> list[tuple[str, ...]]:
    """List per outcome: outcome, replies, tokens in, cached share, tokens out, cost."""
    rows = [(fate, *format_totals(facts.spent[fate])) for fate in FATES if fate in facts.spent]
    return rows


def format_totals(spent: ReplyTotals) -> tuple[str, ...]:
    cached = f"{spent.cached / spent.prompt:.0%}" if spent.prompt else ""
    return (f"{spent.replies:,}", f"{spent.prompt:,}", cached, f"{spent.completion:,}", format_spending(spent))


def format_spending(spent: ReplyTotals) -> str:
    if not spent.priced:
        return "unknown"
    return f"${spent.cost:,.2f}" + ("" if spent.priced == spent.replies else f" for {spent.priced:,}")


def describe_cost_per_accepted(facts: RunFacts) -> str:
    """Describe the tokens and the cost per accepted trajectory, rejected ones included."""
    if not facts.accepted or not facts.spent:
        return ""
    whole = ReplyTotals()
    for spent in facts.spent.values():
        whole.add(spent)
    took = f"{whole.prompt // facts.accepted:,} tokens in, {whole.completion // facts.accepted:,} out"
    if whole.priced == whole.replies:
        took += f", ${1000 * whole.cost / facts.accepted:,.2f} a thousand"
    lost = whole.completion - facts.spent.get("accepted", ReplyTotals()).completion
    share = f"; {lost / whole.completion:.0%} of the tokens written are in none" if whole.completion else ""
    return f"{took} for each accepted{share}"


def list_prefix_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """List per pack the share of a prompt that a prefix cache could serve, and the share that the endpoint reports."""
    found = []
    for each in facts.static:
        served = (
            "no cache figures from the endpoint" if each.served is None else f"{each.served:.0%} cached by the endpoint"
        )
        could = f"{100 * each.static // each.characters}% of a prompt is the same in all items"
        seed = f"{100 * each.of_seed // each.characters}% in all items of one seed"
        found.append((each.pack or "no pack", f"{could}, {seed}; {served} ({each.requests} requests read)"))
    return found


def list_endpoint_lines(facts: RunFacts) -> list[tuple[str, str]]:
    calls, found = facts.endpoint, []
    if calls.latency.counts:
        took = calls.latency
        found.append(
            ("latency", f"{took.middle:,.1f} s median, {took.high:,.1f} s for 95 of 100, {took.most:,.1f} s most")
        )
    if calls.first is not None and calls.last is not None and calls.last > calls.first:
        span = calls.last - calls.first
        rate = facts.attempts.get("got", 0) / span
        found.append(
            (
                "asked",
                f"{format_time(calls.first)} to {format_time(calls.last)}; {rate * 60:,.1f} replies a minute over all",
            )
        )
    if calls.faults:
        found.append(("failed calls", ", ".join(f"{code} {count:,}" for code, count in calls.faults.items())))
    if calls.again:
        found.append(("asked again", f"{calls.again:,} items"))
    return found


def format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def list_timeline_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """List acceptance, repetition and novelty over the run: declining yield shows here."""
    if len(facts.timeline) < 2:
        return []
    ends = facts.timeline[0], facts.timeline[-1]
    rows = (
        (
            "accepted",
            [divide(s.accepted, s.accepted + s.rejected) for s in facts.timeline],
            [format_yield(s) for s in ends],
        ),
        (
            "repeats",
            [divide(s.repeats, s.items) for s in facts.timeline],
            [f"{divide(s.repeats, s.items):.0%}" for s in ends],
        ),
        (
            "new sequences",
            [divide(s.fresh, s.accepted) for s in facts.timeline],
            [f"{divide(s.fresh, s.accepted):.0%}" for s in ends],
        ),
    )
    return [(name, f"{draw_sparkline(shares)}  {first} first, {last} last") for name, shares, (first, last) in rows]


def format_yield(bin_: TimelineBin) -> str:
    return f"{divide(bin_.accepted, bin_.accepted + bin_.rejected):.0%}"


def divide(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def draw_sparkline(shares: list[float]) -> str:
    """Draw one character per share, at full height for 1."""
    return "".join(SPARKS[round(share * (len(SPARKS) - 1))] for share in shares)


def draw_histogram(histogram: Histogram) -> str:
    most = max(histogram.counts, default=0)
    return draw_sparkline([count / most for count in histogram.counts]) if most else ""


def list_frequent(facts: RunFacts) -> list[tuple[str, list[tuple[str, int, str]]]]:
    """List the most frequent values of accepted trajectories: name of the list, then (value, count, share)."""
    found = []
    for kind, things in facts.frequent.items():
        whole = facts.compared if kind == "identifiers" else facts.accepted
        rows = [(shorten_text(thing), count, f"{divide(count, whole):.1%}") for thing, count in things.items()]
        if rows:
            found.append((NAMES.get(kind, kind), rows))
    return found


def shorten_text(text: str) -> str:
    return (text if len(text) <= MOST_WIDE else text[: MOST_WIDE - 1] + "…") or "(nothing)"


def draw_nearness(facts: RunFacts) -> str:
    """Draw the distribution of the share of user 5-grams that occur in seeds."""
    total = sum(facts.nearness)
    return draw_histogram(Histogram(counts=facts.nearness)) if total else ""
