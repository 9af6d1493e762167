"""The solution of a task as a prompt shows it: its calls, and the results that `simia pack record` stored for them."""

from __future__ import annotations

from simia.envs.rewards.transcript import parse_result, shorten
from simia.pack import Pack
from simia.prompt_quoting import quote
from simia.task import Task
from simia.trajectory import Message, write_compact_json

LONGEST_RESULTS = (800, 200, 80)  # characters of one result; the first at which all of them have room is taken
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
    """One line for the result of each call of the solution; none where no trajectory of these very calls is recorded."""
    results = find_observations(pack, task)
    lines: list[str] = []
    for most in LONGEST_RESULTS:
        lines = [
            f"  {'error' if result.error else 'result'}: {quote(shorten(parse_result(result.text), most))}"
            for result in results
        ]
        if sum(map(len, lines)) <= MOST_RESULTS:
            break
    return lines


def find_observations(pack: Pack, task: Task) -> list[Message]:
    """The recorded results of the solution's calls. None where the record is of other calls: the task was changed since."""
    recorded = pack.references.get(task.id.removeprefix(f"{pack.name}/"))  # qualified among several packs
    if recorded is None:
        return []
    calls = [(call.name, call.arguments) for _, _, call in recorded.calls()]
    results = [message for message in recorded.messages if message.role == "tool"]
    same = calls == [(action.name, action.arguments) for action in task.actions]
    return results if same and len(results) == len(calls) else []
