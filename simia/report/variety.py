"""Measure the diversity of the accepted trajectories, and of the seeds for comparison (`quality.selection.diversity`).

Figures such as distinct-n decrease as a set grows, so a large run is measured on a sample of fixed size, every k-th accepted
trajectory. The seeds' figures only give an idea of the scale.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from simia.jobs import Ledger
from simia.quality.selection.diversity import Diversity
from simia.quality.selection.frequent_values import find_grown_values
from simia.report.run_figures import RunFacts
from simia.trajectory import Trajectory

SAMPLE = 1000
MOST_VALUES = 3  # over-represented values shown


def measure_variety(ledger: Ledger, seeds: list[Trajectory]) -> dict[str, dict[str, Any]]:
    """Return {"accepted": figures, "seeds": figures}; empty while nothing is accepted."""
    count = ledger.accepted_count()
    if not count:
        return {}
    return {
        "accepted": measure_diversity(iterate_sample(ledger, count), seeds),
        "seeds": measure_diversity(seeds, seeds),
    }


def iterate_sample(ledger: Ledger, count: int) -> Iterable[Trajectory]:
    step = -(-count // SAMPLE)
    rows = ledger.db.ledger.execute(
        "SELECT body FROM (SELECT item, ROW_NUMBER() OVER (ORDER BY ord) AS place FROM accepted) JOIN result USING (item)"
        " WHERE place % ? = 1 OR ? = 1 ORDER BY place",
        (step, step),
    )
    for (stored,) in rows.fetchall():
        yield Trajectory.from_row(ledger.body(stored)["trajectory"])


def measure_diversity(trajectories: Iterable[Trajectory], seeds: list[Trajectory]) -> dict[str, Any]:
    found = Diversity(seeds)
    for t in trajectories:
        found.add(t)
    return found.finish()


def list_variety_lines(facts: RunFacts) -> list[tuple[str, str]]:
    """List (name, figure of the accepted trajectories with the seeds' in brackets), for the terminal and the page."""
    if not facts.variety:
        return []
    new, old = facts.variety["accepted"], facts.variety["seeds"]
    count = new["trajectories"]
    whole = "" if count == facts.accepted else f", over {count:,} of {facts.accepted:,}"
    found = [
        (
            "sequences of tools",
            f"{new['tool_sequences']['distinct']:,} distinct, entropy {new['tool_sequences']['entropy_bits']:.1f} bits"
            f" ({old['tool_sequences']['distinct']:,}, {old['tool_sequences']['entropy_bits']:.1f}){whole}",
        )
    ]
    for speaker in ("user", "assistant"):
        shares = " / ".join(f"{new['distinct_n'][speaker][n]:.2f}" for n in "123")
        others = " / ".join(f"{old['distinct_n'][speaker][n]:.2f}" for n in "123")
        found.append((f"distinct-1/2/3 of the {speaker}", f"{shares} ({others})"))
    for kind, name in (
        ("tools", "tools used"),
        ("optional_arguments", "optional arguments used"),
        ("enum_values", "enum values used"),
    ):
        found.append((name, f"{format_coverage(new, kind)} ({format_coverage(old, kind)})"))
    found.append(
        (
            "parallel, declined",
            f"{format_percent(new, 'parallel')}, {format_percent(new, 'declined')} ({format_percent(old, 'parallel')}, {format_percent(old, 'declined')})",
        )
    )
    grown = find_grown_values(new["favourites"], old["favourites"])[:MOST_VALUES]
    if grown:
        shown = (
            f"{row['tool']}.{row['argument']} {row['value']} in {row['share']:.0%} ({row['was']:.0%})" for row in grown
        )
        found.append(("over-represented values", ", ".join(shown)))
    return found


def format_coverage(measured: dict[str, Any], kind: str) -> str:
    packs = measured["coverage"].values()
    return f"{sum(pack[kind]['used'] for pack in packs):,} of {sum(pack[kind]['possible'] for pack in packs):,}"


def format_percent(measured: dict[str, Any], name: str) -> str:
    share = measured["shares"][name]
    return "–" if share is None else f"{share:.0%}"
