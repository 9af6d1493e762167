"""The agents without a model, by the names that settings give them."""

from __future__ import annotations

from collections.abc import Callable

from simia.envs.play.agent import Agent
from simia.envs.play.baseline_agents import (
    CannedAgent,
    EchoAgent,
    NothingAgent,
    PolicyAgent,
    RandomAgent,
    ReferenceAgent,
    RepeatingAgent,
)
from simia.envs.play.following_agent import FollowingAgent
from simia.task import Task

AGENTS: dict[str, Callable[[Task, int], Agent]] = {
    "reference": ReferenceAgent,
    "following": FollowingAgent,
    "repeating": RepeatingAgent,
    "nothing": NothingAgent,
    "canned": CannedAgent,
    "echo": EchoAgent,
    "policy": PolicyAgent,
    "random": RandomAgent,
}
