"""Distractors of the library: allowed by the schema, with references among themselves, in number as the chain is long."""

from __future__ import annotations

import random
from typing import Any

import pytest

from simia.synthesis.chains.chain_runs import PlayedChain
from simia.synthesis.chains.distractors import DistractorMaker, adapt_addresses, add_rows, count_distractors, vary_text
from simia.task import Action
from tests.synthesis.build_fixtures import load_library

SCHEMA = load_library().design.state
STATE: dict[str, Any] = load_library().example


def make_played(calls: int) -> PlayedChain:
    return PlayedChain(calls=[Action(name="lend_book", arguments={"member_id": "MB-01", "book_id": "BK-004"})] * calls)


@pytest.mark.parametrize("seed", range(30))
def test_distractors_are_allowed_and_refer_to_each_other(seed: int) -> None:
    known = {"name": "Ines Weber", "title": "The Salt Road"}
    made = DistractorMaker(SCHEMA, STATE, make_played(10), known, 1.0, random.Random(seed)).make_all()
    assert {name: len(rows) for name, rows in made.items()} == {"books": 5, "members": 4, "loans": 5}
    state = add_rows(STATE, made)
    assert SCHEMA.find_violations(state) == []
    for name, rows in STATE.items():
        assert {key: state[name][key] for key in rows} == rows
        assert list(state[name])[: len(rows)] == list(rows)
    assert {loan["member_id"] for loan in made["loans"].values()} <= set(made["members"])
    assert {loan["book_id"] for loan in made["loans"].values()} <= set(made["books"])
    assert not {"Ines Weber"} & {member["name"] for member in made["members"].values()}
    assert not {"The Salt Road"} & {book["title"] for book in made["books"].values()}
    again = DistractorMaker(SCHEMA, STATE, make_played(10), known, 1.0, random.Random(seed)).make_all()
    assert again == made


def test_addresses_follow_the_names() -> None:
    row = {"name": "Ines Weber", "email": "ines.costa17@example.org", "contact": "desk12@example.org"}
    adapt_addresses(row, {"name": "Ines Costa", "email": "ines.costa@example.org", "contact": "desk@example.org"})
    assert row == {"name": "Ines Weber", "email": "ines.weber17@example.org", "contact": "desk12@example.org"}


def test_a_longer_chain_has_more() -> None:
    assert [count_distractors(1.0, calls, 20) for calls in (0, 3, 10, 30)] == [0, 6, 20, 40]
    assert count_distractors(0, 10, 20) == 0
    assert DistractorMaker(SCHEMA, STATE, make_played(10), {}, 0, random.Random(0)).make_all() == {}


def test_texts_keep_their_form() -> None:
    rng = random.Random(3)
    assert vary_text("ines.costa@example.org", [], rng).endswith("@example.org")
    assert len(vary_text("555-0182", [], rng)) == 8
    assert vary_text("Ines Costa", ["Tomas Weber"], rng) == "Ines Weber"
    assert vary_text("Invoice to the company", ["Cot for the baby"], rng) == "Cot for the baby"
    assert (
        vary_text("The room is too loud at night", ["Late again, as usual on Fridays"], rng)
        == "Late again, as usual on Fridays"
    )


def test_rows_refer_to_distractors_that_were_kept() -> None:
    maker = DistractorMaker(SCHEMA, STATE, make_played(10), {}, 1.0, random.Random(1))
    assert maker.tables == ["books", "members", "loans"]
    members = maker.make_table("members")
    maker.keep("members", members)
    loans = maker.make_table("loans")
    assert {loan["member_id"] for loan in loans.values()} <= set(members)
    assert {loan["book_id"] for loan in loans.values()} <= set(STATE["books"]) - {"BK-004"}
