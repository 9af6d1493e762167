"""Keyed changes: read from a reply, computed between states, applied, checked against a schema, counted."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simia.keyed_changes import (
    CHANGES_SCHEMA,
    ChangeError,
    apply_keyed_changes,
    check_keyed_changes,
    compute_keyed_changes,
    parse_keyed_changes,
)
from simia.pack import Pack
from simia.state import count_leaf_changes, diff_states
from simia.state_schema import StateSchema
from simia.tool import compile_schema
from tests.properties import examples
from tests.test_state import STATES

SHIPPED = ("customer_service", "hotel_front_desk", "job_seeking")
VALUES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "a/b", "~1"])
ROWS = st.dictionaries(st.sampled_from(["id", "a", "a/b", "~0", ""]), VALUES | st.lists(VALUES, max_size=3), max_size=4)
LISTS = StateSchema.model_validate(
    {"tables": {"orders": {"path": "db.orders", "key": "id"}, "log": {}, "names": {"path": "db.deep.names"}}}
)
LIST_STATES = st.fixed_dictionaries(
    {},
    optional={
        "db": VALUES
        | st.fixed_dictionaries(
            {},
            optional={
                "orders": st.lists(ROWS, max_size=4) | st.dictionaries(st.sampled_from(["1", "2", ""]), ROWS),
                "deep": VALUES | st.fixed_dictionaries({"names": st.dictionaries(st.sampled_from("ab"), VALUES)}),
                "rest": ROWS,
            },
        ),
        "log": st.lists(ROWS | VALUES, max_size=4),
        "a/b": ROWS,
    },
)


@cache
def load(name: str) -> tuple[dict[str, Any], StateSchema]:
    pack = Pack.load(name)
    path, schema = pack.path_of("state"), pack.file.state_schema if pack.file else None
    assert path is not None
    assert schema is not None
    return orjson.loads(path.read_bytes()), schema


@st.composite
def shipped_pairs(draw: st.DrawFn) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A shipped pack's state and a random other one: values replaced, rows and fields added and removed anywhere."""
    name = draw(st.sampled_from(SHIPPED))
    before = load(name)[0]
    after = copy.deepcopy(before)
    for _ in range(draw(st.integers(0, 6))):
        place: Any = after
        while isinstance(place, dict | list) and place:
            step = (
                draw(st.sampled_from(sorted(place)))
                if isinstance(place, dict)
                else draw(st.integers(0, len(place) - 1))
            )
            inner = place[step]
            if not isinstance(inner, dict | list) or not inner or (place is not after and draw(st.booleans())):
                break
            place = inner
        else:
            continue
        new = draw(VALUES | ROWS | st.lists(VALUES, max_size=3))
        how = draw(st.sampled_from(["replace", "remove", "add", "copy"]))
        if how == "remove":
            del place[step]
        elif isinstance(place, list):
            place.insert(len(place) if how == "add" else step, copy.deepcopy(place[step]) if how == "copy" else new)
        else:
            place["NEW/1" if how in ("add", "copy") else step] = copy.deepcopy(place[step]) if how == "copy" else new
    return name, before, after


def check_round_trip(before: dict[str, Any], after: dict[str, Any], schema: StateSchema | None) -> None:
    kept = copy.deepcopy(before)
    changes = compute_keyed_changes(before, after, schema)
    assert compile_schema(CHANGES_SCHEMA).errors(changes) == []
    read = parse_keyed_changes(json.loads(json.dumps(changes)))
    assert read == changes
    assert diff_states(apply_keyed_changes(before, read, schema), after) == []
    assert before == kept
    assert (changes == []) == (diff_states(before, after) == []) == (count_leaf_changes(before, after) == 0)


@given(shipped_pairs())
@examples(150)
def test_changes_of_shipped_packs_lead_to_the_state_that_they_were_computed_from(
    pair: tuple[str, dict[str, Any], dict[str, Any]],
) -> None:
    name, before, after = pair
    check_round_trip(before, after, load(name)[1])
    check_round_trip(before, after, None)


@given(STATES, STATES)
@examples(150)
def test_changes_between_any_states(before: dict[str, Any], after: dict[str, Any]) -> None:
    check_round_trip(before, after, None)


@given(LIST_STATES, LIST_STATES)
@example({"db": {"orders": [{"id": 1, "a": [1]}]}}, {"db": {"orders": [{"id": 1, "a": [1, 2]}, {"id": "2"}]}})
@example({"db": {"orders": [{"id": 1}, {"id": 2}]}}, {"db": {"orders": [{"id": 2}]}})
@example({"db": {"orders": [{"id": 1}, {"id": 2}]}}, {"db": {"orders": [{"id": 2}, {"id": 1}]}})
@examples(150)
def test_changes_of_lists_of_rows_and_of_tables_below_the_top(before: dict[str, Any], after: dict[str, Any]) -> None:
    check_round_trip(before, after, LISTS)


