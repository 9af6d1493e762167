"""New rows with made-up keys: what may be renamed, what never, and how many there may be."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simia.envs.rewards import score_trajectory
from simia.envs.rewards.call_matching import assign_pairs, match_calls
from simia.reward_spec import Match, RewardSpec, StateSpec
from simia.state import diff_states
from simia.trajectory import Trajectory
from tests.properties import examples


def told(start: Any, own: Any, want: Any, policies: dict[str, Match] | None = None, partial: bool = False) -> Any:
    trajectory = Trajectory(evidence={"changes": diff_states(start, own), "expected": diff_states(start, want)})
    return score_trajectory(trajectory, RewardSpec(parts=[StateSpec(partial=partial)]), policies=policies)


ROW = {"order": "O-1", "count": 1}


def test_a_row_too_many_does_not_hide_behind_the_right_one() -> None:
    """The agent's second row bears the first one's right content, and its first the reference's key."""
    own = {"rows": {"R-1": {"order": "O-9"}, "R-2": ROW}}
    reward = told({"rows": {}}, own, {"rows": {"R-1": ROW}})
    assert reward.value == 0
    assert "not expected" in reward.rationale


def test_a_reference_to_nothing_is_not_read_as_one_to_the_right_row() -> None:
    start: dict[str, Any] = {"rows": {}, "last": "", "all": []}
    want = {"rows": {"R-1": ROW}, "last": "R-1", "all": ["x", "R-1"]}
    assert told(start, {"rows": {"R-7": ROW}, "last": "R-7", "all": ["x", "R-7"]}, want).value == 1
    assert told(start, {"rows": {"R-7": ROW}, "last": "R-1", "all": ["x", "R-7"]}, want).value == 0
    assert told(start, {"rows": {"R-7": ROW}, "last": "R-7", "all": ["x", "R-1"]}, want).value == 0


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ({"lost": True}, {"cancelled": True}),
        ({"refund": {"sum": 1}}, {"exchange": {"sum": 1}}),
        ({"2025-05-14": {"sum": 1}}, {"2025-05-15": {"sum": 1}}),
        ({"10:30": {"sum": 1}}, {"11:30": {"sum": 1}}),
        ({"K-1": "booked"}, {"K-2": "booked"}),
    ],
)
def test_columns_days_and_values_are_no_made_up_rows(mine: Any, theirs: Any) -> None:
    assert told({"orders": {"O-1": {}}}, {"orders": {"O-1": mine}}, {"orders": {"O-1": theirs}}).value == 0


def test_two_tables_that_share_a_key_are_renamed_together() -> None:
    start: dict[str, Any] = {"orders": {}, "payments": {}}
    want = {"orders": {"X-1": {"a": 1}, "X-2": {"a": 1}}, "payments": {"X-1": {"sum": 1}, "X-2": {"sum": 2}}}
    own = {"orders": {"X-8": {"a": 1}, "X-9": {"a": 1}}, "payments": {"X-8": {"sum": 2}, "X-9": {"sum": 1}}}
    assert told(start, own, want).value == 1
    own["payments"]["X-7"] = own["payments"].pop("X-8")
    assert told(start, own, want).value == 0


def test_rows_at_the_end_of_a_list_may_bear_another_id_but_keep_their_order() -> None:
    start: dict[str, Any] = {"log": [{"id": "T-1", "n": 0}], "last": None}

    def world(*rows: tuple[str, int], last: str) -> Any:
        return {"log": [*start["log"], *({"id": key, "n": n} for key, n in rows)], "last": last}

    want = world(("T-2", 1), ("T-3", 2), last="T-3")
    assert told(start, world(("T-8", 1), ("T-7", 2), last="T-7"), want).value == 1
    assert told(start, world(("T-8", 1), ("T-7", 2), last="T-8"), want).value == 0
    assert told(start, world(("T-8", 2), ("T-7", 1), last="T-7"), want).value == 0
    assert (
        "log.2: expected {'id': 'T-3', 'n': 2}, is absent" in told(start, world(("T-2", 1), last="T-3"), want).rationale
    )


def test_rows_that_fit_nothing_exactly_are_paired_with_the_nearest() -> None:
    want = {"rows": {"R-1": {"a": 1, "b": 2, "c": 3}, "R-2": {"a": 4, "b": 5, "c": 6}}}
    own = {"rows": {"R-8": {"a": 4, "b": 5, "c": 0}, "R-9": {"a": 1, "b": 2, "c": 3.0000000000001}}}
    reward = told({"rows": {}}, own, want, partial=True)
    assert reward.value == 0.5
    assert reward.rationale == "state: rows.R-2.c: expected 6, is 0"


def test_words_that_are_alike_without_being_the_same_are_shared_out_as_well_as_can_be() -> None:
    """`red cup` is like `red lamp` alone, so that the equal of that one has to go with `lamp shade`."""
    policies: dict[str, Match] = {"rows.*.note": "semantic"}
    want = {"rows": {"R-1": {"note": "red lamp"}, "R-2": {"note": "lamp shade"}}}
    own = {"rows": {"R-8": {"note": "red lamp"}, "R-9": {"note": "red cup"}}}
    assert told({"rows": {}}, own, want, policies).value == 1


