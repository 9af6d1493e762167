"""A process that spends from a store's budget: `python -m tests.jobs.spender ROOT SENT CAPS ASKS [COSTS…]`.

It asks a back end that needs no model for ASKS replies at once, each a pause and so many tokens of COSTS in turn, and prints how
many came and why the others did not. A line in the file SENT is a request that went out; a cost of 0 never comes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from simia.jobs import Store
from simia.llm.budget import share_budget
from simia.llm.engine import BudgetReached, Engine, EngineLimits
from simia.llm.prices import Price
from simia.llm.types import Reply, Request
from simia.trajectory import Usage

PRICE = Price(input=1000, cached=0, output=1000)  # a tenth of a cent a token


class Spender:
    """Answers after a pause, or when `open` is set."""

    alias, model, structured = "spender", "m", True

    def __init__(self, sent: Path | None = None, costs: list[int] | None = None, *, closed: bool = False) -> None:
        self.sent, self.costs, self.calls = sent, costs or [15], 0
        self.open: asyncio.Event | None = asyncio.Event() if closed else None

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        cost = self.costs[self.calls % len(self.costs)]
        self.calls += 1
        if self.sent is not None:
            with self.sent.open("a") as file:
                file.write(f"{cost}\n")
        if self.open is not None:
            await self.open.wait()
        await asyncio.sleep(0.005 if cost else 600)
        return Reply(text="x", usage=Usage(prompt=cost - 5, completion=5))


def engine(backend: Spender, store: Store, **caps: Any) -> Engine:
    made = Engine(backend, store, EngineLimits(concurrency=8, **caps), PRICE)
    share_budget([made], shared=store.open_shared_budget())
    return made


async def ask(engine: Engine, n: int, name: str = "i") -> list[Reply | BaseException]:
    asks = (
        engine.ask(Request(messages=[{"role": "user", "content": f"{name}{i}"}]), item=f"{name}{i}", draw="0")
        for i in range(n)
    )
    return await asyncio.gather(*asks, return_exceptions=True)


async def main(root: str, sent: str, caps: str, asks: str, *costs: str) -> None:
    store = Store.open(Path(root))
    made = engine(Spender(Path(sent), [int(cost) for cost in costs]), store, **json.loads(caps))
    print("ready", flush=True)
    sys.stdin.readline()
    outcomes = await ask(made, int(asks), store.folder.name)
    reached = [str(each) for each in outcomes if isinstance(each, BudgetReached)]
    other = [repr(each) for each in outcomes if not isinstance(each, Reply | BudgetReached)]
    answered = sum(isinstance(each, Reply) for each in outcomes)
    print(json.dumps({"answered": answered, "reached": reached, "other": other}))
    store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
