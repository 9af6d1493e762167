"""One simulated episode: calls are validated first, then a model answers them, and the ledger refuses contradictions.

A call that breaks its schema costs no request. One request asks for all answers of a turn. If an answer cannot be parsed or contradicts
earlier ones, the model is told the fault and asked again, at most `again` times. Within a group, the same calls after the same history get
the same answer, which is paid for once: the key of a reply contains the group, the digest of all calls and answers so far, and the calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import zstandard

from simia.envs.reference_solution import RecordedCall, find_observations, list_recorded_calls
from simia.envs.worlds.arguments import make_failure, refuse_call
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall, Feedback, ReplyForm, UnreadableAnswer
from simia.envs.worlds.simulated.settings import SimulatedSettings
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code
from simia.llm.engine import BudgetReached, Engine
from simia.llm.repeated_questions import FAULTY_ANSWERS, UNREADABLE_ANSWERS
from simia.llm.types import LLMFault, Request
from simia.pack import Pack
from simia.prompts import decode_result
from simia.quality.entity_ledger import EntityLedger
from simia.quality.truth.facts import is_error_result
from simia.task import By, Task
from simia.tool import ToolSpec
from simia.trajectory import ToolCall, digest, write_compact_json

SharedAnswers = tuple[list[Answer], list[str]]


class SimulationServices(Protocol):
    """The part of its back end that a world uses."""

    pack: Pack
    settings: SimulatedSettings
    feedback: Feedback
    specs: dict[By, dict[str, ToolSpec]]
    identity: str
    numbers: Iterator[int]

    @property
    def engine(self) -> Engine:
        """The engine of the model that simulates."""

    def request(self, messages: list[dict[str, Any]], most: int | None) -> Request:
        """The request for the answers of one turn, of at most `most` tokens."""

    async def shared(self, place: str, make: Callable[[], Awaitable[SharedAnswers]]) -> SharedAnswers:
        """Make the answers once per group, world and calls."""

    def find_misfits(self, name: str, content: Any) -> list[str]:
        """Return where a result breaks the result schema that its tool declares."""


class SimulatedWorld:
    """One simulated episode. Raises `Aborted` when the model fails, and nothing else."""

    def __init__(
        self,
        backend: SimulationServices,
        task: Task,
        ledger: EntityLedger,
        *,
        seed: int,
        group: str | None,
        known: Any = "",
    ) -> None:
        """`known`: the part of the tables that the simulator's prompts show."""
        self._backend, self._task, self._seed, self._known = backend, task, seed, known
        self._group = group if group is not None else f"{task.id}/{seed}/{next(backend.numbers)}"
        self._replays = backend.settings.replay
        self.ledger = ledger
        self.steering = ""
        """The perturbation's instruction for the next answers, added to the prompt; empty: none. The ledger takes no facts from their results."""
        self.history: list[AnsweredCall] = []
        # The digest covers everything in the first prompt, since stored replies survive an edit of the task.
        told = [task.instruction, task.opening, [(each.name, each.arguments) for each in task.actions], known]
        results = backend.feedback.observations(task)
        self._digest = digest([task.id, seed, *told, *([results] if results else [])])
        self._first = ledger.copy()
        self._guard = asyncio.Lock()
        self.tools: Mapping[By, Sequence[ToolSpec]] = {"agent": backend.pack.tools, "user": backend.pack.user_tools}

    @property
    def reply_form(self) -> ReplyForm:
        """What the simulator's replies hold: answer, observation or screen."""
        return self._backend.feedback.reply_form

    async def call(self, calls: Sequence[ToolCall], by: By = "agent") -> list[ToolResult]:
        async with self._guard:
            specs = self._backend.specs[by]
            results: list[ToolResult | None] = [refuse_call(call, specs) for call in calls]
            sound = [call for call, result in zip(calls, results, strict=True) if result is None]
            last = next((n for n, call in enumerate(sound) if call.name in self._backend.pack.ends), len(sound))
            sound = sound[: last + 1]  # calls after the one that ends the episode are not made
            answers = iter(zip(sound, await self._answers(sound, by), strict=True) if sound else ())
            found: list[ToolResult] = []
            for call, result in zip(calls, results, strict=True):
                if found and found[-1].ends:
                    result = replace(make_failure(call, Code.FINISHED, Code.FINISHED.meaning), ends=True)
                elif result is None:
                    _, (answer, issue) = next(answers, (None, (Answer({"error": "not carried out"}, failed=True), "")))
                    ends = not answer.failed and call.name in self._backend.pack.ends
                    result = make_tool_result(call, answer, issue, ends=ends)
                found.append(result)
            return found

    async def _answers(self, calls: list[ToolCall], by: By) -> list[tuple[Answer, str]]:
        """Get the answers and, for each, the contradiction that remains after all attempts."""
        found: list[tuple[Answer, str]] = []
        recalls = self._replays and not self.steering
        for batch in self._backend.feedback.batch_calls(calls):
            recorded = recall_answers(self._backend.pack, self._task, self.history, batch, by) if recalls else None
            answers = await self.predict(batch, by) if recorded is None else [(answer, "") for answer in recorded]
            for call, (answer, _) in zip(batch, answers, strict=True):
                self.take(AnsweredCall(by, call.name, call.arguments or {}, answer, self.steering))
            found += answers
        return found

    async def predict(self, calls: list[ToolCall], by: By = "agent") -> list[tuple[Answer, str]]:
        """Get the answers to valid calls without changing the world."""
        if (known := self._backend.feedback.answer_at_once(calls)) is not None:
            return [(answer, "") for answer in known]
        asked = [[by, call.name, call.arguments or {}] for call in calls]
        steering = self.steering
        place = digest([self._group, self._digest, asked, *([steering] if steering else [])])
        answers, issues = await self._backend.shared(place, lambda: self._ask(calls, by, place, steering))
        return list(zip(answers, issues, strict=True))

    def take(self, done: AnsweredCall) -> None:
        """Record a call and its answer, simulated or real. Later answers must agree with them."""
        answer = done.answer
        self.history.append(done)
        if done.steering:
            self.ledger.apply(answer.changes)
        else:
            self.ledger.take(done.name, done.arguments, answer.content, failed=answer.failed, changes=answer.changes)
        said = [done.by, done.name, done.arguments, answer.content, answer.failed]
        self._digest = digest([self._digest, *said, *([done.steering] if done.steering else [])])

    async def _ask(self, calls: list[ToolCall], by: By, place: str, steering: str = "") -> SharedAnswers:
        settings, engine = self._backend.settings, self._backend.engine
        messages = self.messages(calls, by, steering)
        said: list[dict[str, Any]] = []
        best: SharedAnswers | None = None
        why, most = "", settings.max_tokens
        for attempt in range(1 + settings.again):
            request = self._backend.request([*messages, *said], most)
            draw = f"{place}/{attempt}"
            try:
                reply = await engine.ask(request, item=self._group, draw=draw, key=self._key(request, draw))
            except BudgetReached as error:
                raise Aborted(Code.BUDGET, str(error)) from None
            except LLMFault as fault:
                raise Aborted(fault.code, f"the simulator: {fault.detail or fault.code.meaning}") from None
            try:
                answers = self.parse(reply.text, calls)
            except UnreadableAnswer as error:
                why = str(error)
                said = self._backend.feedback.write_complaint(reply.text, UNREADABLE_ANSWERS.format(why=why))
                if reply.truncated and most:
                    most *= 2  # reasoning may have used all tokens
                continue
            issues = await self.find_faults(calls, answers, by, steering)
            if best is None or sum(map(bool, issues)) <= sum(map(bool, best[1])):
                best = answers, issues
            if not any(issues):
                break
            why = "; ".join(issue for issue in issues if issue)
            said = self._backend.feedback.write_complaint(reply.text, FAULTY_ANSWERS.format(why=why))
        if best is None:
            raise Aborted(Code.UNPARSABLE, f"the simulator's answer cannot be read: {why}")
        return best

    def _key(self, request: Request, draw: str) -> str:
        """Return the key of a reply, from the group, the world and the calls. The prompt's wording is not needed: it is fixed within a run."""
        backend = self._backend.engine.backend
        return digest([backend.alias, backend.model, self._backend.identity, draw])

    def messages(self, calls: Sequence[ToolCall], by: By, steering: str = "") -> list[dict[str, Any]]:
        """The messages of the request for the answers to these calls. `steering`: the perturbation's instruction."""
        ledger = self.ledger.render() if self._backend.settings.ledger else ""
        given = [(by, call) for call in calls]
        return self._backend.feedback.messages(self._task, self.history, ledger, given, self._known, steering)

    def parse(self, text: str, calls: Sequence[ToolCall]) -> list[Answer]:
        """The answers of a reply. Raises `UnreadableAnswer`."""
        return self._backend.feedback.parse(text, calls)

    async def find_faults(self, calls: list[ToolCall], answers: list[Answer], by: By, steering: str = "") -> list[str]:
        """Return the faults of each answer, empty if it has none. Each answer is checked after those before it have been applied.

        Perturbed answers contradict the world on purpose, so they have no faults.
        """
        if steering:
            return [""] * len(calls)
        ledger = self.ledger.copy() if self._backend.settings.ledger else None
        found = []
        for call, answer in zip(calls, answers, strict=True):
            arguments = call.arguments or {}
            wrong = [] if answer.failed else self._backend.find_misfits(call.name, answer.content)
            if ledger is not None:
                wrong += ledger.find_contradictions(
                    call.name, arguments, answer.content, failed=answer.failed, changes=answer.changes
                )
                ledger.take(call.name, arguments, answer.content, failed=answer.failed, changes=answer.changes)
            found.append("; ".join(wrong))
        return found

    async def state(self) -> dict[str, Any]:
        """Return the known facts of the world, by table and key."""
        return self.ledger.tables

    async def changes(self) -> list[dict[str, Any]] | None:
        """Return None: this world has no state to compare."""
        return None

    async def evidence(self, turns: Sequence[list[dict[str, Any]] | None] = ()) -> dict[str, Any]:
        """Return the changes that the simulator reported: a simulated world has no state to compare."""
        named = [change for done in self.history for change in done.answer.changes]
        return {"simulated": named}

    async def snapshot(self) -> bytes:
        rows = [
            [d.by, d.name, d.arguments, d.answer.content, d.answer.failed, d.answer.changes, d.answer.raw, d.steering]
            for d in self.history
        ]
        body = {
            "version": 1,
            "kind": "simulated",
            "group": self._group,
            "seed": self._seed,
            "history": rows,
            "first": self._first.dump(),
        }
        return zstandard.compress(write_compact_json(body).encode())

    def replay(self, rows: list[list[Any]]) -> None:
        """Restore the history of a snapshot, without asking the model."""
        for by, name, arguments, content, failed, changes, *more in rows:
            raw, steering = [*more, "", ""][:2]
            self.take(AnsweredCall(by, name, arguments, Answer(content, failed, changes, raw=raw), steering))

    async def close(self) -> None:
        return None


def make_tool_result(call: ToolCall, answer: Answer, issue: str, *, ends: bool) -> ToolResult:
    """Make the result of a call from its answer. `issue`: the faults that the answer still has."""
    error = (Code.TOOL_FAILED if answer.crashed else Code.TOOL_ERROR) if answer.failed else None
    data = None if isinstance(answer.content, str) else answer.content
    return ToolResult(call.id, answer.text, data=data, error=error, detail=issue, ends=ends)


def recall_answers(
    pack: Pack, task: Task, history: Sequence[AnsweredCall], calls: Sequence[ToolCall], by: By
) -> list[Answer] | None:
    """Return the recorded answers to these calls; None as soon as any call of the episode differs from the recorded one."""
    recorded = list_recorded_calls(pack, task)[: len(history) + len(calls)]
    made = [(done.by, done.name, done.arguments) for done in history]
    made += [(by, call.name, call.arguments or {}) for call in calls]
    if made != [(each.by, each.name, each.arguments or {}) for each in recorded] or not find_observations(pack, task):
        return None
    return [read_answer(each) for each in recorded[len(history) :]]


def read_answer(recorded: RecordedCall) -> Answer:
    return Answer(decode_result(recorded.result.text), failed=is_error_result(recorded.result))
