"""Words are grounded in a chain: values that they hold in several forms, values that they must not hold, and policies of columns."""

from __future__ import annotations

from typing import Any

import pytest

from simia.state_schema import ColumnSpec, StateSchema, TableSpec
from simia.synthesis.chains.chain import Chain, ChainTask
from simia.synthesis.chains.chain_tasks import make_chain_task, split_turns
from simia.synthesis.chains.grounded_words import find_unsaid, find_unused, says_value
from simia.synthesis.chains.match_policies import derive_policies
from simia.task import Action, Goal
from tests.synthesis.build_fixtures import load_library

LIBRARY = load_library()
STATE: dict[str, Any] = LIBRARY.example
NOTES = StateSchema(
    tables={
        "bookings": TableSpec(
            columns={
                "guest": ColumnSpec(values={"type": "string"}, required=True),
                "note": ColumnSpec(values={"type": "string"}),
                "made_at": ColumnSpec(values={"type": "string"}),
                "arrives_at": ColumnSpec(values={"type": "string"}, match="exempt"),
            }
        )
    }
)


@pytest.mark.parametrize(
    ("words", "value", "said"),
    [
        ("A standard room, please", "standard_room", True),
        ("I am mara Lindqvist.", "Mara Lindqvist", True),
        ("I am Maralyn", "Mara", False),
        ("two nights", 2, True),
        ("2 nights", 2, True),
        ("12 nights", 2, False),
        ("pay 1,234.50 euros", 1234.5, True),
        ("pay 1234 euros", 1234.5, False),
        ("pay $4.00", 4, True),
        ("on 16 May 2025", "2025-05-16", True),
        ("on May 16th", "2025-05-16", True),
        ("on 2025-05-16", "2025-05-16", True),
        ("on 17 May", "2025-05-16", False),
        ("at 09:30 on 16 May", "2025-05-16T09:30:00", True),
        ("on 16 May", "2025-05-16T09:30:00", False),
        ("nothing", True, True),
        ("she comes late tonight, so keep the room for her please", "guest arrives late tonight, keep the room", True),
        ("keep quiet", "guest arrives late tonight, keep the room", False),
        ("card-17", "card-1", False),
        ("the Reader\u2019s Guide", "The Reader's Guide", True),
    ],
)  # fmt: skip
def test_a_value_is_said_in_its_usual_forms(words: str, value: Any, said: bool) -> None:
    assert says_value(words, value) is said


def test_values_of_lists_are_looked_for_one_by_one() -> None:
    assert find_unsaid("MB-01 wants The Salt Road", {"who": "MB-01", "titles": ["The Salt Road", "Glass Harbour"]}) == [
        "Glass Harbour"
    ]


@pytest.mark.parametrize(
    ("words", "unused"),
    [
        ("I am MB-01, lend me the fox book", []),
        ("I am MB-01, lend me The Fox Who Counted", []),
        ("I am MB-01, lend me BK-004", ["BK-004"]),
        ("I am MB-01 and so is MB-02", ["MB-02"]),
        ("I am MB-01, lend me the fox book, not the one about a glass harbour", []),
        ("I am MB-01, lend me Glass Harbour too", ["Glass Harbour"]),
        ("I am MB-01, lend me 3 books with fox", ["3"]),
        ("I am MB-01, lend me the fox book until 2025-06-01", ["2025-06-01"]),
        ("I am MB-01 of 17 May", ["17"]),
    ],
)
def test_what_the_chain_does_not_use_is_named(words: str, unused: list[str]) -> None:
    results = [[{"book_id": "BK-004", "title": "The Fox Who Counted", "free": 2}]]
    found = find_unused(words, {"member": "MB-01", "word": "fox"}, results, STATE, LIBRARY.design.state)
    assert found == unused


def test_policies_follow_from_who_makes_a_value() -> None:
    note, known = "she arrives very late, keep the key", "2025-05-16T21:00:00"
    calls = [Action(name="book", arguments={"guest": "Mara Lindqvist of the magazine", "note": note, "at": known})]
    row = {
        "guest": "Mara Lindqvist of the magazine",
        "note": note,
        "made_at": "2025-05-14T10:30:04",
        "arrives_at": known,
    }
    state = {"bookings": {"B-1": {"guest": "Mara Lindqvist of the magazine", "note": None}}}
    changes: list[Any] = [{"path": ["bookings", "B-77"], "new": row}]
    assert derive_policies(NOTES, state, calls, changes) == {
        "bookings.*.note": "semantic",
        "bookings.*.made_at": "exempt",
        "bookings.*.arrives_at": "exact",
    }
    change: list[Any] = [{"path": ["bookings", "B-1", "note"], "old": None, "new": "late"}]
    assert derive_policies(NOTES, state, calls, change) == {}


def test_turns_end_with_a_tool_that_writes() -> None:
    names = ["get_member", "pay_fine", "search_books", "lend_book", "list_loans", "renew_loan", "get_member"]
    calls = [Action(name=name) for name in names]
    assert [[call.name for call in turn] for turn in split_turns(LIBRARY, calls, 2)] == [names[:2], names[2:]]
    assert [[call.name for call in turn] for turn in split_turns(LIBRARY, calls, 5)] == [
        names[:2],
        names[2:4],
        names[4:],
    ]
    assert split_turns(LIBRARY, calls[:2], 3) == [calls[:2]]


def test_goals_have_the_policies_and_the_visible_tools() -> None:
    chain = Chain(environment="library", tools=["pay_fine"], code="", state=STATE, calls=[Action(name="pay_fine")])
    made = ChainTask(
        chain=chain, visible=["pay_fine"], goals=[Goal(query="Pay.")], policies={"loans.*.due_on": "exempt"}
    )
    task = make_chain_task("library/4", made)
    assert (task.id, task.tools, task.tags, task.reward.parts[0].kind) == ("chain-4", ["pay_fine"], ["goals"], "goals")
    (part,) = task.goals[0].parts
    assert part.kind == "state"
    assert part.policies == {"loans.*.due_on": "exempt"}
