"""An agent of the user's own: a Python function that the config names, as `my_agent.py:act` or `my_package.agents:act`.

    def act(view: EpisodeView) -> Message:
        return Message(role="assistant", content=f"I have {len(view.tools)} tools.")

It is trusted code and runs in simia's own process, so only the user's config names it and never a pack.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from simia.envs.environment import Sample
from simia.envs.play.agent import AgentFailed
from simia.envs.rewards.reward_function import describe_user_error, find_source, load_function
from simia.envs.users import EpisodeView
from simia.errors import Code
from simia.trajectory import Message


class FunctionAgent:
    """Asks a function for each message of the agent. A plain function is called in a thread, a coroutine function in the event loop.

    The function gets the episode as the agent sees it: `view.system`, `view.messages` and `view.tools`. If it raises an exception, or
    returns anything but a `Message` with the role `assistant`, the episode is aborted without a reward, and its record says why.
    """

    def __init__(self, name: str, function: Callable[[EpisodeView], Any]) -> None:
        """`name`: the function's name in the config."""
        self._name, self._function = name, function

    async def act(self, view: EpisodeView) -> tuple[Message, Sample | None]:
        try:
            if inspect.iscoroutinefunction(self._function):
                message = await self._function(view)
            else:
                message = await asyncio.to_thread(self._function, view)
        except Exception as error:
            why = describe_user_error(error, find_source(self._function))
            raise AgentFailed(Code.AGENT_FAILED, f"agent_function {self._name}: {why}") from None
        if not isinstance(message, Message) or message.role != "assistant":
            told = f"returned {message!r:.80}; return a simia.Message with the role assistant"
            raise AgentFailed(Code.AGENT_FAILED, f"agent_function {self._name}: {told}")
        return message, None


def load_agent_function(name: str) -> Callable[[EpisodeView], Any]:
    """Import the function that a config names. Raises `UserError` in one line."""
    return load_function(name, "agent_function")
