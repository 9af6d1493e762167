"""Stage `hard`: enlarged inputs that cannot be answered by reasoning alone (CodeGym §3.5, appendix C.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from simia.config import Config
from simia.formats.dialect import dump_json
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.gyms.gym_inputs import AnsweredInputs, InputSettings, ask_for_inputs
from simia.synthesis.gyms.gym_playing import GymPlayer, open_gym, pass_gate
from simia.synthesis.gyms.gym_results import HARD, SOLUTIONS, SolvedGym, VerifiedInstances
from simia.synthesis.gyms.gym_writing import AUGMENTED, MOST_AUGMENTED_CALLS
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.gym_difficulty import DifficultyMeasure, GymDifficultySettings
from simia.synthesis.stages.gym_solutions import find_observe_leaks, find_observer_leaks

PROMPT = "synthesis/gym_scaled_inputs.j2"
SHOWN = 1500  # characters of the largest input


class HardSettings(Config):
    """Enlarged inputs (CodeGym §3.5)."""

    inputs: int = Field(default=10, ge=0)
    """Number of enlarged inputs to ask for. 0: none."""
    most_calls: int = Field(default=MOST_AUGMENTED_CALLS, ge=1, le=MOST_AUGMENTED_CALLS)
    """Maximum number of calls of the oracle solution on an input."""
    observe_check: bool = True
    """Whether to drop inputs that a function of the stage `solutions` answers with only `observe` and `done`. The shipped gyms were made
    without this check."""
    attempts: int = Field(default=8, ge=1)
    """Number of episodes of each input, if an agent measures the difficulty."""
    most: float = Field(default=0.125, ge=0, le=1)
    """Maximum share of solved episodes of an input that is kept (0 to 1)."""


class HardStage:
    """Enlarge the inputs of a solved gym."""

    name = HARD

    def __init__(
        self,
        settings: HardSettings,
        making: InputSettings,
        difficulty: GymDifficultySettings,
        agent_name: str,
        *,
        least_calls: int,
        seed: int = 0,
    ) -> None:
        """`making`: how inputs are made and answered; `difficulty`, `agent_name`: the agent; `least_calls`: of the oracle."""
        self._settings, self._making, self._seed, self._least_calls = settings, making, seed, least_calls
        self._measure = DifficultyMeasure(difficulty, agent_name, settings.most, settings.attempts)

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        gyms = outputs.of("gyms")
        solved = outputs.of(SOLUTIONS) if self._settings.inputs else {}
        return [StageInput(key, {"gym": gyms[key], "solved": found}) for key, found in solved.items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        gym, solved = (
            GymEnvironment.model_validate(given.value["gym"]),
            SolvedGym.model_validate(given.value["solved"]),
        )
        found = AnsweredInputs()
        largest = max(solved.instances, key=lambda instance: len(instance.calls))
        values = {
            "statement": gym.problem.statement,
            "schema": dump_json(gym.problem.inputs),
            "largest": dump_json(largest.inputs)[:SHOWN],
            "calls": len(largest.calls),
            "most_calls": self._settings.most_calls,
            "count": self._settings.inputs,
        }
        await ask_for_inputs(
            context, gym.problem, PROMPT, values, found, label="scaled", seed=self._seed, first=0,
            most=self._settings.inputs, settings=self._making,
        )  # fmt: skip
        instances = [
            GymInstance(id=f"{AUGMENTED}-{position + 1:02}", level=AUGMENTED, inputs=inputs, answer=answer)
            for position, (inputs, answer) in found.valid.items()
        ]
        context.note(proposed=found.proposed, valid=len(instances))
        if not instances:
            raise Refused(Reason.TOO_FEW_INPUTS, found.first_fault)
        kept = await self._keep_solved(gym, solved, instances, context)
        measured = await self._measure.filter(gym, kept, self._making.limits, context)
        return dump(VerifiedInstances(instances=measured))

    async def _keep_solved(
        self, gym: GymEnvironment, solved: SolvedGym, instances: Sequence[GymInstance], context: StageContext
    ) -> list[GymInstance]:
        """Return the instances that the oracle solves with a number of calls within the limits, and that pass the gate; add its calls."""
        least, most = self._least_calls, self._settings.most_calls
        async with context.execution() as folder, open_gym(gym, folder, self._making.limits) as player:
            plays = [await player.play(solved.oracle, instance) for instance in instances]
            kept = [
                instance.model_copy(update={"calls": play.calls})
                for instance, play in zip(instances, plays, strict=True)
                if play.right and least <= len(play.calls) <= most
            ]
            failures = sorted({play.why for play in plays if not play.right})
            context.note(solved=sum(play.right for play in plays), kept=len(kept), failures=failures)
            if not kept:
                counts = ", ".join(str(len(play.calls)) for play in plays)
                raise Refused(
                    Reason.CALLS_OUT_OF_BOUNDS, f"calls of the oracle: {counts}; wanted are {least} to {most}"
                )
            if self._settings.observe_check:
                kept = await drop_observed(player, solved, kept, context)
            return await pass_gate(player, kept, context)


async def drop_observed(
    player: GymPlayer, solved: SolvedGym, instances: Sequence[GymInstance], context: StageContext
) -> list[GymInstance]:
    """Drop instances that a function of stage `solutions` answers with only `observe` and `done`. Asks no questions. Raises `Refused` if
    none is left."""
    leaks = [
        *await find_observe_leaks(player, solved.solvers, instances),
        *await find_observer_leaks(player, solved.observers, instances),
    ]
    leaked = set().union(*leaks)
    context.note(answered_by_observe=len(leaked))
    if len(leaked) == len(instances):
        raise Refused(Reason.OBSERVE_SUFFICES, "all enlarged inputs are answered without any other tool")
    return [instance for instance in instances if instance.id not in leaked]
