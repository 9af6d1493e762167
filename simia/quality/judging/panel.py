"""Ask judges about trajectories, vote by vote, through an engine, which applies limits and budget and stores paid replies.

A reply that cannot be read is requested again with the fault named, as a further sample; after the last try the verdict
is an error. Verdicts are a pure function of the stored replies: with the same journal, asking again costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar, cast

from simia.errors import Code
from simia.llm.engine import Engine
from simia.llm.repeated_questions import UNREADABLE_VERDICT
from simia.llm.types import LLMFault, ModelBackend, Reply, Request
from simia.quality.judging.judge_reply import Verdict, combine_votes, make_error, read_verdict
from simia.quality.judging.rubric import Rubric
from simia.quality.judging.settings import Judge, PrefilterSettings
from simia.trajectory import Trajectory

T = TypeVar("T")


class Asker(Protocol):
    """The part of an engine that a judge needs; stored replies have it too."""

    @property
    def backend(self) -> ModelBackend:
        """The back end, whose names are part of a reply's key."""

    def make_key(self, request: Request, draw: str) -> str:
        """Return the key of the reply."""

    async def ask(self, request: Request, *, item: str, draw: str, key: str | None = None) -> Reply:
        """Return the reply. Raises `LLMFault`."""


class Panelist:
    """A judge with the engine of its model."""

    def __init__(self, judge: Judge, engine: Asker, *, keeps: Collection[Code] | None = None) -> None:
        """`keeps`: the faults of the endpoint that become an error of the verdict, the others are raised; None: all are kept."""
        self.judge = judge
        self.engine = engine
        self.keeps = keeps
        self.rubric = Rubric(judge)
        self.names = list(self.rubric.dimensions)

    async def verdict(
        self, trajectory: Trajectory, *, item: str, draw: str, goals: Sequence[Any] = (), in_turn: bool = False
    ) -> Verdict:
        """Ask for the judge's verdict. Raises `BudgetReached`, which says nothing about the trajectory.

        `goals`: what the conversation was planned to settle. `in_turn`: one vote after the other, for an asker that never waits.
        """
        request = self.rubric.request(trajectory, structured=self.engine.backend.structured, goals=goals)
        votes = (self._vote(request, item=item, draw=draw, vote=vote) for vote in range(self.judge.votes))
        return combine_votes([await vote for vote in votes] if in_turn else await gather_all(votes), self.names)

    async def _vote(self, request: Request, *, item: str, draw: str, vote: int) -> Verdict:
        asked = request
        for attempt in range(self.judge.tries):
            name = f"{draw}.{vote + attempt * self.judge.votes}"
            key = self.engine.make_key(asked, name)
            try:
                reply = await self.engine.ask(asked, item=item, draw=name)
            except LLMFault as fault:
                if self.keeps is not None and fault.code not in self.keeps:
                    raise
                return make_error(self.names, fault.code, fault.detail, key=key)
            read = read_verdict(reply, self.names, key=key)
            if read.error is None:
                return read
            asked = request
            if reply.text.strip() and not reply.truncated:
                why = read.detail or (read.error and read.error.meaning)
                said: list[dict[str, Any]] = [
                    {"role": "assistant", "content": reply.text},
                    {"role": "user", "content": UNREADABLE_VERDICT.format(why=why)},
                ]
                asked = request.model_copy(update={"messages": [*request.messages, *said]})
        return read


async def judge_seeds_by_llm(seeds: Sequence[Trajectory], settings: PrefilterSettings, engine: Engine) -> list[Verdict]:
    """Judge each seed on completeness, logic and format (paper §2.2), in order, after the rules of `quality.seed_filter`.

    Raises `BudgetReached`, and `LLMFault` of code PENDING where a batch is to answer; replies received before that are in the journal.
    """
    panelist = Panelist(settings, engine, keeps=frozenset(Code) - {Code.PENDING})
    return await gather_all(panelist.verdict(seed, item=f"prefilter-{seed.id}", draw="prefilter") for seed in seeds)


async def gather_all(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all results in order. If one raises, wait for the others first: their replies are paid for."""
    done = await asyncio.gather(*work, return_exceptions=True)
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
    return cast(list[T], done)
