"""Measure how difficult a task is for a named agent: its model plays the task a few times; name and pass rate are stored."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from simia.authoring.difficulty import measure_rewards
from simia.config import Config
from simia.envs.environment import Environment
from simia.envs.play.agent import Agent
from simia.envs.play.llm_agent import LLMAgent, LLMAgentSettings
from simia.envs.play.player import play
from simia.synthesis.agent_model import ModelOfStage
from simia.synthesis.building.pack_writing import open_built, write_environment
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.question_groups import ask_together
from simia.synthesis.stage import StageContext
from simia.task import Measurement, Task


class TaskDifficultySettings(Config):
    """The agent that measures the difficulty of tasks without a conversation."""

    agent: str | None = None
    """Name of a role in `roles` whose model plays the tasks. The name is stored with the results. null: nothing is measured."""
    tries: int = Field(default=4, ge=1)
    """Number of episodes of each task."""
    turns: int = Field(default=30, ge=1)
    """Maximum number of messages of the agent in an episode."""
    sampling: LLMAgentSettings = Field(default_factory=LLMAgentSettings)
    """Prompt and sampling settings of the agent's model."""


async def measure_task(
    context: StageContext, built: BuiltEnvironment, task: Task, settings: TaskDifficultySettings
) -> dict[str, Measurement]:
    """Play a task with the agent of the settings; return its name → how often it earned the full reward."""
    agent = settings.agent
    assert agent is not None
    model = ModelOfStage(context, agent, agent)
    async with context.execution() as folder:
        write_environment(folder / "pack", built, tasks=[task])
        environment = await open_built(folder / "pack", user="none", episode={"turns": settings.turns})
        try:
            agents = [LLMAgent(model, settings.sampling, item=f"try{number + 1}") for number in range(settings.tries)]
            rewards = await play_agents(environment, task, agents)
        finally:
            await environment.close()
    if model.fault is not None:
        raise model.fault
    found = measure_rewards({task.id: rewards})
    return {agent: found[task.id]} if task.id in found else {}


async def play_agents(environment: Environment, task: Task, agents: Sequence[Agent]) -> list[float | None]:
    """Play a task with all agents at the same time, so that batch inference gets the next requests of all episodes together. Returns the
    rewards in the order of the agents; None for an episode without a reward."""

    async def play_once(agent: Agent) -> float | None:
        played = await play(await environment.reset(task), agent)
        return played.reward.value if played.reward else None

    return await ask_together(*map(play_once, agents))
