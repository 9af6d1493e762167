"""Essential calls: values that tools made up, arguments that are free, columns that depend on the clock."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.reward_spec import StateSpec, TraceSpec
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.conversations.essential_calls import (
    PADDING,
    EssentialCall,
    ReplayedCalls,
    ValueSource,
    find_policies,
    link_values,
    make_parts,
    put_values,
    replay_essential,
)
from tests.synthesis.conversation_fixtures import load_studio

BOOKED = {"booking_id": "BO-7777", "credit": 7.0}


def make_turns() -> list[list[EssentialCall]]:
    """A booking, and its cancellation in the next turn, as a solver made them after other calls."""
    book = {"member_id": "WS-1", "machine_id": "MC-3", "day": "2025-05-23", "note": "a table leg"}
    return [
        [EssentialCall("book_machine", book, True, BOOKED, ["note"])],
        [EssentialCall("cancel_booking", {"booking_id": "BO-7777"}, True, {"booking_id": "BO-7777", "credit": 12})],
    ]


def replay(folder: Path, turns: list[list[EssentialCall]], padding: int = 0) -> ReplayedCalls:
    built = load_studio()

    async def run() -> ReplayedCalls:
        write_environment(folder / f"pack{padding}", built)
        backend = ExecutableBackend(Pack.load(folder / f"pack{padding}"))
        try:
            return await replay_essential(backend, built.example, turns, padding)
        finally:
            await backend.close()

    return asyncio.run(run())


def test_a_made_up_id_is_that_of_the_execution(tmp_path: Path) -> None:
    turns = make_turns()
    link_values(turns[:1], load_studio().example, ["book the lathe"])
    link_values(turns, load_studio().example, ["book the lathe", "drop it"])
    assert turns[0][0].sources == []
    assert turns[1][0].sources == [ValueSource(("booking_id",), 0, ("booking_id",))]
    assert (turns[0][0].mask, turns[1][0].mask) == (["note"], ["booking_id"])
    played = replay(tmp_path, turns)
    assert played.fault == ""
    made = next(change["path"][1] for change in played.changes[0] if change["path"][0] == "bookings")
    assert made != "BO-7777"
    assert played.turns[1][0].arguments == {"booking_id": made}
    later = replay(tmp_path, turns, PADDING)
    calls = [call for turn in turns for call in turn]
    found = find_policies(played.changes[0], later.changes[0], calls[:1], played.turns[0])
    assert found == {"bookings.*.booked_at": "exempt", "bookings.*.note": "exempt"}


def test_without_the_link_the_calls_fail_alone(tmp_path: Path) -> None:
    assert "cancel_booking fails without the other calls" in replay(tmp_path, make_turns()).fault


def test_values_that_the_user_or_the_data_give_are_compared() -> None:
    turns = make_turns()
    for words, state in (("cancel BO-7777", {}), ("drop it", {"bookings": {"BO-7777": {}}})):
        link_values(turns, state, [words])
        assert turns[1][0].sources == []
    look_up = EssentialCall("list_bookings", {"member_id": "WS-1"}, False, [{"booking_id": "BO-7777"}])
    link_values([[look_up], turns[1]], {}, ["drop it"])
    assert turns[1][0].sources == [], "a look-up makes nothing up"


def test_made_up_values_within_lists_are_found() -> None:
    make = EssentialCall("make", {}, True, {"rows": [{"id": "A-1"}, {"id": "A-2"}]})
    use = EssentialCall("use", {"ids": ["A-2"], "count": 1}, True, None)
    link_values([[make, use]], {}, [])
    assert use.sources == [ValueSource(("ids", 0), 0, ("rows", 1, "id"))]
    given: list[Any] = [{"rows": [{"id": "B-8"}, {"id": "B-9"}]}]
    assert put_values(use, given) == {"ids": ["B-9"], "count": 1}
    assert use.arguments == {"ids": ["A-2"], "count": 1}
    assert use.mask == ["ids"]


def test_what_is_judged_after_a_turn() -> None:
    writes, reads = EssentialCall("book", {}, True, None), EssentialCall("look", {}, False, None)
    assert make_parts([writes], True, {}) == [StateSpec()]
    assert make_parts([writes, reads], True, {}) == [StateSpec(), TraceSpec(only=["look"])]
    assert make_parts([reads], False, {}) == [StateSpec(), TraceSpec()]


def test_ids_that_are_whole_numbers_are_found_and_amounts_are_not() -> None:
    make = EssentialCall("new_item", {"priority": 2}, True, {"item_id": 7576, "priority": 2, "done": True})
    use = EssentialCall("set_item", {"item_id": 7576, "priority": 2, "done": True}, True, {})
    link_values([[make], [use]], {}, ["please"])
    assert [each.argument for each in use.sources] == [("item_id",)]
    link_values([[make], [use]], {}, ["item 7576, please"])
    assert use.sources == []
