"""Examples of results for the simulator's prompt. They show the format of a tool's results, which a schema may not declare.

They come from the pack's seeds and then, for tools with too few there, from the recorded references of training tasks. References of
other splits and of evaluation tasks are shown only in the prompts of their own task.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from simia.pack import Pack
from simia.prompt_quoting import escape_unprintable, quote
from simia.quality.truth.facts import is_error_result
from simia.tool import ToolSpec
from simia.trajectory import Trajectory

LONGEST_EXAMPLE = 900  # characters


class ExampleCall(NamedTuple):
    """A call that succeeded, with its result as the agent read it."""

    arguments: dict[str, Any]
    result: str


def find_example_calls(pack: Pack, most: int, *, references: bool) -> dict[str, list[ExampleCall]]:
    """Tool → up to `most` calls that succeeded. `references`: search the training tasks' references too."""
    shown = itertools.chain(pack.seeds, iterate_training_references(pack) if references else ())
    return collect_calls(shown, most, [*pack.tools, *pack.user_tools])


def iterate_training_references(pack: Pack) -> Iterator[Trajectory]:
    """The reference trajectories of tasks that may be trained on, in the order of the tasks."""
    if pack.evaluation or pack.path_of("references") is None:
        return
    for task in pack.tasks:
        if task.split == "train" and "evaluation" not in task.tags and task.id in pack.references:
            yield pack.references[task.id]


def collect_calls(shown: Iterable[Trajectory], most: int, tools: Sequence[ToolSpec]) -> dict[str, list[ExampleCall]]:
    """For each tool the first calls whose results succeeded and are short enough to be shown. Stops when every tool has `most`."""
    found: dict[str, list[ExampleCall]] = {tool.name: [] for tool in tools}
    if not most:
        return found
    for each in shown:
        calls = {call.id: call for message in each.messages for call in message.calls}
        for message in each.messages:
            call = calls.get(message.call_id or "") if message.role == "tool" else None
            name = (call.name if call else message.name or "") if message.role == "tool" else ""
            held = found.get(name)
            short = held is not None and len(held) < most and len(message.text) <= LONGEST_EXAMPLE
            if held is not None and short and not is_error_result(message):
                held.append(ExampleCall((call.arguments if call else None) or {}, message.text))
        if all(len(held) == most for held in found.values()):
            break
    return found


def write_on_one_line(text: str) -> str:
    """Write a result on one line. Text of several lines is quoted, so that its line breaks stay visible."""
    if "\n" in text.strip() and text.strip()[:1] not in "{[":
        return quote(text)
    return escape_unprintable(" ".join(text.split()))
