"""Outputs of the stages that verify gyms, and the choice of instances for a gym's pack."""

from __future__ import annotations

from pydantic import Field

from simia.reward_spec import StrictModel
from simia.synthesis.design import GymInstance
from simia.synthesis.stage import StageOutputs

INSTANCES, SOLUTIONS, DIFFICULTY, HARD = "instances", "solutions", "difficulty", "hard"


class VerifiedInstances(StrictModel):
    """Inputs of a gym with reference answers: the output of the stages `instances`, `difficulty` and `hard`."""

    instances: list[GymInstance]
    """The inputs."""


class SolvedGym(StrictModel):
    """A gym that a solution function solves through its tools alone: the output of the stage `solutions` (CodeGym §3.3.2)."""

    oracle: str
    """Python source of the function that passes all inputs."""
    instances: list[GymInstance]
    """The inputs that it solves with a number of calls within the limits, and these calls."""
    solvers: list[str] = Field(default_factory=list)
    """The different functions that were written for it, right or wrong."""
    observers: list[str] = Field(default_factory=list)
    """The different functions that must answer from the result of `observe` alone."""


def collect_instances(outputs: StageOutputs, key: str) -> list[GymInstance]:
    """Return the instances of a gym's pack: the outputs of the last stage that the recipe has, and the enlarged inputs."""
    final = DIFFICULTY if DIFFICULTY in outputs.made or DIFFICULTY in outputs.refused else SOLUTIONS
    rows = [outputs.of(stage).get(key, {}).get("instances", []) for stage in (final, HARD)]
    return [GymInstance.model_validate(row) for found in rows for row in found]
