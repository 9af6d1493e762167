"""A simulated episode that holds the pack's tables. Each answer reports its changes, which are checked, applied and shown in later prompts.

Each call is a request of its own, so that it sees the state after the previous call. Changes that the schema, the tool's declaration or the
pack's code forbids are refused with the reason, and the model is asked again, at most `again` times. If no answer is accepted, the call
fails without a change, like a tool of the executable world that crashes. With `compute: reads` the pack's code answers look-ups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import zstandard

from simia.envs.worlds.arguments import make_failure, refuse_call
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall
from simia.envs.worlds.simulated.held_state import HeldState, ProposedState
from simia.envs.worlds.simulated.world import SimulatedWorld, SimulationServices, make_tool_result
from simia.envs.worlds.world import ToolResult
from simia.errors import Code
from simia.keyed_changes import parse_keyed_changes
from simia.quality.entity_ledger import EntityLedger
from simia.task import By, Task
from simia.trajectory import ToolCall, digest, write_compact_json


class StatefulServices(SimulationServices, Protocol):
    """The part of its back end that a world with a state uses, besides `SimulationServices`."""

    def is_executed(self, name: str, by: By) -> bool:
        """Whether the pack's code answers this tool."""

    def write_request(
        self,
        task: Task,
        history: Sequence[AnsweredCall],
        by: By,
        call: ToolCall,
        state: dict[str, Any],
        calls: int,
    ) -> list[dict[str, Any]]:
        """Write the messages of the request for one call. `calls`: number of earlier calls in the episode."""


class StatefulWorld(SimulatedWorld):
    """One simulated episode with a state. Raises `Aborted` when the model or the sandbox fails, and nothing else."""

    def __init__(
        self, backend: StatefulServices, task: Task, held: HeldState, *, seed: int, group: str | None, calls: int = 0
    ) -> None:
        """`calls`: number of earlier calls in the episode, refused ones included."""
        super().__init__(backend, task, EntityLedger(), seed=seed, group=group, known=held.initial)
        self._services, self._held, self._calls = backend, held, calls
        self._proposed: tuple[Answer, ProposedState] | None = None

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        async with self._guard:
            found: list[ToolResult] = []
            for call in calls:
                if found and found[-1].ends:
                    found.append(replace(make_failure(call, Code.FINISHED, Code.FINISHED.meaning), ends=True))
                else:
                    found.append(await self._call(call, by))
                    self._calls += 1
            return found

    async def _call(self, call: ToolCall, by: By) -> ToolResult:
        wrong = refuse_call(call, self._backend.specs[by])
        if wrong is not None:
            return wrong
        arguments = call.arguments or {}
        if self.is_executed(call.name, by):
            result = await self._held.execute(call, by, self._calls)
            self.take(AnsweredCall(by, call.name, arguments, make_answer(result)))
            return result
        answer, issue = (await self.predict([call], by))[0]
        answer = await self.settle(call, answer, by)
        return make_tool_result(call, answer, issue, ends=not answer.failed and call.name in self._backend.pack.ends)

    def is_executed(self, name: str, by: By = "agent") -> bool:
        """Whether the pack's code answers this tool."""
        return self._services.is_executed(name, by)

    def pass_call(self) -> None:
        """Count a call that another world answered: the clock advances with calls."""
        self._calls += 1

    async def settle(self, call: ToolCall, answer: Answer, by: By) -> Answer:
        """Apply an answer and its changes. Returns the answer, or a failure if its changes are refused."""
        proposed = await self._propose(call, answer, by)
        if proposed.faults:
            answer = Answer({"error": f"{call.name} failed; nothing was changed"}, failed=True, crashed=True)
        else:
            self._held.now = proposed.state
        self._proposed = None
        self.take(AnsweredCall(by, call.name, call.arguments or {}, answer))
        return answer

    async def _propose(self, call: ToolCall, answer: Answer, by: By) -> ProposedState:
        """Return the state after an answer. Each answer is checked only once."""
        if self._proposed is not None and self._proposed[0] is answer:
            return self._proposed[1]
        writes = self._backend.specs[by][call.name].writes
        proposed = await self._held.propose(answer.changes, writes)
        self._proposed = answer, proposed
        return proposed

    def take(self, done: AnsweredCall) -> None:
        """Record a call and its answer. Its changes are in the state already."""
        self.history.append(done)
        answer = done.answer
        told = [done.by, done.name, done.arguments, answer.content, answer.failed, answer.changes, self._calls]
        self._digest = digest([self._digest, told])

    def messages(self, calls: Sequence[ToolCall], by: By, steering: str = "") -> list[dict[str, Any]]:
        (call,) = calls
        return self._services.write_request(self._task, self.history, by, call, self._held.now, self._calls)

    def parse(self, text: str, calls: Sequence[ToolCall]) -> list[Answer]:
        return self._backend.feedback.parse(text, calls, parse_keyed_changes)

    async def find_faults(self, calls: list[ToolCall], answers: list[Answer], by: By, steering: str = "") -> list[str]:
        (call,), (answer,) = calls, answers
        wrong = [] if answer.failed else self._backend.find_misfits(call.name, answer.content)
        proposed = await self._propose(call, answer, by)
        return ["; ".join([*proposed.faults, *wrong])]

    async def follow(self, changes: list[dict[str, Any]]) -> None:
        """Apply changes that executed tools made to the state."""
        await self._held.follow(changes)
        if changes:
            self._digest = digest([self._digest, changes])

    async def state(self) -> dict[str, Any]:
        """The state as it is now."""
        return self._held.now

    async def changes(self) -> list[dict[str, Any]]:
        """The changes of the state since the start of the episode."""
        return self._held.list_changes()

    async def evidence(self, turns: Sequence[list[dict[str, Any]] | None] = ()) -> dict[str, Any]:
        """Collect the evidence for the rules, as in the executable world, with `simulated`: the changes that the simulator reported, and
        `crashed`: the number of calls whose changes were all refused."""
        found = await self._held.collect_evidence(turns)
        crashed = sum(done.answer.crashed for done in self.history)
        return {**found, "simulated": list(self._iterate_named()), **({"crashed": crashed} if crashed else {})}

    def _iterate_named(self) -> Iterator[dict[str, Any]]:
        for done in self.history:
            yield from done.answer.changes

    async def snapshot(self) -> bytes:
        """Return the calls and answers so far, and the state."""
        async with self._guard:
            rows = [
                [
                    d.by,
                    d.name,
                    d.arguments,
                    d.answer.content,
                    d.answer.failed,
                    d.answer.changes,
                    d.answer.crashed,
                ]
                for d in self.history
            ]
            body = {
                "version": 1, "kind": "stateful", "group": self._group, "seed": self._seed, "calls": self._calls,
                "history": rows, "state": self._held.now, "digest": self._digest,
            }  # fmt: skip
            return zstandard.compress(write_compact_json(body).encode())

    def restore(self, body: dict[str, Any]) -> None:
        """Restore the history of a snapshot, without asking the model."""
        for by, name, arguments, content, failed, changes, crashed in body["history"]:
            self.history.append(AnsweredCall(by, name, arguments, Answer(content, failed, changes, crashed)))
        self._digest = cast("str", body["digest"])

    async def close(self) -> None:
        await self._held.close()


def make_answer(result: ToolResult) -> Answer:
    """Convert the result of an executed call to an answer."""
    return Answer(result.data if result.data is not None else result.content, failed=result.error is not None)
