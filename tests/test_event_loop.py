"""Work that is ready together is spread over the rounds of the loop, in its order, and none of it is lost."""

from __future__ import annotations

import asyncio
import gc
import time

from simia.errors import UserError
from simia.event_loop import A_ROUND, share_loop, start_shared


async def test_few_go_on_in_each_round_in_their_order() -> None:
    rounds, done, ends = [0], list[tuple[int, int]](), asyncio.Event()

    async def count() -> None:
        while not ends.is_set():
            rounds[0] += 1
            await asyncio.sleep(0)

    async def work(number: int) -> None:
        await share_loop()
        done.append((rounds[0], number))

    counting = asyncio.create_task(count())
    await asyncio.gather(*(work(number) for number in range(100)))
    ends.set()
    await counting
    assert [number for _, number in done] == list(range(100))
    in_round = [sum(at == each for at, _ in done) for each in {at for at, _ in done}]
    assert max(in_round) <= 2 * A_ROUND
    assert len(in_round) >= 100 // (2 * A_ROUND)


async def test_alone_nothing_waits_and_a_cancelled_one_holds_nobody_up() -> None:
    before = time.perf_counter()
    for _ in range(1000):
        await share_loop()
    assert time.perf_counter() - before < 5
    tasks = [asyncio.create_task(share_loop()) for _ in range(10 * A_ROUND)]
    await asyncio.sleep(0)
    for task in tasks[A_ROUND::2]:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(result is None or isinstance(result, asyncio.CancelledError) for result in ended)
    assert [result is None for result in ended[:A_ROUND]] == [True] * A_ROUND
    await asyncio.wait_for(share_loop(), 5)


def test_each_loop_counts_for_itself() -> None:
    async def many() -> int:
        await asyncio.gather(*(share_loop() for _ in range(50)))
        return 50

    assert [asyncio.run(many()) for _ in range(3)] == [50] * 3


async def test_shared_work_that_fails_after_its_waiter_was_cancelled_logs_no_traceback() -> None:
    logged, gone = list[object](), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))

    async def fail() -> None:
        await gone.wait()
        raise UserError("the folder of the code is gone")

    async def wait_for(shared: asyncio.Future[None]) -> None:
        await asyncio.shield(shared)

    for start, count in ((asyncio.ensure_future, 1), (start_shared, 1)):
        waiter = asyncio.create_task(wait_for(start(fail())))
        await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
        gone.set()
        for _ in range(3):
            await asyncio.sleep(0)
        gone.clear()
        del waiter
        gc.collect()
        assert len(logged) == count