def test_a_policy_holds_for_all_that_lies_below_it_wherever_the_change_is_reported() -> None:
    start = {"orders": {"O-1": {"meta": {"at": 1, "by": {"id": 5}}}}}
    own, want = copy.deepcopy(start), copy.deepcopy(start)
    own["orders"]["O-1"]["meta"] = {"at": 2, "by": {"id": 5}}
    want["orders"]["O-1"]["meta"] = {"at": 3, "by": {"id": 5}}
    assert told(start, own, want).value == 0
    assert told(start, own, want, {"orders.*.meta": "exempt"}).parts == {"state": 1}
    own["orders"]["O-1"]["meta"]["by"] = {"id": 6}
    assert told(start, own, want, {"orders.*.meta": "exempt"}).parts == {"state": 1}
    assert told(start, own, want, {"orders.*.meta": "exempt", "orders.*.meta.by": "exact"}).parts == {"state": 0}


def test_a_text_that_was_not_changed_may_already_say_what_is_expected() -> None:
    start, policies = {"note": "The lamp is broken"}, {"note": "semantic"}
    assert told(start, start, {"note": "the lamp is broken!"}, policies).value == 1  # type: ignore[arg-type]
    reward = told(start, start, {"note": "the lamp works"})
    assert reward.rationale == "state: note: expected 'the lamp works', is 'The lamp is broken'"


def test_numbers_that_no_float_holds_are_compared_as_they_are() -> None:
    big = 10**400
    assert told({"rows": {}}, {"rows": {"R-1": {"n": big}}}, {"rows": {"R-2": {"n": big}}}).value == 1
    assert told({"rows": {}}, {"rows": {"R-1": {"n": big}}}, {"rows": {"R-2": {"n": big + 1}}}).value == 0
    assert told({"n": 0}, {"n": big}, {"n": 1.5}).value == 0


@pytest.mark.parametrize("linked", [False, pytest.param(True, marks=pytest.mark.all)])
def test_as_many_rows_as_an_agent_likes(linked: bool) -> None:
    """Equal rows, more than Python's stack is deep, each mentioned by one of its own."""
    count = 1100

    def world(seed: int) -> Any:
        keys = [f"K-{seed}{i:05d}" for i in range(count)]
        random.Random(seed).shuffle(keys)
        links = {f"L-{seed}{i:05d}": {"of": key} for i, key in enumerate(keys)}
        return {"rows": {key: {"a": 1} for key in keys}, "links": links if linked else {}}

    start: dict[str, Any] = {"rows": {}, "links": {}}
    assert told(start, world(1), world(2)).value == 1
    own = world(1)
    if linked:
        one, two, *_ = own["links"].values()
        one["of"] = two["of"]
    else:
        own["rows"].popitem()
    assert told(start, own, world(2)).value == 0


SMALL = st.integers(1, 5)


@given(SMALL, SMALL, st.data())
@examples(150)
def test_pairs_are_as_many_and_as_cheap_as_can_be(rows: int, columns: int, data: st.DataObject) -> None:
    """Against every way there is."""
    cost = [[data.draw(st.integers(0, 4)) for _ in range(columns)] for _ in range(rows)]
    found = assign_pairs(cost)
    assert len({i for i, _ in found}) == len({j for _, j in found}) == len(found) == min(rows, columns)
    wide = cost if rows <= columns else [list(column) for column in zip(*cost, strict=True)]
    ways = [list(enumerate(way)) for way in itertools.permutations(range(len(wide[0])), len(wide))]
    assert sum(cost[i][j] for i, j in found) == min(sum(wide[i][j] for i, j in way) for way in ways)
    pairs = match_calls(range(rows), range(columns), lambda i, j: cost[i][j] == 0)
    assert all(cost[i][j] == 0 for i, j in pairs.items())
    assert len(set(pairs.values())) == len(pairs) == max(sum(wide[i][j] == 0 for i, j in way) for way in ways)


KEYS = st.lists(st.integers(100, 999), min_size=2, max_size=6, unique=True)


@given(KEYS, st.randoms(use_true_random=False), st.lists(st.integers(0, 1), min_size=6, max_size=6))
@examples(150)
def test_renaming_consistently_is_nothing_and_inconsistently_something(
    keys: list[int], chance: Any, kinds: Any
) -> None:
    """Rows in a chain, each naming the next within a list; many are equal but for their names."""
    fresh = list(keys)
    chance.shuffle(fresh)  # the same names for other rows, the hardest case

    def world(names: list[int]) -> Any:
        rows = {f"R-{name}": {"kind": kinds[i]} for i, name in enumerate(names)}
        chain = {
            f"C-{name}": {"next": [f"R-{a}", f"R-{b}"]} for name, a, b in zip(names, names, names[1:], strict=False)
        }
        return {"rows": rows, "chain": chain}

    start: dict[str, Any] = {"rows": {}, "chain": {}}
    want, own = world(keys), world(fresh)
    assert told(start, own, want).value == 1
    chance.choice(list(own["chain"].values()))["next"][0] = "R-1"
    assert told(start, own, want).value == 0
