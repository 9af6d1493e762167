"""Stage `instances`: test inputs of a gym with reference answers (CodeGym §3.3.2, appendix C.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from simia.formats.dialect import dump_json
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.gyms.gym_inputs import AnsweredInputs, InputSettings, ask_for_inputs
from simia.synthesis.gyms.gym_results import INSTANCES, VerifiedInstances
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.terminal import write_count

PROMPT = "synthesis/gym_inputs.j2"
LEVELS, PER_LEVEL = ("easy", "medium", "hard"), 5
PER_QUESTION = PER_LEVEL * len(LEVELS)
SHOWN, SHOWN_LENGTH = 3, 200  # inputs of the first question that the next one sees


class InstanceSettings(InputSettings):
    """Test inputs of a gym (CodeGym §3.3.2)."""

    questions: int = Field(default=2, ge=1)
    """Number of requests for inputs. Each asks for 15 inputs: 5 easy, 5 medium and 5 hard ones."""
    least: int = Field(default=10, ge=1)
    """Minimum number of valid inputs of a gym."""
    share: float = Field(default=0.8, ge=0, le=1)
    """Minimum share of valid inputs among the proposed ones, without duplicates (0 to 1)."""


class InstanceStage:
    """Make and answer test inputs."""

    name = INSTANCES

    def __init__(self, settings: InstanceSettings, *, seed: int = 0) -> None:
        """`seed`: the run's, from which the generators of the inputs derive."""
        self._settings, self._seed = settings, seed

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, gym) for key, gym in outputs.of("gyms").items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        gym, settings = GymEnvironment.model_validate(given.value), self._settings
        found = AnsweredInputs()
        for question in range(settings.questions):
            await self._ask(gym, question, found, context)
        proposed = found.proposed
        context.note(proposed=proposed, valid=len(found.valid), faults=dict(sorted(found.faults.items())))
        if len(found.valid) < settings.least or len(found.valid) < settings.share * proposed:
            words = f"valid: {len(found.valid)} of {write_count(proposed, 'input')}"
            raise Refused(Reason.TOO_FEW_INPUTS, f"{words}; {found.first_fault}" if found.first_fault else words)
        instances = [make_instance(position, *pair) for position, pair in found.valid.items()]
        return dump(VerifiedInstances(instances=instances))

    async def _ask(self, gym: GymEnvironment, question: int, found: AnsweredInputs, context: StageContext) -> None:
        problem = gym.problem
        shown = [dump_json(inputs)[:SHOWN_LENGTH] for inputs, _ in list(found.valid.values())[:SHOWN]]
        values = {
            "statement": problem.statement,
            "schema": dump_json(problem.inputs),
            "solution": problem.solution,
            "first": "\n".join(shown),
        }
        await ask_for_inputs(
            context, problem, PROMPT, values, found, label=f"inputs{question}", seed=self._seed,
            first=question * PER_QUESTION, most=PER_QUESTION, settings=self._settings,
        )  # fmt: skip


def make_instance(position: int, inputs: dict[str, Any], answer: Any) -> GymInstance:
    """Make the instance of an input; its position in the list decides its level."""
    question, place = divmod(position, PER_QUESTION)
    level = LEVELS[place // PER_LEVEL]
    number = question * PER_LEVEL + place % PER_LEVEL + 1
    return GymInstance(id=f"{level}-{number:02}", level=level, inputs=inputs, answer=answer)
