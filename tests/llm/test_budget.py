"""A budget that several have: who waits for whom, and that no reply is lost on the way. The tills are real ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from simia.errors import Code
from simia.jobs import Store
from simia.llm.budget import share_budget
from simia.llm.engine import BudgetReached, Engine, EngineLimits
from simia.llm.journals import PassingJournal
from simia.llm.types import LLMFault, Reply, Request
from tests.jobs.spender import PRICE, Spender, ask, engine


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[list[Store]]:
    opened = [Store.open(tmp_path) for _ in range(2)]
    yield opened
    for store in opened:
        store.close()


def replies(outcomes: list[Reply | BaseException]) -> int:
    strange = [each for each in outcomes if not isinstance(each, Reply | BudgetReached)]
    assert not strange
    return sum(isinstance(each, Reply) for each in outcomes)


async def until_sent(*backends: Spender, calls: int) -> None:
    async with asyncio.timeout(10):
        while sum(backend.calls for backend in backends) < calls:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_what_others_hold_is_not_given_out_again(stores: list[Store]) -> None:
    one, other = Spender(), Spender()
    mine, theirs = engine(one, stores[0], max_tokens=150), engine(other, stores[1], max_tokens=150)
    assert replies(await ask(mine, 1, "known")) == 1  # 15 tokens are a reply, for all
    one.open = asyncio.Event()
    first = asyncio.create_task(ask(mine, 7, "held"))
    await until_sent(one, calls=8)
    assert replies(await ask(theirs, 7, "left")) == 2, (
        "nothing is in flight but what the other holds: no sense in waiting"
    )
    with pytest.raises(
        BudgetReached, match="max_tokens is 150 and 45 is spent and up to 105 more may be by all that share"
    ):
        raise (await ask(theirs, 1, "none"))[0]  # type: ignore[misc]
    one.open.set()
    assert replies(await first) == 7
    assert one.calls + other.calls == 10


async def test_who_has_calls_in_flight_waits_for_them(stores: list[Store]) -> None:
    """Both have a call in flight and others waiting when the rest of the cap is held. Those who wait do not go round in circles,
    which would stop this loop, and are let in when there turns out to be room."""
    one, other = Spender(), Spender(costs=[15, 5])
    mine, theirs = engine(one, stores[0], max_tokens=100), engine(other, stores[1], max_tokens=100)
    assert replies(await ask(mine, 1, "known")) == 1
    one.open, other.open = asyncio.Event(), asyncio.Event()
    learns = asyncio.create_task(ask(mine, 2, "held"))
    await until_sent(one, calls=3)
    judges = asyncio.create_task(ask(theirs, 9, "waits"))
    await until_sent(other, calls=3)
    await asyncio.sleep(0.02)
    assert other.calls == 3, "15 spent, 30 held, 3 of 15 sent, and 10 left, in which no reply fits"
    one.open.set()
    assert replies(await learns) == 2
    other.open.set()
    # 15 + 30, then 15 and 5 in turn: at most one more reply than fits would pass 100
    assert replies(await judges) == other.calls
    spent = (
        mine.stats.usage.prompt
        + mine.stats.usage.completion
        + theirs.stats.usage.prompt
        + theirs.stats.usage.completion
    )
    assert 85 <= spent <= 100


async def test_before_the_first_reply_each_sends_one_and_the_first_answer_is_everybodys_mean(
    stores: list[Store],
) -> None:
    one, other = Spender(closed=True), Spender(closed=True)
    mine, theirs = engine(one, stores[0], max_tokens=60), engine(other, stores[1], max_tokens=60)
    learns, judges = asyncio.create_task(ask(mine, 9, "a")), asyncio.create_task(ask(theirs, 9, "b"))
    await until_sent(one, other, calls=2)
    await asyncio.sleep(0.02)
    assert (one.calls, other.calls) == (1, 1)
    assert one.open is not None
    assert other.open is not None
    one.open.set()
    assert replies(await learns) == 3, "the other's call, which nobody knew the price of, is held at the mean"
    other.open.set()
    assert replies(await judges) == 1


async def test_a_reply_is_not_lost_with_the_till(stores: list[Store], tmp_path: Path) -> None:
    backend = Spender(closed=True)
    made = engine(backend, stores[0], max_tokens=150)
    asking = asyncio.create_task(ask(made, 1))
    await until_sent(backend, calls=1)
    (tmp_path / "spent.db").unlink()
    assert backend.open is not None
    backend.open.set()
    assert replies(await asking) == 1
    assert made.out == 0


async def test_a_cancelled_call_holds_nothing(stores: list[Store]) -> None:
    backend = Spender(closed=True)
    made = engine(backend, stores[0], max_tokens=30)
    asking = asyncio.create_task(ask(made, 3))
    await until_sent(backend, calls=1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert made.out == made.gate.in_flight == 0
    assert replies(await ask(engine(Spender(), stores[1], max_tokens=30), 5)) == 2


async def test_roles_that_share_a_purse_share_the_till(stores: list[Store]) -> None:
    """A dear model and a cheap one: each is held at what it costs itself."""
    dear, cheap = Spender(costs=[45]), Spender(costs=[5])
    engines = [Engine(each, PassingJournal(), EngineLimits(max_cost=0.2), PRICE) for each in (dear, cheap)]
    share_budget(engines, shared=stores[0].open_shared_budget())
    assert replies(await ask(engines[0], 1, "dear")) + replies(await ask(engines[1], 1, "cheap")) == 2
    dear.open = asyncio.Event()
    asking = asyncio.create_task(ask(engines[0], 3, "held"))
    await until_sent(dear, calls=4)
    other = engine(Spender(costs=[5]), stores[1], max_cost=0.2)
    with pytest.raises(BudgetReached, match=r"0\.05 is spent and up to 0\.135 more may be"):
        raise (await ask(other, 1))[0]  # type: ignore[misc]
    dear.open.set()
    assert replies(await asking) == 3


class Overdue(Spender):
    """Its second and third call get no answer in time, whatever the endpoint does with them. `status`: that of a refusal in their place."""

    def __init__(self, status: int | None = None, late: tuple[int, ...] = (1, 2)) -> None:
        super().__init__()
        self.status, self.late = status, late

    async def complete(self, request: Request, *, draw: str) -> Reply:
        if self.calls in self.late:
            self.calls += 1
            raise LLMFault(Code.TIMEOUT, "no answer within 5 s", retry=False, status=self.status)
        return await super().complete(request, draw=draw)


async def test_calls_that_timed_out_count_as_mean_replies() -> None:
    made = Engine(Overdue(), PassingJournal(), EngineLimits(max_tokens=60), PRICE)
    for name, wanted in (("a", Reply), ("b", LLMFault), ("c", LLMFault), ("d", Reply), ("e", BudgetReached)):
        (outcome,) = await ask(made, 1, name)
        assert isinstance(outcome, wanted), (name, outcome)
    assert str(outcome).startswith(
        "budget reached: max_tokens is 60 and 30 is spent and up to 30 more may be; raise max_tokens"
    )
    assert made.stats.usage.prompt + made.stats.usage.completion == 30


@pytest.mark.parametrize(("status", "late", "answered"), [(408, (1, 2), 4), (None, (0,), 3)])
async def test_a_refusal_costs_nothing_and_a_timeout_before_the_first_reply_counts_from_then_on(
    status: int | None, late: tuple[int, ...], answered: int
) -> None:
    made = Engine(Overdue(status, late), PassingJournal(), EngineLimits(max_tokens=60), PRICE)
    outcomes = [each for name in "abcdefgh" for each in await ask(made, 1, name)]
    assert replies([each for each in outcomes if not isinstance(each, LLMFault)]) == answered
    assert isinstance(outcomes[-1], BudgetReached)


async def test_what_a_timeout_may_have_cost_stays_with_the_store(tmp_path: Path) -> None:
    for wanted in ([Reply, LLMFault, LLMFault], [Reply, BudgetReached]):
        store = Store.open(tmp_path)
        made = engine(Overdue() if LLMFault in wanted else Spender(), store, max_tokens=60)
        assert [type(each) for n, _ in enumerate(wanted) for each in await ask(made, 1, f"{len(wanted)}-{n}")] == wanted
        store.close()


async def test_others_see_what_is_presumed_for_calls_that_timed_out(stores: list[Store]) -> None:
    mine, theirs = engine(Overdue(), stores[0], max_tokens=60), engine(Spender(), stores[1], max_tokens=60)
    for name in "abc":
        await ask(mine, 1, name)  # a reply of 15 tokens, and two timeouts
    assert [type(each) for name in "de" for each in await ask(theirs, 1, name)] == [Reply, BudgetReached]
