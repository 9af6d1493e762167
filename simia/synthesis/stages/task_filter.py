"""Filter tasks: does a task need a persistent state of one domain? (EnvScaler, task-guided environment discovery)"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic import BaseModel

from simia.synthesis.reasons import Reason, Refused, Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

MOST_TEXT = 6000  # characters of a task that a prompt shows


class TaskVerdict(BaseModel):
    """What a model says of one task."""

    reason: str
    """Why, in one sentence."""
    stateful: bool
    """Whether the task needs a persistent state."""


class NumberedVerdict(TaskVerdict):
    """A verdict on one task of several."""

    task: int
    """Number of the task."""


class Screening:
    """Ask about several tasks in one question. A group whose verdicts cannot be read is left to `StatefulFilter`, which asks one by one."""

    name = "screening"

    def __init__(self, texts: Sequence[str], tasks_per_question: int) -> None:
        self._texts, self._size = texts, tasks_per_question

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        numbered = [{"task": number, "text": text} for number, text in enumerate(self._texts, 1)]
        groups = [numbered[start : start + self._size] for start in range(0, len(numbered), self._size)]
        return [StageInput(f"{group[0]['task']}-{group[-1]['task']}", group) for group in groups]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        tasks = [{"task": each["task"], "text": each["text"][:MOST_TEXT]} for each in given.value]
        parse = partial(read_verdicts, numbers={each["task"] for each in tasks})
        return await context.ask("synthesis/stateful_group.j2", {"tasks": tasks}, parse, label="verdicts")


def read_verdicts(text: str, *, numbers: set[int]) -> dict[str, dict[str, Any]]:
    """Read a verdict for each of these tasks. Raises `Unreadable` if one is missing, repeated or of another task."""
    found: list[NumberedVerdict] = read_json(text, list[NumberedVerdict])
    given = [each.task for each in found]
    if sorted(given) != sorted(numbers):
        raise Unreadable(f"it has verdicts on the tasks {sorted(given)}, not one on each of {sorted(numbers)}")
    return {str(each.task): {"reason": each.reason, "stateful": each.stateful} for each in found}


class StatefulFilter:
    """Keep the tasks that need a persistent, domain-specific state. Key: the number of the task, from 1."""

    name = "stateful"

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        verdicts: dict[str, Any] = {}
        for group in outputs.of(Screening.name).values():
            verdicts |= group
        return [
            StageInput(str(number), {"text": text, "verdict": verdicts.get(str(number))})
            for number, text in enumerate(self._texts, 1)
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        text, known = given.value["text"], given.value["verdict"]
        if known is not None:
            verdict = TaskVerdict.model_validate(known)
        else:
            values = {"task": text[:MOST_TEXT]}
            verdict = await context.ask("synthesis/stateful.j2", values, read_verdict, label="verdict")
        if not verdict.stateful:
            raise Refused(Reason.STATELESS_TASK, verdict.reason)
        return {"text": text, "reason": verdict.reason}


def read_verdict(text: str) -> TaskVerdict:
    found: TaskVerdict = read_json(text, TaskVerdict)
    return found
