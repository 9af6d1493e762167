"""Chains executed in the library: calls, data flow, refusals, hostile code, and choices that depend on the order of rows."""

from __future__ import annotations

import asyncio
import copy
import inspect
from pathlib import Path
from typing import Any

import pytest

from simia.sandbox.limits import MB, WorkerLimits
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.chains.chain_runs import PlayedChain, find_effect_difference, play_chain
from tests.synthesis.build_fixtures import load_library

STATE: dict[str, Any] = load_library().example
LEND = inspect.cleandoc("""
    KNOWN = {"word": "fox", "member_id": "MB-01"}

    def chain(call):
        books = call("search_books", word=KNOWN["word"])
        lent = call("lend_book", member_id=KNOWN["member_id"], book_id=books[0]["book_id"])
        call("renew_loan", loan_id=lent["loan_id"])
    """)
FIRST_OF_TWO = LEND.replace('"fox"', '"Maren"')
BY_TITLE = FIRST_OF_TWO.replace("books[0]", 'min(books, key=lambda book: book["title"])')
LIMITS = WorkerLimits(memory=256 * MB)


def play(folder: Path, *plays: tuple[str, dict[str, Any], bool]) -> list[PlayedChain]:
    async def go() -> list[PlayedChain]:
        write_environment(folder / "pack", load_library())
        environment = await open_built(folder / "pack")
        backend: Any = environment.backend
        try:
            return [await play_chain(backend, state, code, reverse=reverse) for code, state, reverse in plays]
        finally:
            await environment.close()

    return asyncio.run(go())


def test_calls_are_literal_and_the_change_is_that_of_the_state(tmp_path: Path) -> None:
    before = copy.deepcopy(STATE)
    (played,) = play(tmp_path, (LEND, STATE, False))
    assert played.fault is None
    assert [(call.name, call.arguments) for call in played.calls] == [
        ("search_books", {"word": "fox"}),
        ("lend_book", {"member_id": "MB-01", "book_id": "BK-004"}),
        ("renew_loan", {"loan_id": "LN-6977"}),
    ]
    assert played.results[1] == '{"loan_id": "LN-6977", "due_on": "2025-06-04"}'
    assert [change["path"] for change in played.changes] == [["loans", "LN-6977"]]
    assert played.final["loans"]["LN-6977"]["due_on"] == "2025-06-18"
    assert before == STATE


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('call("lend_book", member_id="MB-02", book_id="BK-001")', "call 1, lend_book"),
        ('call("lend_book", member_id="MB-02", book_id="BK-001")', "MB-02 owes 4.50"),
        ('try:\n        call("get_member", member_id="MB-99")\n    except Exception:\n        pass', "there is no member MB-99"),
        ('call("get_member", member_id="MB-01")["phone"]', "after call 1, get_member: raised: KeyError: 'phone' (line 2)"),
        ('call("fly", to="Lima")', "call 1, fly"),
        ("while True:\n        pass", "timed_out"),
        ('while True:\n        call("get_member", member_id="MB-01")', "too_many_calls"),
        ('while True:\n        try: call("fly")\n        except Exception: pass', "call 1, fly"),
        ("import subprocess", "forbidden"),
        ("open('/etc/passwd').read()", "forbidden: line 2"),
        ("import time; time.time()", "forbidden"),
    ],
)  # fmt: skip
def test_a_chain_that_fails_says_where(tmp_path: Path, body: str, fault: str) -> None:
    (played,) = play(tmp_path, (f"def chain(call):\n    {body}\n", STATE, False))
    assert played.fault is not None
    assert fault in played.fault
    assert played.final is None


def test_a_state_that_cannot_be_set_up_is_a_fault(tmp_path: Path) -> None:
    broken = {**STATE, "members": {"MB-01": {"name": 7}}}
    (played,) = play(tmp_path, (LEND, broken, False))
    assert played.fault is not None
    assert "state" in played.fault


def test_a_choice_by_place_shows_in_the_effect(tmp_path: Path) -> None:
    plays = [(code, STATE, reverse) for code in (FIRST_OF_TWO, BY_TITLE) for reverse in (False, True)]
    first, other, best, same = play(tmp_path, *plays)
    assert find_effect_difference(best, same, {}) is None
    found = find_effect_difference(other, first, {})
    assert found is not None
    assert "BK-001" in found
    assert find_effect_difference(first, first, {}) is None


def test_keys_that_tools_make_may_differ(tmp_path: Path) -> None:
    more = copy.deepcopy(STATE)
    more["loans"]["LN-6977"] = {**more["loans"]["LN-0004"], "member_id": "MB-02"}
    one, two = play(tmp_path, (LEND, STATE, False), (LEND, more, False))
    assert two.calls[2].arguments != one.calls[2].arguments
    assert find_effect_difference(two, one, {}) is None
