"""Agents in environments: play episodes, many at once, into a run; count what they are worth."""

from simia.envs.play.agent import Agent, AgentFailed
from simia.envs.play.player import play

__all__ = ["Agent", "AgentFailed", "play"]
