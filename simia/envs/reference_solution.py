"""The solution of a task as a prompt shows it: its calls, and the results that `simia pack record` stored for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from simia.envs.rewards.transcript import shorten
from simia.pack import Pack
from simia.prompt_quoting import quote
from simia.prompts import decode_result
from simia.quality.truth.facts import is_failed_result
from simia.task import Task
from simia.trajectory import Message, pair_calls, write_compact_json

LONGEST_RESULTS = (800, 200, 80)  # characters of one result; the first limit with which all results fit is used
MOST_RESULTS = 8_000  # characters of all results


def describe_reference(pack: Pack, task: Task, *, observations: bool = True) -> str:
    """Write the calls of the solution, one per line, each followed by its recorded result.

    Without `observations`, and for a task without a recorded reference trajectory, these are the calls alone.
    """
    lines = [f"- {action.name} {write_compact_json(action.arguments)}" for action in task.actions]
    results = describe_observations(pack, task) if observations else []
    if results:
        lines = [line for pair in zip(lines, results, strict=True) for line in pair]
    return "\n".join(lines)


def describe_observations(pack: Pack, task: Task) -> list[str]:
    """Return one line for the result of each call of the solution; empty if no trajectory of exactly these calls is recorded."""
    results = find_observations(pack, task)
    lines: list[str] = []
    for most in LONGEST_RESULTS:
        lines = [
            f"  {'error' if result.error else 'result'}: {quote(shorten(decode_result(result.text), most))}"
            for result in results
        ]
        if sum(map(len, lines)) <= MOST_RESULTS:
            break
    return lines


def find_observations(pack: Pack, task: Task) -> list[Message]:
    """Return the recorded results of the solution's calls; empty if the record has other calls, as after a change of the task.

    A solution may leave out calls that failed in the record, as solutions of tasks made from seeds do.
    """
    recorded = list_recorded_calls(pack, task)
    wanted = [(action.name, action.arguments) for action in task.actions]
    marked = [each for each in recorded if not each.result.error]
    for calls in (recorded, marked, [each for each in recorded if not is_failed_result(each.result)]):
        if [(each.name, each.arguments) for each in calls] == wanted:
            return [each.result for each in calls]
    return []


class RecordedCall(NamedTuple):
    """A call of a reference trajectory with its result."""

    by: str
    name: str
    arguments: dict[str, Any] | None
    result: Message


def list_recorded_calls(pack: Pack, task: Task) -> list[RecordedCall]:
    """All calls of the task's reference trajectory with their results; none without one, or where a result is missing."""
    recorded = pack.references.get(task.id.removeprefix(f"{pack.name}/"))  # PACK/ID among several packs
    if recorded is None:
        return []
    found: list[RecordedCall] = []
    for message, call, result in pair_calls(recorded.messages):
        if result is None:
            return []
        found.append(RecordedCall("user" if message.role == "user" else "agent", call.name, call.arguments, result))
    return found
