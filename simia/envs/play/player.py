"""One episode from its first to its last message."""

from __future__ import annotations

from simia.envs.environment import Episode
from simia.envs.play.agent import Agent, AgentFailed
from simia.trajectory import Trajectory


async def play(episode: Episode, agent: Agent) -> Trajectory:
    """Let the agent act until the episode ends. Returns the trajectory with its reward. Raises nothing but cancellation."""
    try:
        while episode.end is None:
            try:
                message, sample = await agent.act(episode.view)
            except AgentFailed as error:
                await episode.stop(error.code, aborted=error.aborted, detail=error.detail)
                break
            await episode.step(message, sample)
        return episode.trajectory
    finally:
        await episode.close()
