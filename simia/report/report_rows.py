"""Rows of the report's sections as plain text, for the terminal and the page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from simia.errors import Code
from simia.report.diversity import ORDERS, SPEAKERS, find_grown_values
from simia.report.run_statistics import Histogram, ReplyTotals, RunStatistics
from simia.terminal import write_count

Rows = list[tuple[str, str]]
VERDICTS = ("accepted", "surplus", "rejected", "failed", "open")
ATTEMPTS = {"got": "answered", "sent": "without an answer", "failed": "failed", "lost": "answered, their replies lost"}
UNCOUNTED = "not counted: the replies came without counts"
SPARKS = " ▁▂▃▄▅▆▇█"
MOST_WIDE = 110
MOST_FREQUENT = 8
MOST_VALUES = 3  # over-represented values


def list_summary_rows(run: RunStatistics) -> Rows:
    rows = [("state", run.state)]
    if run.created is not None:
        rows.append(("created", format_time(run.created)))
    rows += list_model_rows(run)
    rate = f"; {format_part(run.accepted, run.decided)} of those checked" if run.decided else ""
    rows.append(("accepted", f"{run.accepted:,} of {run.n:,} wanted{rate}"))
    failed = f"{run.failed.total():,} failed" + (f" ({format_counts(run.failed)})" if run.failed else "")
    surplus = f", {run.surplus:,} passed but not counted" if run.surplus else ""
    rows.append(("items", f"{run.planned:,} planned, {run.refused:,} rejected, {failed}, {run.open:,} open{surplus}"))
    calls = ", ".join(f"{count:,} {ATTEMPTS.get(status, status)}" for status, count in run.attempts.items())
    rows.append(("calls", calls or "none sent"))
    if run.possibly_paid_twice:
        rows.append(("", f"{run.possibly_paid_twice:,} possibly paid twice: in flight when the process ended"))
    usage, figures = run.usage, run.results.figures
    cached = f" ({usage.cached / usage.prompt:.0%} from the prefix cache)" if usage.prompt else ""
    counted = f"{usage.prompt:,} in{cached}, {usage.completion:,} out"
    rows.append(("tokens", counted if usage.prompt + usage.completion or not run.attempts.get("got") else UNCOUNTED))
    rows.append(("cost", format_run_cost(run)))
    if run.judging.replies:
        refused = sum(reason.count for reason in run.reasons if reason.code in (Code.JUDGED_BAD, Code.NO_VERDICT))
        of_cost = f"{format_spending(run.judging)} of the cost"
        rows.append(
            (
                "judge",
                f"{write_count(run.judging.replies, 'reply')}, {write_count(refused, 'item')} rejected by it; {of_cost}",
            )
        )
    if run.verdicts.judged or run.verdicts.errors:
        rows.append(("verdicts", describe_verdicts(run)))
    if run.results.repairs:
        repaired = format_part(figures["repaired"], run.accepted)
        rows.append(("repairs", f"{format_counts(run.results.repairs)}; in {repaired} accepted"))
    if run.accepted:
        spread = {name: f"{of.low:,} / {of.median:,} / {of.most:,}" for name, of in run.lengths.items()}
        rows.append(("length", f"{spread['messages']} messages, {spread['calls']} calls (least / median / most)"))
        rows.append(("", f"{spread['tokens']} tokens with tools and policy, estimated"))
        errors = f"{figures['with_errors']:,} with an error of a tool, {figures['recovered']:,} of them recovered from"
        rows.append(("variety", f"{errors}; {figures['parallel']:,} with several calls in one turn"))
    if run.licences:
        by = run.by_licence
        named = (f"{name} {by[name]:,}" if name in by else name for name in run.licences)
        rows.append(("licences", f"{', '.join(named)} (of the seeds, and accepted from them)"))
    if run.prompts:
        rows.append(("prompts", ", ".join(f"{name} {digest[:8]}" for name, digest in run.prompts.items())))
    return rows


def describe_verdicts(run: RunStatistics) -> str:
    """Describe the verdicts of `simia judge`."""
    found = run.verdicts
    errors = f", {found.errors:,} asked without a verdict" if found.errors else ""
    left_out = "; `simia export --judged` leaves these out" if found.failed else ""
    passed = f"{found.judged - found.failed:,} passed, {found.failed:,} failed"
    return f"{found.judged:,} of {run.accepted:,} accepted judged by `simia judge`: {passed}{errors}{left_out}"


def list_model_rows(run: RunStatistics) -> Rows:
    """List the run's model; of several, each with its share, outcomes, tokens and cost."""
    if not run.models:
        return [("model", f"{run.model} ({run.alias})")]
    rows, whole = [], sum(each.weight for each in run.models)
    for each in run.models:
        rate = "" if each.rate is None else f", {each.rate:.0%}"
        items = (
            f"{write_count(each.planned, 'item')} ({each.weight / whole:.0%} planned), {each.accepted:,} accepted{rate}"
        )
        tokens = f"{each.spent.prompt:,} tokens in, {each.spent.completion:,} out"
        rejected = f"{each.refused:,} rejected" + (f", most often {each.worst}" if each.worst else "")
        named = f"{each.model} ({each.alias}): {items}; {rejected}; {tokens}"
        rows.append(("model", f"{named}, {format_spending(each.spent)}" if each.spent.priced else named))
    return rows


