"""Two runs of one plan, and what differs between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from simia.amplification.settings import AmplifyConfig
from simia.config import load_config
from simia.jobs import OPEN, PASSED, REJECTED, Item, Run
from simia.jobs.diff import compare_runs
from simia.llm.types import Reply, Request
from simia.trajectory import Usage

Plan = list[tuple[str, str, str | None, str]]  # seed, status, reason, content hash
LEFT: Plan = [
    ("s1", PASSED, None, "h0"),
    ("s2", PASSED, None, "h1"),
    ("s1", REJECTED, "leak", ""),
    ("s2", REJECTED, "leak", ""),
    ("s1", PASSED, None, "h4"),
    ("s2", OPEN, None, ""),
]
RIGHT: Plan = [
    ("s1", PASSED, None, "h0"),
    ("s2", REJECTED, "unparsable", ""),
    ("s1", REJECTED, "leak", ""),
    ("s2", REJECTED, "refusal", ""),
    ("s9", PASSED, None, "h9"),
    ("s2", PASSED, None, "h1"),
]


async def made(root: Path, name: str, plan: Plan, settings: list[str], facts: dict[str, object]) -> Run:
    run = Run.create(root, load_config(AmplifyConfig, "amplify/default", settings), name=name, facts=facts)
    for ord_, (seed, status, reason, content) in enumerate(plan):
        item = Item(f"i{ord_}", ord_, {"seed": seed}, status, reason)
        run.ledger.plan(item)
        run.ledger.set_status(item)
        await run.ledger.asked(f"{name}{ord_}", item.id, "d", Request(messages=[]))
        usage = Usage(prompt=100, completion=10, cached=50, cost=0.5)
        await run.ledger.answered(f"{name}{ord_}", item.id, Reply(text="x", usage=usage))
        if status == PASSED:
            run.ledger.accept(item, content)
    run.ledger.flush()
    return run


@pytest.fixture
async def runs(tmp_path: Path) -> Iterator[tuple[Run, Run]]:
    one = await made(tmp_path, "one", LEFT, [], {"model": "m", "prompts": {"a.j2": "11", "b.j2": "22"}})
    settings = ["sampling.temperature=0.5", "limits.max_cost=3", "n=9"]
    two = await made(tmp_path, "two", RIGHT, settings, {"model": "m", "prompts": {"a.j2": "33", "b.j2": "22"}})
    yield one, two  # type: ignore[misc]
    one.close()
    two.close()


async def test_what_makes_the_data_stands_apart_from_what_does_not(runs: tuple[Run, Run]) -> None:
    found = compare_runs(*runs)
    assert [(c.name, c.left, c.right) for c in found.identity] == [("sampling.temperature", 1.0, 0.5)]
    assert {c.name: c.right for c in found.operational} == {"limits.max_cost": 3.0, "n": 9}
    assert [(c.name, c.left, c.right) for c in found.facts] == [("prompts.a.j2", "11", "33")]


async def test_figures_stand_side_by_side(runs: tuple[Run, Run]) -> None:
    found = compare_runs(*runs, diversity=lambda run: {"name": float(len(run.id))})
    one, two = found.left, found.right
    assert (one.accepted, two.accepted) == (3, 3)
    assert (one.rejected, two.rejected) == ({"leak": 2}, {"leak": 1, "refusal": 1, "unparsable": 1})
    assert (one.rate, two.rate) == (0.6, 0.5)
    assert (one.replies, one.prompt, one.completion, one.cached, one.cost, one.unpriced) == (6, 600, 60, 300, 3.0, 0)
    assert one.each(one.cost) == 1.0
    assert one.diversity == {"name": 3.0}


async def test_items_are_compared_where_the_plans_agree(runs: tuple[Run, Run]) -> None:
    found = compare_runs(*runs)
    assert found.shared == 2, "h0, and h1 though another item of the other run holds it"
    assert found.other_plan == 1, "i4 is of another seed there"
    assert found.comparable == 4, "i5 is open in one of them"
    assert found.turned == {"accepted → rejected (unparsable)": 1, "rejected (leak) → rejected (refusal)": 1}
    assert [(e.item, e.left, e.right_reason) for e in found.examples] == [
        ("i1", "accepted", "unparsable"),
        ("i3", "rejected", "refusal"),
    ]


async def test_items_of_another_random_seed_or_plan_have_other_prompts(tmp_path: Path) -> None:
    one = await made(tmp_path, "one", LEFT, [], {})
    two = await made(tmp_path, "two", RIGHT, ["seed=7"], {})
    found = compare_runs(one, two)
    assert (found.comparable, found.other_plan, found.turned, found.examples) == (0, 6, {}, [])
    assert found.shared == 2, "equal conversations are found all the same"
    three = await made(tmp_path, "three", LEFT[:1], [], {})
    three.ledger.db.write("ledger", 'UPDATE item SET spec = \'{"seed": "s1", "plan": {"values": {"a": 1}}}\'')
    three.ledger.flush()
    assert (compare_runs(one, three).comparable, compare_runs(one, three).other_plan) == (0, 1)
    for run in (one, two, three):
        run.close()


async def test_a_run_beside_itself_is_no_different(runs: tuple[Run, Run]) -> None:
    found = compare_runs(runs[0], runs[0])
    assert (found.identity, found.operational, found.facts, found.turned) == ([], [], [], {})
    assert (found.shared, found.comparable) == (3, 5)
