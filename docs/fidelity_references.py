"""What recorded references buy (docs/simulated.md): the figures from what was recorded, `python docs/fidelity_references.py`.

Calls of customer_service's test tasks, each in the world as it truly is, answered by a strong model that saw the rendered prompts alone:

- `solution`: the 28 calls of seven solutions, with the results of the solution in the prompt. They hold what is asked for: an upper bound.
- `other`: the 24 calls of `other_calls.jsonl`, which no solution of its task makes, after the solution's first calls. A policy that goes
  another way makes such calls. Three ways: the schema, the solution's calls, the solution's calls and results.

`--ask FOLDER` writes the prompts without a reply to recordings in FOLDER; `scripts.prompt_files` makes files of them and takes replies.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simia.envs.environment import EpisodeLimits
from simia.envs.opening import open_environment
from simia.envs.play.player import play
from simia.envs.users import EpisodeView, ScriptedUser
from simia.envs.worlds.simulated import SimulatedBackend
from simia.errors import Code
from simia.evaluation.fidelity import Fidelity, estimate_gain, measure_fidelity
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.llm.replay import RecordedReply, ReplayBackend, ReplaySettings, append_recording
from simia.llm.types import LLMFault, ModelBackend, Reply, Request
from simia.pack import Pack
from simia.task import Action
from simia.trajectory import Message, ToolCall

RECORDINGS = Path(__file__).parents[1] / "tests" / "recordings"
OTHER = [json.loads(line) for line in Path(__file__).with_name("other_calls.jsonl").read_text("utf-8").splitlines()]
KINDS = ("look-up", "change")
WAYS: dict[str, dict[str, Any]] = {  # the simulator's settings
    "schema": {"knowledge": "schema"},
    "calls": {"knowledge": "reference", "observations": False},
    "results": {"knowledge": "reference", "observations": True},
}
SOLUTION, OF_CALLS = "fidelity-solution-results", "fidelity-reference-plain"


class CallsAgent:
    """Makes these calls, one a turn."""

    def __init__(self, actions: Sequence[Action]) -> None:
        calls = [ToolCall(id=f"call_{n}", name=each.name, arguments=each.arguments) for n, each in enumerate(actions)]
        self._left = [Message(role="assistant", calls=[call]) for call in calls]

    async def act(self, view: EpisodeView) -> tuple[Message, None]:
        return self._left.pop(0) if self._left else Message(role="assistant", content="Done."), None


class AskingBackend:
    """Keeps the requests, and has no replies."""

    alias, model, structured = "asking", "asking", True

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def start(self) -> None: ...

    async def close(self) -> None: ...

    async def complete(self, request: Request, *, draw: str) -> Reply:
        self.asked.append(request)
        raise LLMFault(Code.REPLAY_MISS, "not answered yet", retry=False)


async def play_calls(backend: ModelBackend, task_id: str, actions: Sequence[Action], **settings: Any) -> list[Any]:
    """The calls of one episode, each answered by both worlds; the simulator's history holds the real answers."""
    async with Engine(backend, MemoryJournal(), EngineLimits(retries=0)) as engine:
        environment = await open_environment(
            "customer_service", backend="shadow", user=ScriptedUser, episode=EpisodeLimits(turns=200, errors=200),
            engine=engine, ledger=False, again=0, **settings,
        )  # fmt: skip
        async with environment:
            episode = await environment.reset(environment.pack.task(task_id))
            trajectory = await play(episode, CallsAgent(actions))
    return [{**row, "episode": task_id} for row in (trajectory.evidence or {})["differences"]]


async def play_solutions(backend: ModelBackend, **settings: Any) -> list[Any]:
    """The calls of seven solutions: those of the older rows in docs/simulated.md."""
    tasks = [task for task in Pack.load("customer_service").tasks if task.split == "test" and len(task.actions) >= 3]
    return [row for task in tasks[:7] for row in await play_calls(backend, task.id, task.actions, **settings)]


