"""Agents in environments: play episodes, many at once, into a run; count what they are worth."""

from simia.rollout.agent import Agent, AgentFailed
from simia.rollout.play import play

__all__ = ["Agent", "AgentFailed", "play"]
