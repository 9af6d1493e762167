"""Difficulty of a task for a named agent: the model plays it a few times, and its name is stored with the figure."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from simia.authoring.difficulty import measure_rewards
from simia.config import Config
from simia.envs.environment import Sample
from simia.envs.play.llm_agent import make_hermes_chat, read_hermes_message
from simia.envs.play.player import play
from simia.envs.users import EpisodeView
from simia.llm.types import Reply
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.pack_writing import open_built, write_environment
from simia.synthesis.stage import StageContext
from simia.task import Measurement, Task
from simia.trajectory import Message

PROMPT = "synthesis/agent_turn.j2"


class DifficultySettings(Config):
    """Which agent measures how difficult tasks without a conversation are."""

    agent: str | None = None
    """A name in `roles`, whose model plays the tasks; stored with the figures. None: nothing is measured."""
    tries: int = Field(default=4, ge=1)
    """Episodes of each task."""
    turns: int = Field(default=30, ge=1)
    """Messages of the agent in an episode."""


class AskingAgent:
    """An agent that asks its model through the context of a stage, so that its replies are stored as others are."""

    def __init__(self, context: StageContext, role: str, name: str) -> None:
        self._context, self._role, self._name = context, role, name
        self._turn = 0

    async def act(self, view: EpisodeView) -> tuple[Message, Sample | None]:
        self._turn += 1
        values = {"chat": make_hermes_chat(view)}
        label = f"{self._name}-turn{self._turn}"
        text = await self._context.ask(PROMPT, values, str, label=label, role=self._role)
        return read_hermes_message(Reply(text=text), self._turn), None


async def measure_task(
    context: StageContext, built: BuiltEnvironment, task: Task, settings: DifficultySettings
) -> dict[str, Measurement]:
    """Play a task with the agent of the settings: its name → how often it earned the full reward."""
    agent = settings.agent
    assert agent is not None
    rewards: list[Any] = []
    async with context.execution() as folder:
        write_environment(folder / "pack", built, tasks=[task])
        environment = await open_built(folder / "pack", user="none", episode={"turns": settings.turns})
        try:
            for number in range(1, settings.tries + 1):
                played = await play(await environment.reset(task), AskingAgent(context, agent, f"try{number}"))
                rewards.append(played.reward.value if played.reward else None)
        finally:
            await environment.close()
    found = measure_rewards({task.id: rewards})
    return {agent: found[task.id]} if task.id in found else {}
