"""A small job for the coordinator: items of two kinds, two samples for each, a file for each result.

Even items make a word from two replies. An odd item quotes the last word accepted AHEAD places before it, and is planned once that place
is decided: a second kind that is fed by the first. Run as a program, it prints `asked` lines and how the job ended:

    python -m tests.jobs.toy RUNS N SECONDS GRACE
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Callable
from pathlib import Path

from simia.config import Config
from simia.errors import Code
from simia.jobs import OPEN, PASSED, REJECTED, Item, Run
from simia.jobs.coordinator import Coordinator, Stop, StopSettings, Verdict, stop_on_signals
from simia.jobs.progress import Progress
from simia.llm.budget import share_budget
from simia.llm.engine import Engine, EngineLimits
from simia.llm.types import Reply, Request
from simia.trajectory import Usage, digest

AHEAD = 8


class ToyConfig(Config):
    kind: str = "rollout"
    n: int = 20


class Model:
    """Answers with a number that follows from the sample's name, after a random time."""

    alias, model, structured = "toy", "toy", False

    def __init__(self, seconds: float, say: Callable[[str], None] = lambda _: None) -> None:
        self.seconds, self.say = seconds, say
        self.answered: list[str] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.say(f"asked {draw}")
        await asyncio.sleep(self.seconds * random.uniform(0.2, 1.8))
        self.answered.append(draw)
        return Reply(text=digest(draw)[:2], usage=Usage(prompt=1, completion=1))


class ToyWork:
    """Words are accepted once each, until there are n items; a word that begins with a digit below 4 is rejected."""

    def __init__(self, run: Run, engine: Engine, n: int) -> None:
        self.run, self.engine, self.n = run, engine, n
        self.accepted: list[tuple[int, str]] = []
        self.decided: list[int] = []

    @property
    def words(self) -> list[str]:
        return [word for _, word in self.accepted]

    def wants(self, ord_: int, in_flight: int) -> bool:
        return ord_ < self.n and (ord_ % 2 == 0 or len(self.decided) > ord_ - AHEAD)

    def plan(self, ord_: int) -> Item:
        earlier = [word for place, word in self.accepted if place <= ord_ - AHEAD]
        return Item(f"t{ord_}", ord_, {"after": earlier[-1] if earlier else ""} if ord_ % 2 else {})

    def file(self, item: Item) -> Path:
        return self.run.folder / "words" / f"{item.id}.txt"

    def restore(self, item: Item, content_hash: str | None, tools: list[str], signature: bytes | None) -> str | None:
        if item.status == OPEN or not self.file(item).exists():
            return None
        return self.file(item).read_text()

    async def produce(self, item: Item) -> str:
        replies = []
        for sample in range(2):
            request = Request(messages=[{"role": "user", "content": str(item.spec)}])
            replies.append((await self.engine.ask(request, item=item.id, draw=f"{item.id}.{sample}")).text)
        return "".join(replies) + str(item.spec.get("after", ""))[:4]

    def conclude(self, item: Item, result: str) -> str:
        self.file(item).parent.mkdir(exist_ok=True)
        self.file(item).write_text(result)
        rejected = result[0] in "0123"
        item.status, item.reason = (REJECTED, str(Code.LOW_REWARD)) if rejected else (PASSED, None)
        self.run.ledger.conclude(item, digest(result), {"trajectory": None, "word": result, "issues": []})
        return result

    def decide(self, item: Item, outcome: str | None) -> Verdict:
        self.decided.append(item.ord)
        if item.status != PASSED or outcome is None or outcome in self.words:
            return "rejected"
        self.accepted.append((item.ord, outcome))
        self.run.ledger.accept(item, digest(outcome))
        return "accepted"

    def find_stop(self) -> Stop | None:
        return None

    def explain_end(self) -> Stop:
        return Stop("complete") if len(self.decided) == self.n else Stop("aborted", "items failed")


def coordinate(run: Run, model: Model, n: int, limits: EngineLimits) -> tuple[Coordinator[str, str], ToyWork]:
    engine = Engine(model, run.ledger, limits)
    share_budget([engine], run.ledger.earlier_spending())
    work = ToyWork(run, engine, n)
    settings = StopSettings(min_yield=0)
    return Coordinator(run, work, [engine], Progress(run.id, n), settings, concurrency=6), work


async def main(runs: Path, n: int, seconds: float, grace: float) -> None:
    config = ToyConfig(n=n)
    run = Run.create(runs, config, name="toy", facts={"planned": n})
    try:
        coordinator, _ = coordinate(run, Model(seconds, lambda line: print(line, flush=True)), n, EngineLimits())
        with stop_on_signals(coordinator):
            stop = await coordinator.run(grace=grace)
        print(stop.kind, flush=True)
    finally:
        run.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])))
