"""Score one reply of a simulator against the real result and changes: the observation by F1 of its values, the changes by the next state.

If the call changes something, observation and changes count half each. If it only reads, only the observation counts, and any reported
change makes the score 0. A right refusal counts by the F1 of its words; a wrong refusal or success scores 0.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from simia.envs.worlds.simulated.feedback import Answer, UnreadableAnswer, parse_answers
from simia.evaluation.fidelity import iterate_leaves
from simia.keyed_changes import (
    ChangeError,
    KeyedChange,
    apply_keyed_changes,
    compute_keyed_changes,
    find_place,
    parse_keyed_changes,
)
from simia.state import are_equal, count_leaf_changes
from simia.state_schema import StateSchema, TableSpec

WORD = re.compile(r"\w+")


class SimulatorTruth(BaseModel):
    """The true result and changes of a call, as far as a score needs them."""

    model_config = ConfigDict(extra="forbid")

    failed: bool = Field(description="Whether the call was refused.")
    content: Any = Field(description="What it returned; of a refusal an object with `error`.")
    before: dict[str, Any] = Field(
        default_factory=dict, description="The rows of the state that it changed, as they were before."
    )
    changes: list[dict[str, Any]] = Field(default_factory=list, description="Its changes, keyed.")
    delta: int = Field(description="Leaf fields that it added, removed or changed.")
    tables: StateSchema = Field(default_factory=StateSchema, description="The tables of `before` in the pack's schema.")


class SimulatorScore(BaseModel):
    """The score of one reply."""

    readable: bool = Field(description="Whether the reply has the form that the prompt asks for.")
    outcome: bool = Field(False, description="Whether it refuses what was refused, and nothing else.")
    exact: bool = Field(False, description="Whether its changes lead to the true state.")
    f1: float = Field(0.0, description="F1 of the values of the observation; of a refusal F1 of its words.")
    reward: float = Field(0.0, description="One number for training, 0 to 1.")


def make_truth(content: Any, failed: bool, before: Any, after: Any, schema: StateSchema | None) -> SimulatorTruth:
    """Make the truth of one call. `before`, `after`: the whole states before and after it."""
    changes = compute_keyed_changes(before, after, schema)
    touched = {change["table"] for change in changes}
    known = (schema or StateSchema()).tables.items()
    tables = {name: TableSpec(path=spec.path, key=spec.key) for name, spec in known if name in touched}
    return SimulatorTruth(
        failed=failed,
        content=content,
        before=select_rows(before, changes, schema or StateSchema()),
        changes=changes,
        delta=count_leaf_changes(before, after),
        tables=StateSchema(tables=tables),
    )


def select_rows(state: Any, changes: Iterable[KeyedChange], schema: StateSchema) -> dict[str, Any]:
    """Return the rows of a state that the changes name; a table that is not a mapping of rows is returned whole."""
    found: dict[str, Any] = {}
    for change in changes:
        steps, _ = find_place(change["table"], schema)
        table, place = state, found
        for step in steps:
            table = table.get(step) if isinstance(table, dict) else None
        if table is None:
            continue
        for step in steps[:-1]:
            place = place.setdefault(step, {})
        if isinstance(table, dict) and change["key"] is not None:
            rows = place.setdefault(steps[-1], {})
            if change["key"] in table:
                rows[change["key"]] = table[change["key"]]
        else:
            place[steps[-1]] = table
    return found


def score_reply(text: str, truth: SimulatorTruth) -> SimulatorScore:
    """Score a reply. An unreadable one scores 0."""
    try:
        (answer,) = parse_answers(text, 1, parse_keyed_changes)
    except UnreadableAnswer:
        return SimulatorScore(readable=False)
    if answer.failed != truth.failed:
        return SimulatorScore(readable=True)
    exact = leads_to_truth(answer.changes, truth)
    f1 = compare_observations(answer, truth)
    reward = (f1 + exact) / 2 if truth.delta else f1 * exact
    return SimulatorScore(readable=True, outcome=True, exact=exact, f1=f1, reward=reward)


def leads_to_truth(changes: list[KeyedChange], truth: SimulatorTruth) -> bool:
    """Whether changes lead to the same state as the true ones. Only rows with true changes are known here, so changes of other rows are
    never exact."""
    try:
        wanted = apply_keyed_changes(truth.before, truth.changes, truth.tables)
        return are_equal(apply_keyed_changes(truth.before, changes, truth.tables), wanted)
    except ChangeError:
        return False


def compare_observations(answer: Answer, truth: SimulatorTruth) -> float:
    """Compute the F1 of the values of both observations; for refusals, of their words."""
    if truth.failed:
        pair = [Counter(WORD.findall(read_refusal(content).casefold())) for content in (answer.content, truth.content)]
    else:
        pair = [Counter(iterate_leaves(content)) for content in (answer.content, truth.content)]
    total = sum(each.total() for each in pair)
    if not total:
        return float(are_equal(answer.content, truth.content))
    return 2 * (pair[0] & pair[1]).total() / total


def read_refusal(content: Any) -> str:
    """The words of a refusal."""
    words = content.get("error", content) if isinstance(content, dict) else content
    return words if isinstance(words, str) else json.dumps(words)
