"""The coordinator with a small job: order, resumption, budget, Ctrl-C once and twice."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from simia.errors import Code
from simia.jobs import OPEN, Run
from simia.jobs.coordinator import InOrder, Stop
from simia.llm.budget import Spending
from simia.llm.engine import EngineLimits
from simia.llm.types import LLMFault, Reply, Request
from simia.trajectory import Usage
from tests.jobs.toy import Model, ToyConfig, ToyWork, coordinate

N = 24


async def session(
    runs: Path, model: Model, *, new: bool = False, grace: float = 10.0, **limits: Any
) -> tuple[Stop, ToyWork]:
    run = Run.create(runs, ToyConfig(n=N), name="toy", facts={"planned": N}) if new else Run.open(runs, "toy")
    try:
        coordinator, work = coordinate(run, model, N, EngineLimits(**limits))
        return await coordinator.run(grace=grace), work
    finally:
        run.close()


def accepted(runs: Path) -> list[str]:
    run = Run.read_only(runs, "toy")
    try:
        return [body["word"] for body in run.ledger.accepted()]
    finally:
        run.close()


@pytest.fixture
async def undisturbed(tmp_path: Path) -> list[str]:
    """What a job that nothing disturbs accepts."""
    stop, work = await session(tmp_path / "undisturbed", Model(0.001), new=True)
    assert stop == Stop("complete")
    assert work.decided == list(range(N)), "decided in plan order"
    assert 0 < len(work.words) < N
    return work.words


async def test_results_that_arrive_in_any_order_are_decided_in_plan_order(
    undisturbed: list[str], tmp_path: Path
) -> None:
    model = Model(0.02)
    stop, work = await session(tmp_path, model, new=True)
    assert stop.kind == "complete"
    arrived = [int(draw[1:].split(".")[0]) for draw in model.answered if draw.endswith(".1")]
    assert arrived != sorted(arrived), "they did arrive in another order"
    assert work.decided == list(range(N))
    assert accepted(tmp_path) == undisturbed


def test_in_order_gives_back_without_gaps() -> None:
    order: InOrder[int] = InOrder()
    numbers = list(range(50))
    random.Random(1).shuffle(numbers)
    assert [value for number in numbers for value in order.add(number, number)] == list(range(50))
    assert list(order.add(51, 51)) == []
    assert order.waiting == {51: 51}


async def test_cancelled_session_is_resumed_and_asks_nothing_twice(undisturbed: list[str], tmp_path: Path) -> None:
    some = asyncio.Event()
    first = Model(0.03, lambda line: some.set() if line == "asked t14.0" else None)
    task = asyncio.create_task(session(tmp_path, first, new=True))
    await some.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert 0 < len(accepted(tmp_path)) < len(undisturbed)
    second = Model(0.001)
    stop, _ = await session(tmp_path, second)
    assert stop.kind == "complete"
    assert accepted(tmp_path) == undisturbed
    assert not set(first.answered) & set(second.answered), "a reply that was received is not asked for again"


async def test_result_whose_file_is_gone_is_made_again_from_stored_replies(
    undisturbed: list[str], tmp_path: Path
) -> None:
    await session(tmp_path, Model(0.001), new=True)
    (tmp_path / "toy" / "words" / "t3.txt").unlink()
    model = Model(0.001)
    stop, _ = await session(tmp_path, model)
    assert stop.kind == "complete"
    assert (tmp_path / "toy" / "words" / "t3.txt").is_file()
    assert model.answered == []
    assert accepted(tmp_path) == undisturbed


async def test_budget_stops_the_job_and_a_raised_one_completes_it(undisturbed: list[str], tmp_path: Path) -> None:
    first = Model(0.005)
    stop, work = await session(tmp_path, first, new=True, max_requests=13)
    assert stop.kind == "budget"
    assert "raise max_requests" in stop.detail
    assert len(first.answered) == 13
    assert len(work.decided) < N
    again = Model(0.005)
    assert (await session(tmp_path, again, max_requests=13))[0].kind == "budget"
    assert again.answered == [], "what an earlier session spent is spent"
    assert (await session(tmp_path, Model(0.005)))[0].kind == "complete"
    assert accepted(tmp_path) == undisturbed


class Slow(Model):
    """Answers each request at its second try; the first has no answer in time."""

    def __init__(self) -> None:
        super().__init__(0.001)
        self.tried: list[str] = []
        self.tried_some = asyncio.Event()

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.tried.append(draw)
        if len(self.tried) > 5:
            self.tried_some.set()
        if self.tried.count(draw) == 1:
            raise LLMFault(Code.TIMEOUT, "no answer within 5 s", retry=True)
        return await super().complete(request, draw=draw)


@pytest.mark.parametrize("limits", [{"max_requests": 16}, {"max_tokens": 30}], ids=str)
async def test_a_budget_counts_the_tries_of_earlier_sessions(limits: dict[str, Any], tmp_path: Path) -> None:
    limits |= {"backoff": 0.001}
    model = Slow()
    stop, _ = await session(tmp_path, model, new=True, **limits)
    tried = len(model.tried)
    assert (stop.kind, tried > len(model.answered) > 2) == ("budget", True)
    again, _ = await session(tmp_path, model, **limits)
    assert (again.kind, len(model.tried)) == ("budget", tried), "nothing is left of the budget"
    last, _ = await session(tmp_path, model, backoff=0.001)
    assert last.kind == "complete"


async def test_tries_of_a_cancelled_session_count_and_calls_that_only_waited_do_not(tmp_path: Path) -> None:
    run = Run.create(tmp_path, ToyConfig(n=N), name="toy", facts={"planned": N})
    try:
        model = Slow()
        coordinator, _ = coordinate(run, model, N, EngineLimits(backoff=60))
        job = asyncio.ensure_future(coordinator.run())
        await asyncio.wait_for(model.tried_some.wait(), 60)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        known = run.ledger.earlier_spending()
        assert (known.sent, known.blind) == (len(model.tried), len(model.tried))
    finally:
        run.close()


async def test_a_call_in_flight_at_the_end_of_a_session_may_have_been_paid(tmp_path: Path) -> None:
    run = Run.create(tmp_path, ToyConfig(n=N), name="toy", facts={"planned": N})
    try:
        for key in "ab":
            await run.ledger.asked(key, key, key, Request(messages=[]))
        await run.ledger.answered("a", "a", Reply(text="x", usage=Usage(prompt=3, completion=1)))
        assert run.ledger.earlier_spending() == Spending(sent=2, answered=1, tokens=4, blind=1)
        model = Slow()
        coordinator, _ = coordinate(run, model, N, EngineLimits(max_tokens=8))
        assert (await coordinator.run()).kind == "budget"
        assert model.tried == []
    finally:
        run.close()


async def test_a_stop_that_nobody_asked_for_waits_for_all_replies_in_flight(tmp_path: Path) -> None:
    """They are paid for, and may take longer than somebody at the keyboard waits."""
    model = Model(0.05)
    stop, _ = await session(tmp_path, model, new=True, grace=0.0, max_requests=13)
    run = Run.read_only(tmp_path, "toy")
    attempts = run.ledger.spent()[1]
    run.close()
    assert stop.kind == "budget"
    assert attempts == {"got": 13}


async def test_ctrl_c_ends_the_wait_of_another_stop(tmp_path: Path) -> None:
    asked: list[str] = []
    all_asked = asyncio.Event()

    def note(line: str) -> None:
        asked.append(line)
        if len(asked) == 4:
            all_asked.set()

    run = Run.create(tmp_path, ToyConfig(n=N), name="toy", facts={"planned": N})
    coordinator, _ = coordinate(run, Model(300, note), N, EngineLimits(max_requests=4))
    job = asyncio.create_task(coordinator.run(grace=0.0))
    await all_asked.wait()
    await asyncio.sleep(0.1)
    assert coordinator.progress.stopping == "budget"
    assert not job.done()
    coordinator.stop("interrupted")
    assert (await job).kind == "budget"
    assert run.ledger.spent()[1] == {"sent": len(asked)} == {"sent": 4}
    run.close()


async def test_acceptance_that_no_longer_holds_is_withdrawn(tmp_path: Path) -> None:
    """An item was open when later ones were accepted: the next session decides them again, with what it yields."""
    await session(tmp_path, Model(0.001), new=True)
    run = Run.open(tmp_path, "toy")
    item = next(item for item in run.ledger.items() if item.ord == 1)
    twin = next(item for item in run.ledger.items() if item.ord == 6)
    word = (run.folder / "words" / "t1.txt").read_text()
    (run.folder / "words" / "t6.txt").write_text(word)
    run.ledger.accept(twin, "of an earlier session")
    item.status = OPEN
    run.ledger.set_status(item)
    run.close()
    (tmp_path / "toy" / "words" / "t1.txt").unlink()
    await session(tmp_path, Model(0.001))
    run = Run.read_only(tmp_path, "toy")
    ords = run.ledger.accepted_ords()
    run.close()
    assert (1 in ords) or word[0] in "0123"
    assert 6 not in ords


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_waits_for_replies_in_flight_and_the_second_one_does_not(presses: int, tmp_path: Path) -> None:
    seconds = 2.0 if presses == 1 else 300.0
    command = [sys.executable, "-m", "tests.jobs.toy", str(tmp_path), str(N), str(seconds), "120"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    asked = [child.stdout.readline() for _ in range(6)]
    child.send_signal(signal.SIGINT)
    if presses == 2:
        time.sleep(1)
        assert child.poll() is None, "it waits for what is in flight"
        child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    lines = [*(line.strip() for line in asked), *out.split("\n")]
    assert (child.returncode, err) == (0, "")
    assert lines[-2] == "interrupted"
    run = Run.read_only(tmp_path, "toy")
    attempts = run.ledger.spent()[1]
    run.close()
    if presses == 1:
        assert attempts["got"] == len([line for line in lines if line.startswith("asked")]) >= 6
        assert "sent" not in attempts, "every reply in flight was received"
    else:
        assert attempts == {"sent": 6}
    stop, work = asyncio.run(session(tmp_path, Model(0.001)))
    assert stop.kind == "complete"
    _, undisturbed = asyncio.run(session(tmp_path / "undisturbed", Model(0.001), new=True))
    assert accepted(tmp_path) == work.words == undisturbed.words
