"""Ask a simulator about a frozen set of calls, and compare each answer with the truth.

Each sample is played as a part of a shadow episode: the calls before it are made in the real world and given to the simulator as history,
and the simulator answers only the sampled call. So the rows are like those of shadow episodes. Replies are stored before they are used: the
same command again requests only missing replies. An endpoint may be files (`llm.kind: batch`) or a recording (`replay`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia.envs.config import EnvironmentConfig
from simia.envs.worlds.mixed_and_shadow import PairBackend, make_shadow_backend
from simia.envs.worlds.simulated import SimulatedBackend
from simia.errors import Aborted, UserError
from simia.evaluation.call_samples import CallSample, SampleSet
from simia.jobs.database import Database
from simia.jobs.integrity import refuse_lost_replies
from simia.jobs.journal import Journal
from simia.jobs.run import take_lock
from simia.llm.backends import find_price, open_backend
from simia.llm.budget import count_tries, share_budget
from simia.llm.engine import Engine
from simia.llm.replay import RecordedReply, append_recording
from simia.llm.types import describe_waiting
from simia.pack import Pack
from simia.trajectory import ToolCall, Usage, digest

Say = Callable[[str], None]
SINGLE_ANSWER = {"again": 0, "ledger": False, "observations": False}
"""Default settings of the measure: one answer, no ledger, and no recorded results, which may contain the answer."""


@dataclass(slots=True)
class SampleReplies:
    """The compared calls of a set, in its order; `usage`: of all sessions; `waiting`: where the requests of a batch wait."""

    rows: list[dict[str, Any]]
    usage: Usage
    waiting: str = ""


def load_packs(head: SampleSet, given: Sequence[str] = ()) -> dict[str, Pack]:
    """Load the packs of a set, each by its name or from `given` paths. Raises `UserError` for one that is not found."""
    named = {pack.name: pack for pack in map(Pack.load, given)}
    return {name: named[name] if name in named else load_bundled(name) for name in head.packs}


def load_bundled(name: str) -> Pack:
    """Load a bundled pack by the name in its pack.yaml, also one of a collection such as gyms/."""
    for place in (name, f"gyms/{name}"):
        with contextlib.suppress(UserError):
            return Pack.load(place)
    raise UserError(f"the set has calls of pack {name}, which is not bundled: name its folder too")


async def ask_about_samples(
    samples: Sequence[CallSample],
    packs: dict[str, Pack],
    config: EnvironmentConfig,
    folder: Path,
    *,
    concurrency: int = 64,
    say: Say = print,
    record: Path | None = None,
) -> SampleReplies:
    """Ask the simulator about all samples. `config`: the model (`simulator`, else `llm`), its limits, and the simulator's `backend_settings`.

    Replies are stored in `folder`, which must exist; `record`: a recording to which they are appended too. A call without an answer has a
    row with `lost`. Raises `UserError` for settings that cannot work.
    """
    model = config.simulator or config.llm
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(take_lock(folder))
        refuse_lost_replies(folder)
        database = Database(folder)
        stack.callback(database.close)
        journal = Journal(database)
        journal.complete_attempts()
        backend = open_backend(model, say=say)
        engine = await stack.enter_async_context(Engine(backend, journal, config.limits, find_price(model)))
        share_budget([engine], journal.earlier_spending())
        settings = {**SINGLE_ANSWER, **config.backend_settings}
        try:
            rows = await compare_samples(samples, packs, engine, settings, concurrency=concurrency)
        finally:
            journal.note_tries(*count_tries([engine]))
        journal.flush()
        if record is not None:
            prompts = SimulatedBackend(next(iter(packs.values())), **settings).feedback.hashes
            append_recording(list_recorded_replies(database, journal, backend.model, prompts), record)
        return SampleReplies(rows, journal.spent()[0], describe_waiting([backend]))


def list_recorded_replies(
    database: Database, journal: Journal, model: str, prompts: dict[str, str]
) -> Iterator[RecordedReply]:
    """Yield the stored replies with their requests, in order of arrival."""
    for (key,) in database.replies.execute("SELECT key FROM reply ORDER BY at").fetchall():
        reply, request = journal.recall(key), journal.recall_request(key)
        if reply is not None and request is not None:
            yield RecordedReply(request=request, reply=reply, model=model, prompts=prompts)


async def compare_samples(
    samples: Sequence[CallSample],
    packs: Mapping[str, Pack],
    engine: Engine,
    settings: Mapping[str, Any],
    *,
    concurrency: int = 64,
) -> list[dict[str, Any]]:
    """Make the rows of all samples, in their order. `settings`: of the back end `shadow`."""
    async with contextlib.AsyncExitStack() as stack:
        worlds: dict[str, PairBackend] = {}
        for name, pack in packs.items():
            worlds[name] = make_shadow_backend(pack, **settings)
            worlds[name].use(engine)
            stack.push_async_callback(worlds[name].close)
            await worlds[name].start()
        gate = asyncio.Semaphore(concurrency)

        async def compare(sample: CallSample) -> dict[str, Any]:
            async with gate:
                return await compare_sample(sample, worlds[sample.pack])

        return list(await asyncio.gather(*map(compare, samples)))


async def compare_sample(sample: CallSample, backend: PairBackend) -> dict[str, Any]:
    """Make the row of one call, as in shadow episodes. Raises `UserError` if the pack's code no longer gives the frozen result."""
    world = await backend.open(backend.pack.task(sample.task), group=f"sample/{sample.id}")
    try:
        for number, action in enumerate(sample.before):
            await world.follow(ToolCall(id=f"call_{number}", name=action.name, arguments=action.arguments), action.by)
        call = ToolCall(id=f"call_{len(sample.before)}", name=sample.call.name, arguments=sample.call.arguments)
        before = digest(await world.real.state())
        await world.call([call], sample.call.by)
        row = world.differences[-1]
    except Aborted as error:
        raise UserError(f"{sample.id}: the pack's code does not run: {error.detail}; run simia doctor") from None
    finally:
        await world.close()
    real, step = row["real"], row.get("transition")
    known = [sample.state, sample.failed, sample.result, sample.changes if step else []]
    if digest([before, real["failed"], real["content"], step["real"] if step else []]) != digest(known):
        raise UserError(
            f"{sample.id}: the pack's code gives another answer than the frozen one, so the pack has changed: sample a new set"
        )
    return {
        **row,
        "episode": f"{sample.pack}/{sample.task}",
        "sample": sample.id,
        "source": sample.source,
        "pack": sample.pack,
    }
