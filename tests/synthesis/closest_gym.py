"""Replies that were written by hand for tests of coding problems and gyms, and a context that serves them by label."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from simia.prompts import load_template
from simia.synthesis.design import CodingProblem, GymEnvironment, GymInstance, SolvedExample
from simia.synthesis.gyms.gym_code import WRITE, derive_gym_tools, list_methods, read_gym

T = TypeVar("T")
REPLIES = Path(__file__).parent / "fixtures" / "gym"
CLOSEST = '''\
def solve(numbers: list[int], target: int) -> int:
    """Return the element that is closest to the target; the smaller one of two.

    Args:
        numbers: Sorted integers.
        target: An integer.
    """
    return min(numbers, key=lambda number: (abs(number - target), number))
'''
INPUTS: list[dict[str, Any]] = [
    {"numbers": [3, 9], "target": 5},
    {"numbers": [1, 4, 8, 15, 16], "target": 11},
    {"numbers": [-30, -12, -5, 0, 2, 7, 19, 33, 58, 90], "target": 41},
]


class ReplyContext:
    """Implements `StageContext`: serves the reply of each label, and keeps prompts and notes."""

    def __init__(self, replies: Mapping[str, str]) -> None:
        self.replies = replies
        self.prompts: dict[str, str] = {}
        self.notes: dict[str, Any] = {}

    async def ask(
        self, prompt: str, values: Mapping[str, Any], parse: Callable[[str], T], *, label: str, role: str = "writer"
    ) -> T:
        self.prompts[label] = load_template(prompt)[0].render(values)
        return parse(self.replies[label])

    @contextlib.asynccontextmanager
    async def execution(self) -> AsyncIterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)

    def note(self, **figures: Any) -> None:
        self.notes.update(figures)


def read_reply(name: str) -> str:
    return (REPLIES / f"{name}.md").read_text(encoding="utf-8")


def make_closest_problem() -> CodingProblem:
    schema = {
        "type": "object",
        "properties": {"numbers": {"type": "array", "items": {"type": "integer"}}, "target": {"type": "integer"}},
        "required": ["numbers", "target"],
        "additionalProperties": False,
    }
    solved = [SolvedExample(inputs=each, answer=find_closest(**each)) for each in INPUTS]
    return CodingProblem(id="closest", statement="Find it.", solution=CLOSEST, inputs=schema, examples=solved)


def find_closest(numbers: list[int], target: int) -> int:
    return min(numbers, key=lambda number: (abs(number - target), number))


def make_closest_gym(problem: CodingProblem | None = None) -> GymEnvironment:
    draft = read_gym(read_reply("closest_number"))
    writes = [name for name, (_, kind) in list_methods(draft.code).items() if kind == WRITE]
    return GymEnvironment(
        problem=problem or make_closest_problem(),
        task=draft.task,
        code=draft.code,
        tools=derive_gym_tools(draft.code),
        tool_writes=writes,
    )


def make_instance(name: str, level: str, numbers: list[int], target: int) -> GymInstance:
    """An instance with the calls of a solution that looks at every element."""
    answer = find_closest(numbers, target)
    calls: list[dict[str, Any]] = [{"name": "observe", "arguments": {}}]
    calls += [{"name": "look_up", "arguments": {"index": index}} for index in range(len(numbers))]
    calls.append({"name": "done", "arguments": {"answer": answer}})
    return GymInstance(id=name, level=level, inputs={"numbers": numbers, "target": target}, answer=answer, calls=calls)