def test_the_form_of_changes() -> None:
    before = {
        "orders": {"O-1": {"status": "open", "note": "n", "to": {"city": "Ulm", "zip": "1"}, "log": ["a"]}, "O-2": {}},
        "count": 1,
        "names": {"n": "x"},
    }
    after = {
        "orders": {
            "O-1": {"status": "shut", "to": {"city": "Bonn", "zip": "1"}, "log": ["a", "b"]},
            "O-3": {"a": {"b": 1}},
        },
        "count": 2,
        "names": {"n": "y"},
    }
    assert compute_keyed_changes(before, after) == [
        {
            "table": "orders",
            "key": "O-1",
            "set": {"status": "shut", "to/city": "Bonn", "log/1": "b"},
            "unset": ["note"],
        },
        {"table": "orders", "key": "O-2", "set": None},
        {"table": "orders", "key": "O-3", "set": {"a": {"b": 1}}},
        {"table": "count", "key": None, "value": 2},
        {"table": "names", "key": "n", "value": "y"},
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"table": "t"}, "is a list"),
        ([{"key": "k", "set": {}}], 'an object with "table"'),
        ([{"table": "t", "key": ["k"], "set": {}}], "key of a row"),
        ([{"table": "t", "key": "k", "set": [1]}], '"set" is an object'),
        ([{"table": "t", "key": "k"}], '"set": null, which deletes'),
        ([{"table": "t", "key": None, "set": {"a": 1}}], "whole table"),
        ([{"table": "t", "key": "k", "set": {}, "unset": "a"}], "list of names"),
        ([{"table": "t", "key": "k", "set": {}, "value": 1}], "replaces the whole row"),
    ],
)
def test_what_is_no_list_of_changes_is_refused(value: Any, words: str) -> None:
    with pytest.raises(ChangeError, match=words):
        parse_keyed_changes(value)


def test_what_a_model_may_write_otherwise() -> None:
    assert parse_keyed_changes(None) == []
    assert parse_keyed_changes([{"table": "t", "key": 7, "unset": ["a"], "why": "…"}]) == [
        {"table": "t", "key": "7", "set": {}, "unset": ["a"]}
    ]


SHOP = StateSchema.model_validate(
    {
        "tables": {
            "customers": {"columns": {"email": {"required": True, "unique": True}}},
            "orders": {
                "columns": {
                    "customer_id": {"required": True, "references": "customers"},
                    "status": {"values": {"enum": ["open", "shut"]}},
                }
            },
        }
    }
)
STATE: dict[str, Any] = {
    "customers": {"C-1": {"email": "a@b.c"}},
    "orders": {"O-1": {"customer_id": "C-1", "status": "open"}, "O-9": {"customer_id": "C-0", "status": "open"}},
    "count": 1,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": "order", "key": "O-1", "set": {"status": "shut"}}, "no table 'order'; did you mean orders?"),
        ({"table": "order", "key": None, "value": {}}, "no table 'order'"),
        ({"table": "orders", "key": "O-2", "set": None}, "orders O-2 cannot be deleted"),
        ({"table": "orders", "key": "O-1", "set": {}, "unset": ["note"]}, "orders O-1 has no field 'note'"),
        ({"table": "orders", "key": "O-1", "set": {"to/city": "Ulm"}}, "has no place 'to/city': 'to' is not there"),
        ({"table": "orders", "key": "O-1", "set": {"status": "lost"}}, "orders.status: row O-1"),
        ({"table": "orders", "key": "O-2", "set": {"status": "open"}}, "orders.customer_id: row O-2 lacks it"),
        (
            {"table": "orders", "key": "O-1", "set": {"customer_id": "C-7"}},
            "refers to 'C-7', which is not in customers",
        ),
        ({"table": "customers", "key": "C-2", "set": {"email": "a@b.c"}}, "rows C-1 and C-2 have the same value"),
        ({"table": "customers", "key": "C-1", "set": None}, "row O-1 refers to 'C-1'"),
        ({"table": "count", "key": "x", "set": {}}, 'name its new "value"'),
    ],
)
def test_changes_that_do_not_fit_are_refused_with_a_reason(change: dict[str, Any], words: str) -> None:
    kept = copy.deepcopy(STATE)
    state, wrong = check_keyed_changes(STATE, [change], SHOP)
    assert words in "; ".join(wrong)
    assert state is STATE
    assert kept == STATE


def test_changes_that_fit_are_applied_and_older_faults_are_not_theirs() -> None:
    changes = [
        {"table": "orders", "key": "O-1", "set": {"status": "shut"}},
        {"table": "orders", "key": "O-2", "set": {"customer_id": "C-1"}},
        {"table": "count", "key": None, "value": 2},
    ]
    state, wrong = check_keyed_changes(STATE, changes, SHOP, writes=["orders", "count"])
    assert wrong == []
    assert (state["orders"]["O-1"]["status"], state["orders"]["O-2"], state["count"]) == (
        "shut",
        {"customer_id": "C-1"},
        2,
    )
    assert state["customers"] is STATE["customers"]
    assert check_keyed_changes(STATE, changes, SHOP, writes=["customers"])[1][0] == (
        "the tool changes customers only, so it cannot change orders"
    )
    assert "changes nothing" in check_keyed_changes(STATE, changes, SHOP, writes=[])[1][0]


@pytest.mark.parametrize(
    ("before", "after", "count"),
    [
        ({"a": 1}, {"a": 1.0}, 0),
        ({"a": 1}, {"a": True}, 1),
        ({"a": 1}, {"a": 2, "b": {"c": 1, "d": [1, 2]}}, 4),
        ({"a": {"b": 1, "c": 2}}, {}, 2),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}, 1),
        ({"a": [1, 2]}, {"a": []}, 2),
        ({"a": {}}, {}, 1),
        ({"a": 1}, {"a": {"b": 1}}, 2),
    ],
)
def test_leaf_fields_are_counted(before: Any, after: Any, count: int) -> None:
    assert count_leaf_changes(before, after) == count_leaf_changes(after, before) == count
