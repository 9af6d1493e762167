"""Answer from a recorded reference trajectory while an episode follows it: these are real answers, and they cost nothing."""

from __future__ import annotations

from collections.abc import Sequence

from simia.envs.reference_solution import RecordedCall, find_observations, list_recorded_calls
from simia.envs.worlds.simulated.feedback import Answer, AnsweredCall
from simia.pack import Pack
from simia.prompts import decode_result
from simia.task import By, Task
from simia.trajectory import ToolCall


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
    return Answer(decode_result(recorded.result.text), failed=recorded.result.error is not None)
