"""Stage `gyms`: an interactive environment for each problem, verified by execution and repaired (CodeGym §3.3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.formats.dialect import dump_json
from simia.synthesis.design import CodingProblem, GymEnvironment
from simia.synthesis.gyms.gym_code import (
    WRITE,
    GymDraft,
    GymFault,
    derive_gym_tools,
    find_gym_faults,
    list_methods,
    read_gym,
)
from simia.synthesis.gyms.gym_trial import GymTrial, try_gym
from simia.synthesis.reasons import Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

PROMPT = "synthesis/gym.j2"
SHOWN_EXAMPLES, SHOWN_LENGTH = 4, 300  # the first one is always shown
MOST_FAULTS = 6


class GymStage:
    """Write a gym for each problem: a class of tools over a state that holds the inputs."""

    name = "gyms"

    def __init__(self, *, repairs: int = 3, least_tools: int = 2) -> None:
        self._repairs, self._least_tools = repairs, least_tools

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, value) for key, value in outputs.of("problems").items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        problem = CodingProblem.model_validate(given.value)
        examples = [
            f"{dump_json(each.inputs)} -> {dump_json(each.answer)}" for each in problem.examples[:SHOWN_EXAMPLES]
        ]
        examples = [text for number, text in enumerate(examples) if number == 0 or len(text) <= SHOWN_LENGTH]
        values = {
            "statement": problem.statement,
            "solution": problem.solution,
            "examples": examples,
            "fields": list(problem.inputs["properties"]),
        }
        found: list[GymFault] = []
        draft: GymDraft | None = None
        history: list[str] = []
        for number in range(self._repairs + 1):
            words = [fault.words for fault in found[:MOST_FAULTS]]
            draft = await context.ask(
                PROMPT,
                {**values, "code": draft.reply if draft else "", "faults": words},
                read_gym,
                label=f"repair{number}" if number else "draft",
            )
            gym, trial, found = await self._verify(draft, problem, context)
            history += [str(fault.reason) for fault in found[:1]]
            context.note(repairs=number, faults=history, calls=trial.calls)
            if not found:
                context.note(tools=len(gym.tools))
                return dump(gym.model_copy(update={"examples": trial.examples, "tests": trial.tests}))
        raise Refused(found[0].reason, "; ".join(fault.words for fault in found))

    async def _verify(
        self, draft: GymDraft, problem: CodingProblem, context: StageContext
    ) -> tuple[GymEnvironment, GymTrial, list[GymFault]]:
        """Check the code without running it; if it has no faults, execute it."""
        gym = GymEnvironment(problem=problem, task=draft.task, code=draft.code, tools=[])
        if faults := find_gym_faults(draft, problem, least_tools=self._least_tools):
            return gym, GymTrial(), faults
        writes = [name for name, (_, kind) in list_methods(draft.code).items() if kind == WRITE]
        gym = gym.model_copy(update={"tools": derive_gym_tools(draft.code), "tool_writes": writes})
        async with context.execution() as folder:
            trial = await try_gym(gym, draft.calls, folder / problem.id)
        return gym, trial, trial.faults
