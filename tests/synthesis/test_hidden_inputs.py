"""What a tool's result shows of the inputs, in whatever form."""

from __future__ import annotations

from typing import Any

import pytest

from simia.synthesis.gyms.hidden_inputs import (
    find_observed_input,
    find_shown_input,
    reveals_answer,
    shows_all_inputs,
)

NUMBERS = [4, 8, 15, 16, 23, 42]
GRID = [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize(
    "result",
    [
        {"numbers": NUMBERS}, [NUMBERS], "4 8 15 16 23 42", "[4, 8, 15, 16, 23, 42]", "values: 4,8,15,16,23,42.",
        [{"index": n, "value": each} for n, each in enumerate(NUMBERS)], {str(n): each for n, each in enumerate(NUMBERS)},
        sorted(NUMBERS, reverse=True), {"even": [4, 8, 16, 42], "odd": [15, 23]},
    ],
)  # fmt: skip
def test_observe_shows_a_list_in_any_form_and_order(result: Any) -> None:
    assert find_observed_input(result, {"numbers": NUMBERS}) == "numbers"


@pytest.mark.parametrize(
    ("result", "inputs"),
    [
        ({"length": 6, "first": 4, "last": 42}, {"numbers": NUMBERS}),
        ({"rows": 2, "columns": 3, "corner": 1}, {"grid": GRID}),
        ({"length": 12, "starts_with": "ab"}, {"text": "abracadabra!"}),
        ({"pair": [4, 8]}, {"pair": [4, 8]}),
        ("", {"numbers": NUMBERS}),
    ],
)
def test_sizes_and_short_values_may_be_shown(result: Any, inputs: dict[str, Any]) -> None:
    assert find_observed_input(result, inputs) is None


def test_parts_of_a_nested_input_count() -> None:
    assert find_observed_input({"row": [1, 2, 3, 4, 5]}, {"grid": [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]}) == "grid"
    assert (
        find_observed_input(["a", "b", "r", "a", "c", "a", "d", "a", "b", "r", "a"], {"text": "abracadabra"}) == "text"
    )
    assert find_observed_input({"map": {"x": 1}}, {"map": {"a": [7, 8], "b": [9, 10], "c": [11]}}) is None
    assert find_observed_input("a: 7 8, b: 9 10, c: 11", {"map": {"a": [7, 8], "b": [9, 10], "c": [11]}}) == "map"


def test_one_call_may_not_return_a_whole_input_unless_it_was_given() -> None:
    assert find_shown_input(NUMBERS, {"numbers": NUMBERS}, {}) == "numbers"
    assert find_shown_input(NUMBERS[:4], {"numbers": NUMBERS}, {}) is None
    assert find_shown_input(NUMBERS, {"numbers": NUMBERS}, {"values": NUMBERS}) is None
    assert find_shown_input("x" * 9, {"text": "x" * 9}, {}) == "text"


def test_all_inputs_together() -> None:
    assert shows_all_inputs({"n": 7, "limit": 100}, {"n": 7, "limit": 100})
    assert not shows_all_inputs({"n": 7}, {"n": 7, "limit": 100})


@pytest.mark.parametrize(
    ("results", "answers", "revealed"),
    [
        ([{"value": 3}, {"value": 8}], [3, 8], True),
        (["it is 3.", "it is 8."], [3, 8], True),
        ([{"value": 3}, {"value": 9}], [3, 8], False),
        ([{"a": 3, "b": 0}, {"a": 0, "b": 8}], [3, 8], False),
        ([{"sorted": True, "empty": False}] * 2, [True, False], False),
        ([{"value": 3}, {"value": 3}], [3, 3], False),
        ([{"path": [0, 1]}, {"path": [1, 0]}], [[0, 1], [1, 0]], True),
        ([{"value": 3}], [3], False),
    ],
)
def test_an_answer_is_revealed_at_the_same_place_each_time(
    results: list[Any], answers: list[Any], revealed: bool
) -> None:
    assert reveals_answer(results, answers) is revealed
