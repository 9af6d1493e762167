"""Favourite values, by hand."""

from __future__ import annotations

from typing import Any

from simia.quality.selection.frequent_values import KEPT, FrequentValues, find_grown_values
from simia.trajectory import Message, ToolCall, Trajectory


def held(*days: Any) -> dict[str, Any]:
    favourites = FrequentValues()
    for number, value in enumerate(days):
        arguments = {"parcel": f"A{number}", "days": value, "note": {"long": True}}
        call = ToolCall(id="c", name="hold", arguments=arguments)
        favourites.add(Trajectory(pack="p", tools=[], messages=[Message(role="assistant", calls=[call])]))
    return favourites.finish()


def test_a_value_that_has_become_more_frequent_is_told() -> None:
    seeds, new = held(3, 4, 5, 6, 7), held(*[7] * 16, *[2] * 6, *[6] * 4, *[5, 3, 1] * 3)
    assert new["hold"]["days"] == {"of": 35, "most": [[7, 16], [2, 6], [6, 4], [5, 3], [3, 3]]}
    assert "note" not in new["hold"], "what is no plain value is not counted"
    (row,) = find_grown_values(new, seeds)
    assert (row["tool"], row["argument"], row["value"], row["was"]) == ("hold", "days", 7, 0.2)
    assert round(row["share"], 3) == 0.457


def test_what_is_no_favourite_is_not() -> None:
    assert find_grown_values(held(*range(40)), held(*range(5))) == [], "no value stands out"
    assert find_grown_values(held(*[7] * 40), held(*[7] * 5)) == [], "it was the only one before"
    assert find_grown_values(held(*[7] * 12, 3), held(3, 4, 5)) == [], "too few to tell"
    assert find_grown_values(held(*[7] * 40, 3), {}) == [], "nothing to compare with"
    many = held(*range(2 * KEPT))["hold"]["parcel"]
    assert many["of"] == 2 * KEPT


def test_numbers_and_texts_that_look_alike_are_two_values() -> None:
    assert held(7, "7", 7)["hold"]["days"]["most"] == [[7, 2], ["7", 1]]
