"""Scores of a simulator's reply: exact changes by the state they lead to, F1 of the observation, nothing for what is always the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from simia.evaluation.simulator_score import SimulatorTruth, make_truth, score_reply
from simia.state_schema import StateSchema

SCHEMA = StateSchema.model_validate(
    {
        "tables": {
            "orders": {"columns": {"by": {"references": "people"}}},
            "people": {},
            "log": {"path": "more.log", "key": "n"},
        }
    }
)
BEFORE = {
    "orders": {"O-1": {"status": "open", "total": 5, "to": {"city": "Ulm"}}, "O-2": {"status": "open"}},
    "people": {"P-1": {"name": "Ann"}},
    "more": {"log": [{"n": "1", "text": "a"}]},
}  # fmt: skip
AFTER = {
    **BEFORE,
    "orders": {"O-1": {"status": "cancelled", "total": 5, "to": {"city": "Ulm"}}},
    "more": {"log": [{"n": "1", "text": "a"}, {"n": "2", "text": "b"}]},
}
DONE = {"order_id": "O-1", "status": "cancelled"}
CHANGES: list[dict[str, Any]] = [
    {"table": "orders", "key": "O-1", "set": {"status": "cancelled"}},
    {"table": "orders", "key": "O-2", "set": None},
    {"table": "log", "key": "2", "set": {"n": "2", "text": "b"}},
]


def reply(content: Any, changes: Any = (), outcome: str = "result") -> str:
    return json.dumps({"answers": [{"call": 1, "outcome": outcome, "content": content, "changes": list(changes)}]})


@pytest.fixture
def written() -> SimulatorTruth:
    return make_truth(DONE, False, BEFORE, AFTER, SCHEMA)


def test_a_truth_keeps_the_rows_that_change(written: SimulatorTruth) -> None:
    assert written.before == {"orders": BEFORE["orders"], "more": BEFORE["more"]}
    assert (written.delta, len(written.changes)) == (4, 3)
    assert SimulatorTruth.model_validate_json(written.model_dump_json(exclude_defaults=True)) == written


@pytest.mark.parametrize(
    ("changes", "exact"),
    [
        (CHANGES, True),
        (CHANGES[::-1], True),
        ([{**CHANGES[0], "set": {"status": "cancelled", "total": 5.0}}, *CHANGES[1:]], True),  # names what stays
        (CHANGES[:2], False),
        ([{**CHANGES[0], "set": {"status": "shipped"}}, *CHANGES[1:]], False),
        ([*CHANGES, {"table": "people", "key": "P-1", "set": {"name": "Bob"}}], False),
        ([*CHANGES, {"table": "people", "key": "P-9", "set": None}], False),
    ],
)
def test_changes_are_exact_if_they_lead_to_the_true_state(
    written: SimulatorTruth, changes: list[dict[str, Any]], exact: bool
) -> None:
    score = score_reply(reply(DONE, changes), written)
    assert (score.exact, score.f1, score.reward) == (exact, 1.0, 1.0 if exact else 0.5)


def test_half_an_observation_has_half_its_values(written: SimulatorTruth) -> None:
    score = score_reply(reply({"order_id": "O-1", "status": "open"}, CHANGES), written)
    assert (score.f1, score.reward) == (0.5, 0.75)


def test_a_look_up_earns_its_observation_unless_it_changes_something() -> None:
    truth = make_truth({"name": "Ann"}, False, BEFORE, BEFORE, SCHEMA)
    assert score_reply(reply({"name": "Ann"}), truth).reward == 1
    assert score_reply(reply({"name": "Ann"}, CHANGES[:1]), truth).reward == 0
    assert score_reply(reply({}), truth).reward == 0
    empty = make_truth([], False, BEFORE, BEFORE, SCHEMA)
    assert [score_reply(reply(content), empty).reward for content in ([], [1], {})] == [1, 0, 0]


def test_a_refusal_earns_its_words() -> None:
    truth = make_truth({"error": "there is no O-9"}, True, BEFORE, BEFORE, SCHEMA)
    rewards = [
        score_reply(reply(words, outcome="error"), truth).reward for words in ("there is no O-9", "no O-7", "sorry")
    ]
    assert rewards[0] == 1
    assert 0 < rewards[1] < 1
    assert rewards[2] == 0
    assert not score_reply(reply({"error": "there is no O-9"}), truth).outcome


@pytest.mark.parametrize("text", ["", "no", '{"answers": []}', reply(DONE, [{"table": "orders"}]), reply(DONE, [3])])
def test_what_cannot_be_read_earns_nothing(written: SimulatorTruth, text: str) -> None:
    assert score_reply(text, written).model_dump() == {
        "readable": False, "outcome": False, "exact": False, "f1": 0.0, "reward": 0.0,
    }  # fmt: skip
