"""Repeat the messages of a recorded agent in a new episode, and score that episode.

A record of an untrusted program is not evidence of what the world did: only its messages are taken from it. The tools run again, in the
same initial state, and the rules of the task judge what happened then.
"""

from __future__ import annotations

from simia.envs.environment import Environment
from simia.envs.play.agent import AgentFailed
from simia.envs.play.baseline_agents import Act
from simia.envs.play.player import play
from simia.envs.users import EpisodeView
from simia.errors import Code
from simia.task import Task
from simia.trajectory import Message, Trajectory


class RecordedAgent:
    """Repeats the agent's messages of a trajectory; an episode that goes on after the last of them is truncated and scored."""

    def __init__(self, recorded: Trajectory) -> None:
        self._messages = [
            Message(role="assistant", content=message.content, calls=message.calls)
            for message in recorded.messages
            if message.role == "assistant"
        ]
        self._next = 0

    async def act(self, view: EpisodeView) -> Act:
        if self._next == len(self._messages):
            raise AgentFailed(Code.AGENT_FAILED, "the recorded agent stopped here", aborted=False)
        self._next += 1
        return self._messages[self._next - 1], None


async def replay(environment: Environment, task: Task, recorded: Trajectory, *, seed: int = 0) -> Trajectory:
    """Play the agent's messages of a record again and return the new episode, with its reward.

    Args:
        environment: An open environment; the episode has its user and its limits.
        task: The task of the episode, whose rules score it.
        recorded: The trajectory whose messages are repeated.
        seed: Random seed of the world.
    """
    return await play(await environment.reset(task, seed=seed), RecordedAgent(recorded))
