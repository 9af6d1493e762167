"""Diversity: how varied a set of trajectories is, in figures that one pass over a stream can give.

Distinct-n falls as a set grows, for a language has only so many words: compare sets of equal size. Entropy is over whole
sequences of tools; at its bound, log2 of the number of trajectories, no two call the same tools in the same order. A request
counts as declined where the last answer says so in one of the usual English ways and nothing after the last refusal is called:
a rate to compare sets by, not a verdict on one trajectory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any
from zlib import crc32

from simia.quality.check import estimate_trajectory_tokens
from simia.quality.selection.coverage import ToolCoverage
from simia.quality.selection.frequent_values import FrequentValues
from simia.quality.selection.near_duplicates import WORDS
from simia.quality.selection.sketches import CAP, Distinct, Frequencies, hash_grams
from simia.trajectory import Trajectory

ORDERS = (1, 2, 3)
SPEAKERS = ("user", "assistant")
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
DECLINED = re.compile(
    r"\b(?:(?:i|we)(?:['’]?m| am|['’]?re| are)? (?:sorry,? but|afraid|unable to|not able to|not allowed to|not permitted to)|"
    r"(?:i|we) (?:(?:can['’]?t|cannot|can not|won['’]?t)(?! (?:promise|guarantee|say|tell|wait)\b)|must decline)|"
    r"(?:is|are|was)(?: not|n['’]t) (?:possible|allowed|permitted|eligible|refundable)|policy (?:does not|doesn['’]t) allow)\b",
    re.I,
)


class Diversity:
    """Feed it one trajectory at a time; `finish` gives plain figures."""

    def __init__(self, seeds: Iterable[Trajectory] = (), *, cap: int = CAP) -> None:
        self._coverage = ToolCoverage(list(seeds))
        self._favourites = FrequentValues()
        self._sequences = Frequencies(cap)
        self._grams = {speaker: {n: Distinct(cap) for n in ORDERS} for speaker in SPEAKERS}
        self._lengths: dict[str, Counter[int]] = {name: Counter() for name in ("messages", "calls", "tokens")}
        self._figures = Counter(dict.fromkeys(("trajectories", "parallel", "failed", "recovered", "declined"), 0))

    def add(self, t: Trajectory, *, tokens: int | None = None) -> None:
        """Count one trajectory. `tokens`: if the caller has counted them already."""
        figures = self._figures
        figures["trajectories"] += 1
        self._coverage.add(t)
        self._favourites.add(t)
        names = [call.name for message in t.messages for call in message.calls]
        self._sequences.add(hash((len(names), *(crc32(name.encode()) for name in names))))
        for speaker in SPEAKERS:
            self._say(speaker, t)
        self._lengths["messages"][len(t.messages)] += 1
        self._lengths["calls"][len(names)] += 1
        self._lengths["tokens"][estimate_trajectory_tokens(t) if tokens is None else tokens] += 1
        figures["parallel"] += any(len(message.calls) > 1 for message in t.messages)
        failed, recovered = find_errors(t)
        figures["failed"] += failed
        figures["recovered"] += recovered
        figures["declined"] += is_declined(t)

    def _say(self, speaker: str, t: Trajectory) -> None:
        """Count n-grams, none of which spans two messages."""
        found: dict[int, list[int]] = {n: [] for n in ORDERS}
        for message in t.messages:
            if message.role == speaker and message.content:
                words = list(map(crc32, message.text.encode("utf-8", "replace").translate(WORDS).split()))
                for n in ORDERS:
                    found[n] += hash_grams(words, n)
        for n in ORDERS:
            self._grams[speaker][n].add(found[n])

    def finish(self) -> dict[str, Any]:
        """Return all figures as JSON values, each count beside its total."""
        figures, sequences = self._figures, self._sequences
        grams = [gram for orders in self._grams.values() for gram in orders.values()]
        return {
            "trajectories": figures["trajectories"],
            "exact": sequences.exact and all(gram.exact for gram in grams),
            "tool_sequences": {
                "distinct": sequences.distinct,
                "entropy_bits": round(sequences.entropy, 4),
                "most_frequent": sequences.most,
            },
            "distinct_n": {
                speaker: {str(n): round(gram.share, 4) for n, gram in orders.items()}
                for speaker, orders in self._grams.items()
            },
            "grams": {
                speaker: {str(n): {"distinct": gram.count, "all": gram.total} for n, gram in orders.items()}
                for speaker, orders in self._grams.items()
            },
            "coverage": self._coverage.report(),
            "favourites": self._favourites.finish(),
            "lengths": {name: compute_quantiles(counts) for name, counts in self._lengths.items()},
            "parallel": figures["parallel"],
            "with_errors": figures["failed"],
            "recovered": figures["recovered"],
            "declined": figures["declined"],
            "shares": {
                "parallel": compute_share(figures["parallel"], figures["trajectories"]),
                "recovered": compute_share(figures["recovered"], figures["failed"]),
                "declined": compute_share(figures["declined"], figures["trajectories"]),
            },
        }


def find_errors(t: Trajectory) -> tuple[bool, bool]:
    """Return (whether a tool answered with an error, whether a call of a later turn succeeded)."""
    turn, failed_in = 0, None
    for message in t.messages:
        turn += bool(message.calls)
        if message.role != "tool":
            continue
        if message.error is not None:
            failed_in = turn if failed_in is None else failed_in
        elif failed_in is not None and turn > failed_in:
            return True, True
    return failed_in is not None, False


def is_declined(t: Trajectory) -> bool:
    """Return whether the assistant declined and made no call afterwards; a refusal before more work is only a step."""
    for message in reversed(t.messages):
        if message.calls:
            return False
        if message.role == "assistant" and DECLINED.search(message.text):
            return True
    return False


def compute_share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def compute_quantiles(counts: Counter[int]) -> dict[str, int]:
    """Compute quantiles from a histogram: lengths take few values even for many trajectories."""
    ordered, left, found = sorted(counts), counts.total(), dict[str, int]()
    if not ordered:
        return found
    found["least"] = ordered[0]
    below, wanted = 0, iter(QUANTILES.items())
    name, at = next(wanted)
    for value in ordered:
        below += counts[value]
        while name and below >= at * left - 1e-9:
            found[name] = value
            name, at = next(wanted, ("", 1.0))
    found["most"] = ordered[-1]
    return found