def list_timeline_rows(run: RunStatistics) -> Rows:
    """List acceptance, repetition and novelty over the run, which show a declining yield. Parts without a decided item are left out."""
    decided = [bin_ for bin_ in run.timeline if bin_.decided]
    if len(decided) < 2:
        return []
    rates = {
        "accepted": [bin_.rate or 0.0 for bin_ in decided],
        "repeats": [divide(bin_.repeats, bin_.decided) for bin_ in decided],
        "new sequences": [divide(bin_.fresh, bin_.accepted) for bin_ in decided],
    }
    return [
        (name, f"{draw_sparkline(shares)}  {shares[0]:.0%} first, {shares[-1]:.0%} last")
        for name, shares in rates.items()
    ]


def list_spending_rows(run: RunStatistics) -> list[tuple[str, ...]]:
    """List per outcome: outcome, replies, tokens in, cached share, tokens out, cost."""
    rows: list[tuple[str, ...]] = []
    for verdict, spent in sorted(run.spent.items(), key=lambda pair: VERDICTS.index(pair[0])):
        cached = f"{spent.cached / spent.prompt:.0%}" if spent.prompt else ""
        counts = f"{spent.replies:,}", f"{spent.prompt:,}", cached, f"{spent.completion:,}"
        rows.append((verdict, *counts, format_spending(spent)))
    return rows


def describe_cost_per_accepted(run: RunStatistics) -> str:
    """Describe the tokens and the cost per accepted trajectory; those of rejected ones and of the judge of acceptance are included."""
    if not run.accepted or not run.spent:
        return ""
    whole = ReplyTotals()
    for spent in (*run.spent.values(), run.judging):
        whole.add(spent)
    if not whole.prompt + whole.completion:
        return ""  # answers by hand have no counts
    took = f"{whole.prompt // run.accepted:,} tokens in, {whole.completion // run.accepted:,} out"
    if whole.priced == whole.replies:
        took += f", ${1000 * whole.cost / run.accepted:,.2f} a thousand"
    lost = whole.completion - run.spent.get("accepted", ReplyTotals()).completion
    share = f"; {lost / whole.completion:.0%} of the tokens written are in none" if whole.completion else ""
    return f"{took} for each accepted{share}"


def list_prefix_rows(run: RunStatistics) -> Rows:
    """List per pack the share of a prompt that a prefix cache could serve, and the share that the endpoint reports."""
    rows = []
    for of in run.prefixes:
        served = (
            "no cache figures from the endpoint" if of.served is None else f"{of.served:.0%} cached by the endpoint"
        )
        could = f"{100 * of.static // of.characters}% of a prompt is the same in all items"
        seed = f"{100 * of.of_seed // of.characters}% in all items of one seed"
        rows.append((of.pack or "no pack", f"{could}, {seed}; {served} ({write_count(of.requests, 'request')} read)"))
    return rows


def list_endpoint_rows(run: RunStatistics) -> Rows:
    calls, rows = run.endpoint, []
    if calls.latency.counts:
        took = calls.latency
        rows.append(
            ("latency", f"{took.median:,.1f} s median, {took.p95:,.1f} s for 95 of 100, {took.most:,.1f} s most")
        )
    if calls.first is not None and calls.last is not None and calls.last > calls.first:
        rate = 60 * run.attempts.get("got", 0) / (calls.last - calls.first)
        span = f"{format_time(calls.first)} to {format_time(calls.last)}"
        rows.append(("asked", f"{span}; {rate:,.1f} replies a minute over all"))
    if calls.faults:
        rows.append(("failed calls", format_counts(calls.faults)))
    if calls.again:
        rows.append(("asked again", write_count(calls.again, "item")))
    return rows


def list_diversity_rows(run: RunStatistics) -> Rows:
    """List (name, figure of the accepted trajectories with the seeds' in brackets)."""
    if run.diversity is None:
        return []
    new, old = run.diversity
    whole = "" if new.trajectories == run.accepted else f", over {new.trajectories:,} of {run.accepted:,}"
    entropies = (
        f"{len(new.sequences):,} distinct, entropy {new.entropy:.1f} bits ({len(old.sequences):,}, {old.entropy:.1f})"
    )
    rows = [("sequences of tools", entropies + whole)]
    for speaker in SPEAKERS:
        shares, others = (" / ".join(f"{of.compute_distinct_n(speaker, n):.2f}" for n in ORDERS) for of in (new, old))
        rows.append((f"distinct-1/2/3 of the {speaker}", f"{shares} ({others})"))
    for length, name in ((2, "tools used"), (3, "optional arguments used"), (4, "enum values used")):
        covered, of_seeds = ("{:,} of {:,}".format(*of.count_coverage(length)) for of in (new, old))
        rows.append((name, f"{covered} ({of_seeds})"))
    if several := new.list_several_schemas():
        rows.append(("several schemas", f"{format_counts(several)}; the uses of all of them are counted"))
    parallel, declined = (
        f"{divide(mine, new.trajectories):.0%} ({divide(theirs, old.trajectories):.0%})"
        for mine, theirs in ((new.parallel, old.parallel), (new.declined, old.declined))
    )
    rows.append(("parallel calls", parallel))
    rows.append(("requests declined", f"{declined}: the last answer refuses what the user asked for"))
    if grown := find_grown_values(new, old)[:MOST_VALUES]:
        named = (f"{argument} {value} in {share:.0%} ({was:.0%})" for argument, value, share, was in grown)
        rows.append(("over-represented values", ", ".join(named)))
    return rows


