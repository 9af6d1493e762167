"""Derive how the columns that a chain changes are compared (ScaleEnv §4.1.1, Reward Specification).

Values that the user states are compared exactly ("hard" in the paper); times that a tool makes are exempt; free text is compared by
meaning. All other columns are compared exactly, too. Ids of new rows need no policy: the state reward pairs rows whose keys tools made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from simia.envs.rewards.compare_values import find_policy, split_words
from simia.json_values import iterate_plain_values
from simia.reward_spec import Match
from simia.state import Change
from simia.state_schema import StateSchema
from simia.task import Action

MOMENT = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}.*")
FREE_TEXT = 4  # a text with at least this many words may be worded differently


def derive_policies(
    schema: StateSchema, state: Mapping[str, Any], calls: Sequence[Action], changes: Sequence[Change]
) -> dict[str, Match]:
    """Return column → match policy, for columns that the chain changes and whose policy must differ from that of the schema.

    Args:
        schema: the schema of the state, with the policies that the environment's design proposes.
        state: the initial state.
        calls: the calls of the chain, with literal arguments.
        changes: what the chain changes.
    """
    given = schema.list_policies()
    stated = [leaf for call in calls for leaf in iterate_plain_values(call.arguments)]
    stored = set(map(str, iterate_plain_values(dict(state))))
    columns: dict[str, list[Any]] = {}
    for path, value in list_changed_values(changes):
        if len(path) >= 3 and schema.find_table(list(path)):
            columns.setdefault(f"{path[0]}.*.{path[2]}", []).extend(iterate_plain_values(value))
    found: dict[str, Match] = {}
    for column, values in columns.items():
        policy = choose_policy([value for value in values if value is not None], stated, stored)
        before = find_policy(tuple(column.split(".")), given)
        if policy is None:
            policy = "exact" if before == "exempt" and any(value in stated for value in values) else before
        if policy != before:
            found[column] = policy
    return found


def choose_policy(values: Sequence[Any], stated: Sequence[Any], stored: set[str]) -> Match | None:
    """Return the policy that follows from the values of a column; None if none does."""
    texts = [value for value in values if isinstance(value, str)]
    if any(MOMENT.fullmatch(text) and not states_text(stated, text) for text in texts):
        return "exempt"
    if any(count_plain_words(text) >= FREE_TEXT and text in stated and text not in stored for text in texts):
        return "semantic"
    return None


def count_plain_words(text: str) -> int:
    """Count the words without digits in a text; a time has none."""
    return sum(word.isalpha() for word in split_words(text))


def states_text(stated: Sequence[Any], text: str) -> bool:
    """Whether a call gives a text, or its day and time."""
    return any(isinstance(each, str) and len(each) > 9 and (each in text or text in each) for each in stated)


def list_changed_values(changes: Sequence[Change]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and value of each changed column; a new row gives one pair for each of its columns."""
    for change in changes:
        path, new = tuple(map(str, change["path"])), change.get("new")
        if len(path) == 2 and isinstance(new, Mapping):
            yield from (((*path, str(column)), value) for column, value in new.items())
        elif "new" in change:
            yield path, new
