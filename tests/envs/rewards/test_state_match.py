"""The final state against the reference's: keys that tools made up, policies, harm."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.envs.rewards import score_trajectory
from simia.errors import Code
from simia.reward_spec import Match, RewardSpec, StateSpec
from simia.state import Change, diff_states
from simia.trajectory import End, Message, ToolCall, Trajectory
from tests.properties import examples

START: dict[str, Any] = {
    "orders": {"O-1": {"status": "pending", "total": 10.0, "items": ["a", "b"]}, "O-2": {"status": "shipped"}},
    "returns": {"R-1": {"order": "O-2", "note": "old"}},
    "refunds": {},
}
POLICIES: dict[str, Match] = {"returns.*.created": "exempt", "returns.*.note": "semantic", "refunds.*.at": "exempt"}


def told(own: Any, expected: Any, *, messages: list[Message] | None = None, partial: bool = False) -> Any:
    evidence = {"changes": diff_states(START, own), "expected": diff_states(START, expected)}
    trajectory = Trajectory(messages=messages or [], evidence=evidence)
    before = orjson.dumps(evidence)
    reward = score_trajectory(trajectory, RewardSpec(parts=[StateSpec(partial=partial)]), policies=POLICIES)
    assert orjson.dumps(evidence) == before, "scoring changes nothing"
    assert reward == score_trajectory(trajectory, RewardSpec(parts=[StateSpec(partial=partial)]), policies=POLICIES)
    return reward


def state(**tables: Any) -> Any:
    made = copy.deepcopy(START)
    for table, rows in tables.items():
        made[table] |= rows
    return made


def returned(key: str, **fields: Any) -> dict[str, Any]:
    return {key: {"order": "O-1", "note": "the lamp is broken", "created": "10:30", **fields}}


def test_the_same_state_scores_one_and_no_change_where_one_is_due_scores_nothing() -> None:
    want = state(orders={"O-1": {"status": "cancelled", "total": 10, "items": ["a", "b"]}})
    assert told(want, want).value == 1
    reward = told(START, want)
    assert reward.value == 0
    assert "orders.O-1.status" in reward.rationale
    unchanged = told(START, START)
    assert (unchanged.value, unchanged.parts) == (0, {"state": 1})
    assert "nothing was to be changed" in unchanged.rationale


def test_a_reference_that_changes_only_exempt_values_verifies_nothing() -> None:
    seen, other = copy.deepcopy(START), copy.deepcopy(START)
    seen["returns"]["R-1"]["created"], other["returns"]["R-1"]["created"] = "10:30", "11:00"
    for own in (START, seen, other):
        reward = told(own, seen)
        assert (reward.value, reward.parts) == (0, {"state": 1})
        assert "nothing was to be changed" in reward.rationale
    words = copy.deepcopy(START)
    words["returns"]["R-1"]["note"] = "Old."
    assert told(words, words).value == 1, "a semantic text is compared"
    assert told(words, seen).value == 0, "nor does a change that is not seen as one earn anything"


def test_what_the_reference_leaves_alone_must_stay() -> None:
    want = state(orders={"O-1": {**START["orders"]["O-1"], "status": "cancelled"}})
    harm = copy.deepcopy(want)
    harm["orders"]["O-2"]["status"] = "lost"
    reward = told(harm, want)
    assert reward.value == 0
    assert "orders.O-2.status changes, which was not expected" in reward.rationale
    assert told(harm, want, partial=True).value == 0.5


def test_a_made_up_key_may_be_another_and_is_followed_everywhere() -> None:
    want = state(returns=returned("R-7001"), refunds={"F-1": {"return": "R-7001", "amount": 5, "at": "x"}})
    own = state(
        returns=returned("R-9009", created="11:00"), refunds={"F-9": {"return": "R-9009", "amount": 5.0, "at": "y"}}
    )
    assert told(own, want).value == 1
    own["refunds"]["F-9"]["return"] = "R-1"
    reward = told(own, want)
    assert reward.value == 0
    assert "return" in reward.rationale


def test_a_key_that_the_agent_gave_is_meant() -> None:
    """It named the key before any result did: another key is another row."""
    want, own = state(returns=returned("R-7001")), state(returns=returned("R-9009"))
    call = ToolCall(id="1", name="put", arguments={"key": "R-9009"})
    given_first = [
        Message(role="assistant", calls=[call]),
        Message(role="tool", call_id="1", content='{"key":"R-9009"}'),
    ]
    assert told(own, want, messages=given_first).value == 0
    shown = Message(role="tool", call_id="0", content='{"made":"R-9009"}')
    shown_first = [Message(role="assistant", calls=[ToolCall(id="0", name="make", arguments={})]), shown, *given_first]
    assert told(own, want, messages=shown_first).value == 1


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ({"room": 205, "day": "2031-01-01"}, "205:2031-01-01", 0),
        ({"sku": "tea-9"}, "TEA-9", 0),
        ({"script": "cd /tmp\nR-9009"}, "R-9009", 0),
        ({"rows": [{"kind": "R", "n": 77}]}, "R_77", 0),
        ({"order": "O-1", "count": 2}, "O-9009", 1),  # a counter or a random id
        ({"R": "x", "n": 5}, "R-5", 1),  # the name of an argument is not the agent's choice
        ({"note": "9009"}, "R-9009", 1),
    ],
)
def test_a_key_that_a_tool_composes_of_the_arguments_is_the_agents_choice(
    arguments: dict[str, Any], key: str, value: int
) -> None:
    messages = [
        Message(role="assistant", calls=[ToolCall(id="1", name="put", arguments=arguments)]),
        Message(role="tool", call_id="1", content=f"made {key}"),
    ]
    assert told(state(returns=returned(key)), state(returns=returned("R-7001")), messages=messages).value == value


def test_rows_that_were_made_in_another_order_are_told_apart_by_what_they_hold() -> None:
    want = state(returns={**returned("R-1001", order="O-1"), **returned("R-1002", order="O-2")})
    own = state(returns={**returned("R-1001", order="O-2"), **returned("R-1002", order="O-1")})
    assert told(own, want).value == 1
    both = state(returns={**returned("R-1001", order="O-1"), **returned("R-1002", order="O-1")})
    assert told(both, want).value == 0


def test_equal_rows_are_told_apart_by_who_mentions_them() -> None:
    def world(a: str, b: str) -> Any:
        return state(
            returns={**returned("R-1001"), **returned("R-1002")},
            refunds={"F-1": {"return": a, "amount": 1}, "F-2": {"return": b, "amount": 2}},
        )

    assert told(world("R-1002", "R-1001"), world("R-1001", "R-1002")).value == 1
    assert told(world("R-1001", "R-1001"), world("R-1001", "R-1002")).value == 0


@pytest.mark.parametrize(
    ("note", "same"),
    [
        ("The lamp is broken.", True),
        ("lamp broken", True),
        ("the lamp is NOT broken", False),
        ("the lamp isn't broken", False),
        ("THE LÁMP IS BROKEN", True),
        ("2 lamps are broken", False),
        ("wrong size", False),
        ("", False),
    ],
)
def test_a_semantic_text_is_compared_by_its_words(note: str, same: bool) -> None:
    assert (told(state(returns=returned("R-5", note=note)), state(returns=returned("R-5"))).value == 1) is same


def test_which_of_two_rows_is_whose_may_depend_on_their_words_alone() -> None:
    want = state(returns={**returned("R-11", note="lamp broken"), **returned("R-12", note="cup chipped")})
    own = state(returns={**returned("R-21", note="the cup is chipped"), **returned("R-22", note="a broken lamp")})
    assert told(own, want).value == 1


def test_missing_evidence_is_no_zero() -> None:
    cases: list[dict[str, Any] | None] = [None, {}, {"changes": []}]
    for evidence in cases:
        reward = score_trajectory(Trajectory(evidence=evidence), RewardSpec())
        assert (reward.value, reward.error) == (None, Code.UNSCORED)


def test_an_aborted_episode_has_no_value_and_a_truncated_one_is_scored() -> None:
    change: list[Change] = [{"path": ["a"], "new": 1}]
    evidence = {"changes": change, "expected": change}
    aborted = Trajectory(end=End(kind="aborted", code=Code.WORKER_LOST), evidence=evidence)
    assert score_trajectory(aborted, RewardSpec()).error is Code.WORKER_LOST
    assert score_trajectory(aborted, RewardSpec()).value is None
    assert score_trajectory(Trajectory(end=End(kind="truncated"), evidence=evidence), RewardSpec()).value == 1


ROWS = st.dictionaries(
    st.integers(1000, 9999).map(lambda n: f"R-{n}"),
    st.fixed_dictionaries(
        {"order": st.sampled_from(["O-1", "O-2"]), "count": st.integers(0, 3), "tag": st.text("ab", max_size=2)}
    ),
    min_size=1,
    max_size=8,
)


@given(ROWS, st.randoms(use_true_random=False))
@examples(80)
def test_renaming_made_up_keys_changes_nothing_and_changing_one_field_does(rows: dict[str, Any], source: Any) -> None:
    fresh = [f"N-{i:04d}" for i in range(len(rows))]
    source.shuffle(fresh)
    names = dict(zip(rows, fresh, strict=True))
    links = {f"F-{i}": {"of": key} for i, key in enumerate(rows)}
    own = state(
        returns={names[key]: dict(row) for key, row in rows.items()},
        refunds={f"G-{i}": {"of": names[link["of"]]} for i, link in enumerate(links.values())},
    )
    want = state(returns=rows, refunds=links)
    assert told(own, want).value == 1
    victim = source.choice(list(names.values()))
    own["returns"][victim]["count"] += 1
    others = sorted(orjson.dumps(row) for row in own["returns"].values())
    expected = sorted(orjson.dumps(row) for row in want["returns"].values())
    assert others != expected
    assert told(own, want).value == 0
