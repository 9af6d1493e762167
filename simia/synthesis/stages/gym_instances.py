"""Stage `instances`: test inputs of a gym with reference answers (CodeGym §3.3.2, appendix C.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from simia.config import Config
from simia.formats.dialect import dump_json
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.function_runs import FunctionLimits, FunctionRunner
from simia.synthesis.gym_inputs import AnsweredInputs, answer_inputs, generate_inputs, read_inputs_code
from simia.synthesis.gym_results import INSTANCES, VerifiedInstances
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

PROMPT = "synthesis/gym_inputs.j2"
LEVELS, PER_LEVEL = ("easy", "medium", "hard"), 5
PER_QUESTION = PER_LEVEL * len(LEVELS)
SHOWN, SHOWN_LENGTH = 3, 200  # inputs of the first question that the next one sees


class InstanceSettings(Config):
    """Test inputs of a gym (CodeGym §3.3.2)."""

    questions: int = Field(default=2, ge=1)
    """Questions of 15 inputs each: 5 easy, 5 medium, 5 hard ones."""
    repairs: int = Field(default=1, ge=0)
    """How often code that makes no inputs is written again."""
    least: int = Field(default=10, ge=1)
    """Fewest valid inputs of a gym."""
    share: float = Field(default=0.8, ge=0, le=1)
    """Smallest share of valid inputs among the different ones."""
    longest_answer: int = Field(default=100, ge=1)
    """Most characters of an answer as JSON."""
    limits: FunctionLimits = Field(default_factory=FunctionLimits)
    """What one run of the reference solution, and of code that makes inputs, may take."""


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
            words = f"{len(found.valid)} of {proposed} inputs are valid"
            raise Refused(Reason.TOO_FEW_INPUTS, f"{words}; {found.first_fault}" if found.first_fault else words)
        instances = [make_instance(position, *pair) for position, pair in found.valid.items()]
        return dump(VerifiedInstances(instances=instances))

    async def _ask(self, gym: GymEnvironment, question: int, found: AnsweredInputs, context: StageContext) -> None:
        """Ask for 15 inputs, again where the code makes none, and answer them."""
        settings, problem = self._settings, gym.problem
        values = {
            "statement": problem.statement,
            "schema": dump_json(problem.inputs),
            "solution": problem.solution,
            "first": [dump_json(inputs)[:SHOWN_LENGTH] for inputs, _ in list(found.valid.values())[:SHOWN]],
            "fault": "",
            "code": "",
        }
        values["first"] = "\n".join(values["first"])
        for attempt in range(settings.repairs + 1):
            label = f"inputs{question}" + (f"-repair{attempt}" if attempt else "")
            code = await context.ask(PROMPT, values, read_inputs_code, label=label)
            async with context.execution() as folder, FunctionRunner(folder / "functions", settings.limits) as runner:
                seed = f"{self._seed}/{problem.id}/{label}"
                rows, fault = await generate_inputs(runner, code, seed)
                if not fault:
                    first = question * PER_QUESTION
                    longest = settings.longest_answer
                    rows = rows[:PER_QUESTION]
                    return await answer_inputs(runner, problem, rows, found, first=first, longest=longest)
            values |= {"fault": fault, "code": f"```python\n{code}```"}
        found.first_fault = found.first_fault or fault


def make_instance(position: int, inputs: dict[str, Any], answer: Any) -> GymInstance:
    """The instance of an input; its place in its list says its level."""
    question, place = divmod(position, PER_QUESTION)
    level = LEVELS[place // PER_LEVEL]
    number = question * PER_LEVEL + place % PER_LEVEL + 1
    return GymInstance(id=f"{level}-{number:02}", level=level, inputs=inputs, answer=answer)
