"""A gym written by hand, and a back end that serves the replies of fixtures/gym_verification by label."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simia.llm.types import Reply, Request
from simia.synthesis.context import ItemContext
from simia.synthesis.design import CodingProblem, GymEnvironment, SolvedExample
from simia.synthesis.settings import SamplingSettings
from simia.synthesis.stage import Stage, StageInput
from simia.tool import ToolSpec

FIXTURES = Path(__file__).parent / "fixtures" / "gym_verification"
NUMBERS = {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 400}
SCHEMA = {
    "type": "object",
    "properties": {"numbers": NUMBERS, "target": {"type": "integer"}},
    "required": ["numbers", "target"],
    "additionalProperties": False,
}


def make_tool(name: str, description: str, **properties: str) -> ToolSpec:
    parameters = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties),
        "additionalProperties": False,
    }
    return ToolSpec(name=name, description=description, parameters=parameters)


def make_gym(*, code: str = "gym_code.py", solution: str = "solution.py") -> GymEnvironment:
    problem = CodingProblem(
        id="closest-number",
        statement="Find the element of a sorted list that is closest to a target; the smaller one of two equally close ones.",
        solution=(FIXTURES / solution).read_text(),
        inputs=SCHEMA,
        examples=[SolvedExample(inputs={"numbers": [1, 5], "target": 4}, answer=5)],
    )
    return GymEnvironment(
        problem=problem,
        task="A list of numbers is hidden. Submit its element closest to the target, the smaller of two equally close ones.",
        code=(FIXTURES / code).read_text(),
        tools=[
            make_tool("observe", "Return the number of elements and the target."),
            make_tool("look_up", "Return the element at a position.", position="integer"),
            make_tool("measure_distance", "Return the distance of a number from the target.", number="integer"),
            make_tool("done", "Submit the answer.", answer="integer"),
        ],
        tool_writes=["done"],
        examples={"look_up": 'call("look_up", position=0) returns 1'},
    )


class FixtureReplies:
    """Serves fixture files by label; `*` for labels without one."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files, self.prompts = dict(files), dict[str, str]()

    async def ask(self, request: Request, *, item: str, draw: str, **_: Any) -> Reply:
        label = draw.removeprefix(f"{item}.")
        self.prompts[label] = request.messages[0]["content"]
        return Reply(text=(FIXTURES / self.files.get(label, self.files.get("*", ""))).read_text())

    def find_asked(self, request: Request, draw: str) -> Request:
        return request


def run_stage(stage: Stage, value: Any, files: Mapping[str, str]) -> tuple[Any, dict[str, Any], FixtureReplies]:
    """Make the output of one input; returns it with the stage's notes and the replies that were served. Raises `Refused`."""
    replies = FixtureReplies(files)

    async def make() -> tuple[Any, dict[str, Any]]:
        context: Any = ItemContext("item", {"writer": replies}, SamplingSettings(tries=1), asyncio.Semaphore(2))
        found = await stage.make(StageInput("closest-number", value), context)
        return found, context.notes

    return *asyncio.run(make()), replies
