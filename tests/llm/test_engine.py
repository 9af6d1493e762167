"""The engine: nothing lost, nothing paid twice, limits kept. Counts come from the journal and from the fake endpoint's own log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from simia.errors import Code, UserError
from simia.llm.budget import Spending, share_budget
from simia.llm.concurrency import ConcurrencyLimiter
from simia.llm.engine import BudgetReached, Engine, EngineLimits
from simia.llm.http_response import RateLimits
from simia.llm.journals import MemoryJournal, PassingJournal
from simia.llm.openai_backend import OpenAIBackend
from simia.llm.openai_settings import OpenAISettings
from simia.llm.prices import FREE, Price, look_up_price
from simia.llm.types import LLMFault, Reply, Request, make_reply_key
from simia.trajectory import Usage
from tests.fake_endpoint import FakeEndpoint

QUICK = {"backoff": 0.01, "backoff_max": 0.02}


def prompt(text: str) -> Request:
    return Request(messages=[{"role": "user", "content": text}])


class Journal(MemoryJournal):
    """Keeps the order of events."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    async def asked(self, key: str, item: str, draw: str, request: Request) -> None:
        await super().asked(key, item, draw, request)
        self.events.append("asked")

    async def answered(self, key: str, item: str, reply: Reply) -> None:
        await super().answered(key, item, reply)
        self.events.append("answered")

    async def failed(self, key: str, item: str, fault: LLMFault) -> None:
        await super().failed(key, item, fault)
        self.events.append("failed")


class Scripted:
    """A back end in this process, for what needs no network: each request waits for `open`, then meets the next of `script`."""

    alias, model, structured = "scripted", "m", True

    def __init__(self, script: list[LLMFault] | None = None, *, closed: bool = False) -> None:
        self.script = list(script or [])
        self.calls = 0
        self.cancelled = 0
        self.open = asyncio.Event()
        if not closed:
            self.open.set()
        self.before: Callable[[], Awaitable[None]] | None = None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.calls += 1
        if self.before is not None:
            await self.before()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.script:
            raise self.script.pop(0)
        return Reply(text=f"echo: {request.messages[-1]['content']}", usage=Usage(prompt=10, completion=5))


def over_http(
    endpoint: FakeEndpoint, journal: MemoryJournal | None = None, *, timeout: float = 30, **limits: Any
) -> Engine:
    settings = OpenAISettings(model="m", base_url=endpoint.url, timeout=timeout)
    return Engine(OpenAIBackend(settings), journal, EngineLimits(**QUICK | limits), FREE)


async def ask_all(engine: Engine, n: int) -> list[Reply | BaseException]:
    asks = (engine.ask(prompt(f"q{i}"), item=f"i{i}", draw="0") for i in range(n))
    return await asyncio.gather(*asks, return_exceptions=True)


async def settled() -> None:
    """Let every task run until it waits for something outside of the loop."""
    for _ in range(20):
        await asyncio.sleep(0)


# --- nothing is lost --------------------------------------------------------------------------------------------------


async def test_every_prompt_gets_its_own_answer_whatever_goes_wrong(fake_endpoint: FakeEndpoint) -> None:
    faults = ["500", "reset", "cut", "garbage", "503"]
    fake_endpoint.plan(each=faults)
    journal = MemoryJournal()
    async with over_http(fake_endpoint, journal, concurrency=16) as engine:
        replies = await ask_all(engine, 40)
    assert [reply.text for reply in replies if isinstance(reply, Reply)] == [f"echo: q{i}" for i in range(40)]
    assert len(journal.replies) == 40
    log = fake_endpoint.log()
    assert log["count"] == 40 * 6
    assert log["faults"] == dict.fromkeys([*faults, "ok"], 40)
    assert engine.stats.retries == {Code.SERVER_ERROR: 80, Code.CONNECTION: 80, Code.BAD_REPLY_BODY: 40}
    assert (engine.stats.asked, engine.stats.answered, engine.stats.sent) == (40, 40, 240)
    assert engine.stats.in_flight == 0
    assert engine.gate.in_flight == 0