async def play_other(
    backend: ModelBackend, kind: str, *, other: Sequence[Mapping[str, Any]] = OTHER, **settings: Any
) -> AsyncIterator[Any]:
    """The other calls of a kind. Those of the solution that come before have no recorded answer and are left out."""
    pack = Pack.load("customer_service")
    for row in other:
        if row["kind"] == kind:
            call = Action(name=row["name"], arguments=row["arguments"])
            before = pack.task(row["task"]).actions[: row["after"]]
            last = (await play_calls(backend, row["task"], [*before, call], **settings))[-1]
            yield {**last, "step": 1 + KINDS.index(kind)}


async def ask(folder: Path) -> None:
    """Write the prompts to recordings without replies, one batch for each kind and way, at most 20 prompts in each."""
    asking = AskingBackend()
    rows = await play_solutions(asking, **WAYS["results"])
    half = next(n for n, row in enumerate(rows) if n >= len(rows) // 2 and row["episode"] != rows[n - 1]["episode"])
    batches = {(SOLUTION, "1"): asking.asked[:half], (SOLUTION, "2"): asking.asked[half:]}
    for way, settings in WAYS.items():
        for kind in KINDS:
            asking = AskingBackend()
            ends = []
            async for _ in play_other(asking, kind, **settings):
                ends.append(asking.asked[-1])
            batches[f"fidelity-other-{way}", kind] = ends
    for (name, part), requests in batches.items():
        prompts = hash_prompts()
        new = [
            RecordedReply(request=each, model="strong", batch=f"{name}-{part}", prompts=prompts) for each in requests
        ]
        append_recording(new, folder / f"{name}.jsonl")


def hash_prompts() -> dict[str, str]:
    return SimulatedBackend(Pack.load("customer_service")).feedback.hashes


def open_recording(name: str) -> ReplayBackend:
    return ReplayBackend(ReplaySettings(path=RECORDINGS / f"{name}.jsonl"))


async def measure() -> dict[str, Fidelity]:
    """Figures from the recordings. `solution, …`: the calls of the solutions; `look-up, …` and `change, …`: other calls."""
    specs = {tool.name: tool for tool in Pack.load("customer_service").tools}
    found = {
        "solution, calls": measure_fidelity(await play_solutions(open_recording(OF_CALLS), **WAYS["calls"]), specs)
    }
    found["solution, results"] = measure_fidelity(
        await play_solutions(open_recording(SOLUTION), **WAYS["results"]), specs
    )
    for way, settings in WAYS.items():
        both = []
        for kind in KINDS:
            model = open_recording(f"fidelity-other-{way}")
            rows = [row async for row in play_other(model, kind, **settings)]
            found[f"{kind}, {way}"] = measure_fidelity(rows, specs)
            both += rows
        found[f"other, {way}"] = measure_fidelity(both, specs)
    return found


def describe(found: dict[str, Fidelity]) -> str:
    """A line for each row, and for what results add to the calls alone, and calls to the schema."""
    lines = []
    for name, each in found.items():
        total = each.total
        lines.append(
            f"{name:18} {total.calls} calls, {total.lost} lost; right shape {total.schema_validity}, success and refusal "
            f"agree in {total.agree}; F1 {each.interval('value_f1')}"
        )
    for what in ("solution", "other", *KINDS):
        for one, two in (("results", "calls"), ("results", "schema"), ("calls", "schema")):
            if f"{what}, {one}" in found and f"{what}, {two}" in found:
                gain = estimate_gain(found[f"{what}, {one}"], found[f"{what}, {two}"], "value_f1")
                agreement = estimate_gain(found[f"{what}, {one}"], found[f"{what}, {two}"], "agreement")
                lines.append(f"{what}: {one} over {two}: F1 {gain}, success and refusal {agreement}")
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        asyncio.run(ask(Path(sys.argv[2])))
    else:
        print(describe(asyncio.run(measure())))
