"""Stage `difficulty`: how often a named agent solves each input of a gym (CodeGym §3.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field

from simia.config import Config
from simia.envs.play.agent import Agent
from simia.envs.play.agent_kinds import AGENTS
from simia.envs.play.llm_agent import LLMAgent, LLMAgentSettings
from simia.statistics import SUCCESS
from simia.synthesis.agent_model import ModelOfStage
from simia.synthesis.design import GymEnvironment, GymInstance
from simia.synthesis.gyms.function_runs import FunctionLimits
from simia.synthesis.gyms.gym_playing import open_gym
from simia.synthesis.gyms.gym_results import DIFFICULTY, SOLUTIONS, VerifiedInstances
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.task import Measurement, Task

AGENT_ROLE = "agent"
NOT_MEASURED = "not measured"


class GymDifficultySettings(Config):
    """The agent that measures how easy a gym's inputs are (CodeGym §3.4)."""

    agent: Literal["llm", "nothing", "canned", "echo", "policy", "random"] | None = None
    """Agent that plays. llm: the model of the role `agent`, or `llm` if there is no such role. Other values are baselines. null: nothing is
    measured."""
    attempts: int = Field(default=4, ge=1)
    """Number of episodes of each input."""
    most: float = Field(default=0.25, ge=0, le=1)
    """Maximum share of solved episodes of an input that is kept (0 to 1)."""
    sampling: LLMAgentSettings = Field(default_factory=LLMAgentSettings)
    """Prompt and sampling settings of the agent's model."""


def name_agent(settings: GymDifficultySettings, config: SynthesisConfig) -> str:
    """The name that is stored with the figures: the model's, or the baseline's."""
    if settings.agent == "llm":
        model = config.roles.get(AGENT_ROLE, config.llm)
        return model.model or model.kind
    return settings.agent or ""


class DifficultyStage:
    """Measure each input, and drop those that are too easy. Without an agent all inputs pass, and a note says so."""

    name = DIFFICULTY

    def __init__(self, settings: GymDifficultySettings, agent_name: str, *, limits: FunctionLimits) -> None:
        """`agent_name`: see `name_agent`."""
        self._settings, self._agent_name, self._limits = settings, agent_name, limits

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        gyms = outputs.of("gyms")
        return [
            StageInput(key, {"gym": gyms[key], "instances": found["instances"]})
            for key, found in outputs.of(SOLUTIONS).items()
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        gym = GymEnvironment.model_validate(given.value["gym"])
        instances = [GymInstance.model_validate(each) for each in given.value["instances"]]
        measure = DifficultyMeasure(self._settings, self._agent_name, self._settings.most, self._settings.attempts)
        return dump(VerifiedInstances(instances=await measure.filter(gym, instances, self._limits, context)))


@dataclass(frozen=True, slots=True)
class DifficultyMeasure:
    """An agent, how often it tries, and how often it may succeed."""

    settings: GymDifficultySettings
    agent_name: str
    most: float
    attempts: int

    async def filter(
        self, gym: GymEnvironment, instances: Sequence[GymInstance], limits: FunctionLimits, context: StageContext
    ) -> list[GymInstance]:
        """Return the instances that the agent solves rarely enough, with their measurements. Raises `Refused` if none is left."""
        if self.settings.agent is None:
            context.note(agent=NOT_MEASURED)
            return list(instances)
        async with context.execution() as folder, open_gym(gym, folder, limits) as player:
            models = ModelOfStage(context, self.agent_name, AGENT_ROLE)
            try:
                found = await player.play_pack(instances, self._list_agents(models), "measured")
            finally:
                if models.fault is not None:
                    raise models.fault
        kept = []
        solved = 0
        for instance, rewards in zip(instances, found, strict=True):
            count = sum(reward.value is not None and reward.value >= SUCCESS for reward in rewards)
            solved += count
            if count <= self.most * self.attempts:
                measured = {self.agent_name: Measurement(n=self.attempts, solved=count)}
                kept.append(instance.model_copy(update={"measured": measured}))
        rate = solved / (self.attempts * len(instances))
        context.note(agent=self.agent_name, attempts=self.attempts, pass_rate=rate, hard_enough=len(kept))
        if not kept:
            raise Refused(Reason.TOO_EASY, f"{self.agent_name} solves {rate:.0%} of {self.attempts} attempts an input")
        return kept

    def _list_agents(self, models: ModelOfStage) -> Callable[[Task], Sequence[Agent]]:
        settings = self.settings

        def make(task: Task) -> Sequence[Agent]:
            if settings.agent == "llm":
                return [LLMAgent(models, settings.sampling, item=f"{task.id}-attempt{n}") for n in range(self.attempts)]
            return [AGENTS[str(settings.agent)](task, n) for n in range(self.attempts)]

        return make
