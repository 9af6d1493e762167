"""Playing calls in an OfficeBench pack, for its tests."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simia.envs.environment import Environment, Episode, EpisodeLimits
from simia.sandbox.capabilities import probe_isolation
from simia.task import Task
from simia.trajectory import Message, ToolCall

BENCHMARK = Path(os.environ.get("SIMIA_OFFICEBENCH") or Path(__file__).parents[4] / "shared/data/officebench")
SOLUTIONS = Path(__file__).parent / "solutions.jsonl"
walls = pytest.mark.skipif(
    not probe_isolation().works, reason="no sandbox on this machine: each episode needs one of its own"
)
benchmark = pytest.mark.skipif(not BENCHMARK.is_dir(), reason=f"OfficeBench's tasks are not at {BENCHMARK}")
LIMITS = EpisodeLimits(turns=200, errors=200)
Call = tuple[str, dict[str, Any]]


async def say(episode: Episode, name: str, **arguments: Any) -> str:
    """One call; what the agent reads."""
    call = ToolCall(id=str(len(episode.messages)), name=name, arguments=arguments)
    step = await episode.step(Message(role="assistant", calls=[call]))
    return step.messages[0].text


async def in_app(episode: Episode, name: str, **arguments: Any) -> str:
    """The same, after the app has been opened."""
    await say(episode, "system.switch_app", target_app=name.partition(".")[0])
    return await say(episode, name, **arguments)


async def played(environment: Environment, task: Task, calls: Sequence[Call]) -> Episode:
    """An episode after these calls and its score."""
    episode = await environment.reset(task)
    try:
        for name, arguments in calls:
            await say(episode, name, **arguments)
            if episode.end is not None:
                break
        episode.reward = await episode.score()
    finally:
        await episode.close()
    return episode


def value(episode: Episode) -> float | None:
    return episode.reward.value if episode.reward else None