def list_overlap_rows(run: RunStatistics) -> Rows:
    """List each figure with its description."""
    if not run.accepted:
        return []
    figures = run.results.figures
    compared = figures["compared"]
    rows = [
        (format_part(figures["some"], compared), "accepted have a five-word run of their user's words in the seeds"),
        (format_part(figures["half"], compared), "accepted have at least half of those runs in the seeds"),
        (format_part(figures["grams_in_seeds"], figures["grams"]), "five-word runs of users occur in the seeds"),
        (
            format_part(figures["same_sequence"], compared),
            "accepted call the same tools in the same order as their seed",
        ),
        (format_part(figures["copiers"], compared), "accepted use an identifier of the seeds"),
        (
            format_part(figures["identifiers_in_seeds"], figures["identifiers"]),
            "identifiers in calls occur in the seeds",
        ),
        (f"{len(run.results.first_bin):,}", "distinct sequences of tools"),
    ]
    if compared < run.accepted:
        rows.append((f"{compared:,}", f"of {run.accepted:,} accepted were sampled for this comparison"))
    return [(figure, what) for figure, what in rows if figure]


def list_frequent_rows(run: RunStatistics) -> list[tuple[str, list[tuple[str, int, str]]]]:
    """List the most frequent values of accepted trajectories: name of the list, then (value, count, share)."""
    results, found = run.results, []
    for name, counter, whole in (
        ("sequences of tools", results.sequences, run.accepted),
        ("openings of the user", results.openings, run.accepted),
        ("identifiers in calls", results.identifiers, results.figures["compared"]),
    ):
        top = counter.top(MOST_FREQUENT)
        rows = [(shorten_text(value), count, f"{divide(count, whole):.1%}") for value, count in top.items()]
        found += [(name, rows)] if rows else []
    return found


def describe_seed_filter(run: RunStatistics) -> str:
    seeds = run.seeds
    left = seeds.read - seeds.used - seeds.refused
    others = f", {left:,} left out by the settings" if left > 0 else ""
    return f"{write_count(seeds.used, 'seed')} used of {seeds.read:,} read, {seeds.refused:,} refused by the pre-filter{others}"


def draw_sparkline(shares: Iterable[float]) -> str:
    """Draw one character per share, at full height for 1."""
    return "".join(SPARKS[round(share * (len(SPARKS) - 1))] for share in shares)


def draw_histogram(histogram: Histogram) -> str:
    return draw_sparkline(divide(count, max(histogram.counts)) for count in histogram.counts)


def draw_nearness(run: RunStatistics) -> str:
    """Draw the distribution of the share of user 5-grams that occur in seeds, by tenths."""
    return draw_histogram(Histogram([run.results.nearness[tenth] for tenth in range(11)]))


def divide(part: float, whole: int) -> float:
    return part / whole if whole else 0.0


def format_part(part: int, whole: int) -> str:
    """Format a share with both counts; empty if `whole` is 0."""
    if not whole:
        return ""
    percent = 100 * part / whole
    # 1 of 90,000 is not 0 %, and 89,999 of 90,000 are not 100 %.
    edge = "<1" if 0 < percent < 1 else ">99" if 99 < percent < 100 else f"{percent:.0f}"
    return f"{edge}% ({part:,} of {whole:,})"


def format_counts(counts: Mapping[str, int]) -> str:
    """Format counts, the largest first."""
    ranked = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{name} {count:,}" for name, count in ranked)


def format_spending(spent: ReplyTotals) -> str:
    if not spent.priced:
        return "unknown"
    return f"${spent.cost:,.2f}" + ("" if spent.priced == spent.replies else f" for {spent.priced:,}")


def format_run_cost(run: RunStatistics) -> str:
    if run.usage.cost is None:
        return "unknown"
    known = f"${run.usage.cost:,.2f}" if run.usage.cost >= 0.01 or not run.usage.cost else "under $0.01"
    return f"{known}, and {write_count(run.unpriced, 'reply')} of unknown price" if run.unpriced else known


def format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def shorten_text(text: str) -> str:
    return (text if len(text) <= MOST_WIDE else text[: MOST_WIDE - 1] + "…") or "(nothing)"
