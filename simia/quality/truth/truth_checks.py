"""Checks of truth: does what the assistant says and does follow from results, user and policy?

A model that writes a whole trajectory also writes the results, and contradicts them in small places. These checks find what the
structure proves; where a text is in a language that their tables lack, or where too much could follow, they abstain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from simia.config import Config
from simia.errors import Issue
from simia.quality.trajectory_view import TrajectoryView
from simia.quality.truth.amounts import find_wrong_amounts
from simia.quality.truth.claims import find_claimed_actions
from simia.quality.truth.consent import find_missing_consent
from simia.quality.truth.counts import find_wrong_counts
from simia.quality.truth.dates import find_wrong_dates
from simia.quality.truth.entities import find_contradicting_results, find_wrong_entities
from simia.quality.truth.facts import TruthView
from simia.quality.truth.identifiers import find_wrong_identifiers
from simia.quality.truth.lookups import find_missing_lookups
from simia.quality.truth.written_values import find_wrong_written_values
from simia.trajectory import Trajectory


class TruthChecks(Config):
    """Switches of the truth checks, which reject generated trajectories. Seeds are only reported.

    Checks that rejected correct conversations of unseen domains are off by default (docs/checks.md has the figures).
    """

    amounts: bool = False
    """Reject an answer with an amount of money that does not follow from tool results, the user's messages or the policy (`wrong_amount`)."""
    dates: bool = True
    """Reject an answer with a weekday that does not match its date, or with a date or time that does not follow from the conversation
    (`wrong_date`)."""
    counts: bool = False
    """Reject an answer that states a wrong number of rows of a tool result (`wrong_count`)."""
    answer_identifiers: bool = True
    """Reject an answer with an identifier, an e-mail address or the last digits of a card that did not occur before (`wrong_identifier`)."""
    claimed_actions: bool = True
    """Reject an answer that claims an action without a successful tool call that did it (`claimed_action`)."""
    result_entities: bool = True
    """Reject a tool result about an entity other than the one that the call named (`wrong_entity`)."""
    consistent_results: bool = True
    """Reject a tool result that contradicts an earlier one, if no call in between explains the change (`contradicting_results`)."""
    consent: bool = False
    """If the policy requires consent: reject a change unless an assistant message named it and the user agreed (`no_consent`)."""
    lookups: bool = False
    """If the policy requires a look-up, or the seed makes one: reject a change of an object that was not looked up before (`no_lookup`)."""
    written_values: bool = True
    """Reject a call that writes a value which did not occur before, and a result or answer that states a different value than the call wrote
    (`wrong_written_value`)."""


Check = Callable[[TruthView], Iterator[Issue]]
CHECKS: tuple[tuple[str, Check], ...] = (
    ("result_entities", find_wrong_entities),
    ("consistent_results", find_contradicting_results),
    ("consent", find_missing_consent),
    ("written_values", find_wrong_written_values),
    ("claimed_actions", find_claimed_actions),
    ("answer_identifiers", find_wrong_identifiers),
    ("amounts", find_wrong_amounts),
    ("dates", find_wrong_dates),
    ("counts", find_wrong_counts),
)


def find_untruths(view: TrajectoryView, checks: TruthChecks, seed: Trajectory | None = None) -> list[Issue]:
    """Return the findings of all truth checks that are on; of each check the first one."""
    facts = TruthView(view)
    issues: list[Issue] = []
    if not facts.steps:
        return issues
    for name, find in CHECKS:
        if getattr(checks, name):
            issues += find(facts)
    if checks.lookups:
        issues += find_missing_lookups(facts, seed)
    return issues