async def test_a_stalled_request_is_tried_again(fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(script=["stall"])
    async with over_http(fake_endpoint, timeout=0.3) as engine:
        assert (await engine.ask(prompt("a"), item="i", draw="0")).text == "echo: a"
    assert engine.stats.retries == {Code.TIMEOUT: 1}


async def test_in_flight_reaches_the_limit_and_never_passes_it(fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(barrier=7, latency=0.01)  # nobody is answered before seven are there
    async with over_http(fake_endpoint, concurrency=7) as engine:
        await ask_all(engine, 40)
    log = fake_endpoint.log()
    assert (log["count"], log["most_in_flight"]) == (40, 7)


@pytest.mark.parametrize("planned", ["429:300ms", "429:1", "503:300ms"])
async def test_nobody_sends_before_retry_after_has_passed(fake_endpoint: FakeEndpoint, planned: str) -> None:
    fake_endpoint.plan(script=[planned] * 4, barrier=4)
    async with over_http(fake_endpoint, concurrency=4) as engine:
        replies = await ask_all(engine, 20)
    assert all(isinstance(reply, Reply) for reply in replies)
    log = fake_endpoint.log()
    assert log["count"] == 24
    assert [entry["n"] for entry in log["requests"] if entry["early"]] == []


async def test_the_last_fault_is_raised_and_recorded(fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(each=["500"] * 9)
    journal = Journal()
    async with over_http(fake_endpoint, journal, retries=3) as engine:
        with pytest.raises(LLMFault) as caught:
            await engine.ask(prompt("a"), item="i", draw="0")
    assert caught.value.code is Code.SERVER_ERROR
    assert fake_endpoint.log()["count"] == 4
    assert journal.events == ["asked", "failed"]
    assert engine.stats.failed == 1


async def test_an_outage_is_reported_once_until_the_next_reply(
    unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"http://127.0.0.1:{unused_tcp_port}/v1"
    backend = OpenAIBackend(OpenAISettings(model="m", base_url=url))
    async with Engine(backend, limits=EngineLimits(**QUICK | {"retries": 3})) as engine:
        outcomes = await ask_all(engine, 5)
    assert {outcome.code for outcome in outcomes if isinstance(outcome, LLMFault)} == {Code.CONNECTION}
    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith(
        f"{url}/chat/completions: connection: Cannot connect to host 127.0.0.1:{unused_tcp_port} (Connection refused); "
    )
    assert "retry 2 of 3 in" in line
    assert "\n" not in line


async def test_a_single_failure_is_not_reported(fake_endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture) -> None:
    fake_endpoint.plan(script=["500", "502"])
    async with over_http(fake_endpoint, concurrency=1) as engine:
        assert await ask_all(engine, 2)
    assert engine.stats.retries.total() == 2
    assert not caplog.records


@pytest.mark.parametrize("planned", ["401", "404", "400", "quota", "filter"])
async def test_what_cannot_pass_is_asked_once(fake_endpoint: FakeEndpoint, planned: str) -> None:
    fake_endpoint.plan(script=[planned])
    async with over_http(fake_endpoint) as engine:
        with pytest.raises(LLMFault):
            await engine.ask(prompt("a"), item="i", draw="0")
    assert fake_endpoint.log()["count"] == 1


async def test_a_wait_longer_than_our_patience_ends_the_tries() -> None:
    backend = Scripted([LLMFault(Code.RATE_LIMITED, "come back tomorrow", retry=True, retry_after=86_400)])
    engine = Engine(backend)
    with pytest.raises(LLMFault, match="tomorrow"):
        await engine.ask(prompt("a"), item="i", draw="0")
    assert (await engine.ask(prompt("b"), item="i", draw="0")).text == "echo: b", "and pauses nobody else"


# --- the journal ------------------------------------------------------------------------------------------------------


async def test_an_endpoint_that_names_too_short_a_wait_is_not_given_up_in_seconds() -> None:
    """A proxy may say `Retry-After: 0` as long as it is overloaded: the waits grow all the same."""
    refusals = [LLMFault(Code.RATE_LIMITED, retry=True, retry_after=0.0) for _ in range(6)]
    engine = Engine(Scripted(), limits=EngineLimits(backoff=1.0))
    longest = [
        max(engine._choose_delay(fault, tries, 0) or 0.0 for _ in range(200)) for tries, fault in enumerate(refusals)
    ]
    engine.gate.close()
    assert longest[0] <= 1.0
    assert longest[5] > 16.0


async def test_asked_is_durable_before_sending_and_answered_before_use() -> None:
    journal = Journal()
    backend = Scripted([LLMFault(Code.SERVER_ERROR, retry=True)])

    async def look() -> None:
        journal.events.append("sent")

    backend.before = look
    await Engine(backend, journal, EngineLimits(**QUICK)).ask(prompt("a"), item="i", draw="0")
    assert journal.events == ["asked", "sent", "sent", "answered"], "one entry for the sample, whatever the tries"
    assert next(iter(journal.requests.values())) == ("i", "0", prompt("a"))


async def test_a_known_reply_costs_nothing_and_another_draw_is_another_reply() -> None:
    backend, journal = Scripted(), MemoryJournal()
    first = Engine(backend, journal)
    await first.ask(prompt("a"), item="i", draw="0")
    second = Engine(backend, journal)
    await second.ask(prompt("a"), item="i", draw="0")
    assert (backend.calls, second.stats.recalled, second.stats.usage.prompt) == (1, 1, 0)
    await second.ask(prompt("a"), item="i", draw="1")
    assert backend.calls == 2
    assert set(journal.replies) == {make_reply_key("scripted", "m", prompt("a"), draw) for draw in "01"}


async def test_an_answered_reply_is_kept_even_if_its_asker_is_cancelled_meanwhile() -> None:
    class Slow(MemoryJournal):
        async def answered(self, key: str, item: str, reply: Reply) -> None:
            self.replies[key] = reply  # handed over before suspending, as the protocol asks
            await asyncio.Event().wait()

    journal = Slow()
    task = asyncio.create_task(Engine(Scripted(), journal).ask(prompt("a"), item="i", draw="0"))
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(journal.replies) == 1


# --- shared calls and cancellation ------------------------------------------------------------------------------------


async def test_concurrent_asks_with_one_key_are_one_call() -> None:
    backend = Scripted(closed=True)
    engine = Engine(backend)
    tasks = [asyncio.create_task(engine.ask(prompt("a"), item=f"i{n}", draw="0")) for n in range(5)]
    await settled()
    backend.open.set()
    replies = await asyncio.gather(*tasks)
    assert backend.calls == 1
    assert {reply.text for reply in replies} == {"echo: a"}
    assert (engine.stats.shared, engine.stats.usage.prompt) == (4, 10), "and paid once"


async def test_those_who_share_a_call_share_its_fault() -> None:
    backend = Scripted([LLMFault(Code.AUTH, "no", retry=False)], closed=True)
    engine = Engine(backend)
    tasks = [asyncio.create_task(engine.ask(prompt("a"), item="i", draw="0")) for _ in range(3)]
    await settled()
    backend.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [getattr(outcome, "code", None) for outcome in outcomes] == [Code.AUTH] * 3
    assert backend.calls == 1


async def test_a_cancelled_asker_does_not_take_the_others_with_it() -> None:
    backend = Scripted(closed=True)
    engine = Engine(backend)
    tasks = [asyncio.create_task(engine.ask(prompt("a"), item="i", draw="0")) for _ in range(3)]
    await settled()
    tasks[0].cancel()
    await settled()
    assert backend.calls == 2, "one of the others took over"
    tasks[2].cancel()
    backend.open.set()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(outcomes[1], Reply)
    assert isinstance(outcomes[0], asyncio.CancelledError)
    assert isinstance(outcomes[2], asyncio.CancelledError)
    assert backend.calls == 2


async def test_cancellation_leaves_nothing_behind() -> None:
    backend, journal = Scripted(closed=True), Journal()
    engine = Engine(backend, journal, EngineLimits(concurrency=3))
    tasks = [asyncio.create_task(engine.ask(prompt(f"q{n}"), item="i", draw="0")) for n in range(10)]
    await settled()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (backend.calls, backend.cancelled) == (3, 3)
    assert journal.events == ["asked"] * 3, (
        "what was in flight stays visible as possibly paid; what waited was never asked"
    )
    assert (engine.gate.in_flight, engine.stats.in_flight) == (0, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    backend.open.set()
    assert (await engine.ask(prompt("q9"), item="i", draw="0")).text == "echo: q9"


async def test_cancellation_reaches_the_endpoint(fake_endpoint: FakeEndpoint) -> None:
    fake_endpoint.plan(script=["stall"] * 3)
    async with over_http(fake_endpoint, concurrency=3) as engine:
        tasks = [asyncio.create_task(engine.ask(prompt(f"q{n}"), item="i", draw="0")) for n in range(3)]
        while await asyncio.to_thread(lambda: fake_endpoint.log()["in_flight"]) < 3:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while await asyncio.to_thread(lambda: fake_endpoint.log()["in_flight"]):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
        assert (await engine.ask(prompt("after"), item="i", draw="0")).text == "echo: after"


# --- the budget -------------------------------------------------------------------------------------------------------


async def test_max_requests_is_exact(fake_endpoint: FakeEndpoint) -> None:
    async with over_http(fake_endpoint, concurrency=8, max_requests=10) as engine:
        outcomes = await ask_all(engine, 30)
    assert sum(isinstance(outcome, Reply) for outcome in outcomes) == 10
    assert sum(isinstance(outcome, BudgetReached) for outcome in outcomes) == 20
    assert fake_endpoint.log()["count"] == 10


@pytest.mark.parametrize(
    ("caps", "price", "answered"),
    [
        ({"max_tokens": 150}, None, 10),
        ({"max_tokens": 149}, None, 9),
        ({"max_tokens": 0}, None, 0),
        ({"max_cost": 0.2}, Price(input=1000, cached=0, output=2000), 10),  # 0.02 a reply
        ({"max_cost": 0.2, "max_tokens": 60}, Price(input=1000, cached=0, output=2000), 4),
    ],
)
async def test_caps_hold_although_many_are_in_flight(caps: dict[str, Any], price: Price | None, answered: int) -> None:
    backend = Scripted()
    backend.before = settled  # so that calls overlap
    journal = Journal()
    engine = Engine(backend, journal, EngineLimits(concurrency=50, **caps), price)
    outcomes = await ask_all(engine, 50)
    assert sum(isinstance(outcome, Reply) for outcome in outcomes) == answered
    assert sum(isinstance(outcome, BudgetReached) for outcome in outcomes) == 50 - answered
    assert backend.calls == answered
    assert journal.events.count("asked") == answered, "nothing is sent or noted beyond the budget"
    usage = engine.stats.usage
    assert (usage.prompt, usage.completion) == (answered * 10, answered * 5)
    if price is not None:
        assert usage.cost == pytest.approx(answered * 0.02)


async def test_recalled_replies_are_free_when_the_budget_is_gone() -> None:
    engine = Engine(Scripted(), limits=EngineLimits(max_requests=1))
    await engine.ask(prompt("a"), item="i", draw="0")
    assert (await engine.ask(prompt("a"), item="i", draw="0")).text == "echo: a"
    with pytest.raises(BudgetReached, match="max_requests is 1 and 1 is spent"):
        await engine.ask(prompt("b"), item="i", draw="0")


async def test_a_budget_that_ends_between_two_tries_records_the_fault() -> None:
    backend = Scripted([LLMFault(Code.SERVER_ERROR, retry=True)])
    journal = Journal()
    with pytest.raises(BudgetReached):
        await Engine(backend, journal, EngineLimits(max_requests=1, **QUICK)).ask(prompt("a"), item="i", draw="0")
    assert journal.events == ["asked", "failed"]


def test_a_cost_cap_without_a_price_is_refused() -> None:
    with pytest.raises(UserError, match="max_cost needs a price"):
        Engine(Scripted(), limits=EngineLimits(max_cost=1))


async def test_an_endpoint_without_usage_is_told_to_break_the_caps(
    fake_endpoint: FakeEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    fake_endpoint.plan(usage={})
    async with over_http(fake_endpoint, max_tokens=10) as engine:
        await ask_all(engine, 5)
    assert caplog.text.count("reports no token usage") == 1


# --- cost -------------------------------------------------------------------------------------------------------------


async def test_cost_is_the_endpoints_word_or_the_price_or_unknown() -> None:
    class Charged(Scripted):
        async def complete(self, request: Request, *, draw: str) -> Reply:
            return Reply(
                usage=Usage(prompt=1_000_000, cached=400_000, completion=100_000, cost=7.0 if draw == "1" else None)
            )

    priced = Engine(Charged(), price=Price(input=1, cached=0.5, output=10))
    assert (await priced.ask(prompt("a"), item="i", draw="0")).usage.cost == pytest.approx(0.6 + 0.2 + 1.0)
    assert (await priced.ask(prompt("a"), item="i", draw="1")).usage.cost == 7.0
    assert priced.stats.usage.cost == pytest.approx(8.8)
    unknown = Engine(Charged())
    assert (await unknown.ask(prompt("a"), item="i", draw="0")).usage.cost is None
    assert (unknown.stats.usage.cost, unknown.stats.unpriced) == (None, 1)


def test_prices() -> None:
    assert look_up_price("openai/gpt-4o-2024-11-20") == look_up_price("gpt-4o")
    assert look_up_price("gpt-4o-2024-05-13") != look_up_price("gpt-4o")
    assert look_up_price("gpt-4o-mini") != look_up_price("gpt-4o")
    assert look_up_price("llama-99") is None


# --- the gate ---------------------------------------------------------------------------------------------------------


async def test_the_gate_serves_in_order_and_tried_calls_first() -> None:
    gate = ConcurrencyLimiter(1, lambda: True)
    await gate.enter()
    order: list[str] = []

    async def pass_(name: str, first: bool = False) -> None:
        await gate.enter(first=first)
        order.append(name)
        gate.leave()

    tasks = [asyncio.create_task(pass_("a")), asyncio.create_task(pass_("b"))]
    await settled()
    tasks.append(asyncio.create_task(pass_("retry", True)))
    await settled()
    gate.leave()
    await asyncio.gather(*tasks)
    assert order == ["retry", "a", "b"]
    assert gate.in_flight == 0


async def test_a_place_given_to_a_cancelled_caller_is_passed_on() -> None:
    gate = ConcurrencyLimiter(1, lambda: True)
    await gate.enter()
    first, second = asyncio.create_task(gate.enter()), asyncio.create_task(gate.enter())
    await settled()
    gate.leave()  # gives the place to `first` …
    first.cancel()  # … which is cancelled before it runs again
    async with asyncio.timeout(10):  # a lost place would be waited for without end
        await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    assert not second.cancelled()
    assert gate.in_flight == 1


async def test_a_longer_limit_lets_more_in_and_a_pause_lets_in_nobody() -> None:
    gate = ConcurrencyLimiter(1, lambda: True)
    loop = asyncio.get_running_loop()
    until = loop.time() + 0.05
    gate.pause(0.05)
    gate.pause(0.001)  # a shorter pause does not end the longer one
    await gate.enter()
    assert loop.time() >= until
    gate.limit = 2
    await gate.enter()
    assert gate.in_flight == 2


async def test_a_call_that_takes_far_longer_than_the_others_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simia.llm.engine.STALL_LEAST", 0.05)
    backend = Scripted()
    engine = Engine(backend, limits=EngineLimits(**QUICK, concurrency=4, start=4))
    for i in range(64):
        await engine.ask(prompt(f"{i}"), item=f"i{i}", draw="0")
    backend.open.clear()  # the next one would never end

    asyncio.get_running_loop().call_later(0.3, backend.open.set)  # after it was cut short
    reply = await asyncio.wait_for(engine.ask(prompt("late"), item="late", draw="0"), 80)
    assert (reply.text, engine.stats.stalled, backend.cancelled) == (
        "echo: late",
        backend.cancelled,
        engine.stats.stalled,
    )
    assert backend.cancelled >= 1


async def test_the_limit_follows_what_the_endpoint_admits(fake_endpoint: FakeEndpoint) -> None:
    async with over_http(fake_endpoint, concurrency=64, start=64) as engine:
        fake_endpoint.plan(rate=0.3, mix=["429:20ms"])
        replies = await ask_all(engine, 300)
        assert sorted(reply.text for reply in replies if isinstance(reply, Reply)) == sorted(
            f"echo: q{i}" for i in range(300)
        )
        assert engine.gate.limit < 64
        fake_endpoint.plan()
        before = engine.gate.limit
        await asyncio.gather(*(engine.ask(prompt(f"more {i}"), item=f"m{i}", draw="0") for i in range(600)))
        assert engine.gate.limit > before


async def test_nobody_sends_while_the_rate_limit_has_nothing_left() -> None:
    class Told(Scripted):
        def __init__(self) -> None:
            super().__init__()
            self.rates = RateLimits()
            self.times: list[float] = []

        async def complete(self, request: Request, *, draw: str) -> Reply:
            self.times.append(asyncio.get_running_loop().time())
            left = "0" if self.calls == 0 else "1000000"
            self.rates.note({"x-ratelimit-remaining-tokens": left, "x-ratelimit-reset-tokens": "200ms"})
            return await super().complete(request, draw=draw)

    backend = Told()
    engine = Engine(backend, limits=EngineLimits(concurrency=1, start=1))
    await asyncio.gather(*(engine.ask(prompt(f"{i}"), item=f"i{i}", draw="0") for i in range(3)))
    assert backend.times[1] - backend.times[0] >= 0.19
    engine.gate.close()


async def test_who_waits_at_a_shut_gate_is_sent_away() -> None:
    backend = Scripted(closed=True)
    engine = Engine(backend, limits=EngineLimits(concurrency=1, start=1))
    first, second = (asyncio.create_task(engine.ask(prompt(f"{i}"), item=f"i{i}", draw="0")) for i in range(2))
    await asyncio.sleep(0.01)
    engine.gate.close()
    backend.open.set()
    assert (await first).text == "echo: 0"
    with pytest.raises(asyncio.CancelledError):
        await second
    assert backend.calls == 1


@pytest.mark.parametrize("waits", [60.0, 0.0])
async def test_who_waits_for_another_try_at_a_shut_gate_is_recorded_as_failed(waits: float) -> None:
    """Not as a call without an answer, which may have been paid for."""
    fault = LLMFault(Code.SERVER_ERROR, retry=True, retry_after=waits)
    journal, backend = Journal(), Scripted([fault])
    engine = Engine(backend, journal, EngineLimits(backoff=1e-6))

    async def pause() -> None:
        engine.gate.pause(90)

    if waits == 0.0:  # it waits at the gate, not for its own time
        backend.before = pause
    asked = asyncio.create_task(engine.ask(prompt("q"), item="i", draw="0"))
    await settled()
    assert journal.events == ["asked"]
    engine.gate.close()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert journal.events == ["asked", "failed"]
    assert list(journal.faults.values()) == [fault]


@pytest.mark.parametrize("engines", [1, 2, 4])
async def test_a_shared_cap_is_not_passed_by_as_many_replies_as_there_are_engines(engines: int) -> None:
    class Slow(Scripted):
        async def complete(self, request: Request, *, draw: str) -> Reply:
            await asyncio.sleep(0.02)
            return Reply(text="x", usage=Usage(prompt=90, completion=10))

    several = [Engine(Slow(), PassingJournal(), EngineLimits(max_tokens=1000)) for _ in range(engines)]
    share_budget(several)

    async def ask(engine: Engine, n: int) -> bool:
        try:
            await engine.ask(Request(messages=[]), item=str(n), draw=str(n))
        except BudgetReached:
            return False
        return True

    got = await asyncio.gather(*(ask(engine, n) for engine in several for n in range(30)))
    assert sum(got) == 10
    later = Engine(Slow(), PassingJournal(), EngineLimits(max_tokens=1000))
    share_budget([later], Spending(tokens=950, sent=9, answered=9))
    assert not await ask(later, 0), "a reply costs a tenth, as it did before, and a twentieth is left"
