"""Users without a model: the task is the first message, or the user follows a script."""

from __future__ import annotations

import copy

from simia.envs.users.user import EpisodeView, UserStop
from simia.errors import Code
from simia.task import Task
from simia.trajectory import Message, ToolCall


class NoUser:
    """The task's text is the first message; the agent's first turn without calls ends the episode."""

    def __init__(self, task: Task) -> None:
        self._words = task.opening if not task.instruction else task.instruction
        self._said = False

    async def reply(self, view: EpisodeView) -> Message | UserStop:
        if self._said:
            return UserStop(Code.ANSWERED)
        self._said = True
        return Message(role="user", content=self._words or "")

    def fork(self) -> NoUser:
        return copy.copy(self)


class ScriptedUser:
    """Follows the user's turns and calls of the task's script, or of the script of its reference, whatever the agent says."""

    def __init__(self, task: Task) -> None:
        self._turns: list[Message] = []
        for turn in task.make_script():
            if turn.user is not None:
                self._turns.append(Message(role="user", content=turn.user))
            own = [action for action in turn.calls or [] if action.by == "user"]
            if own:
                calls = [
                    ToolCall(id=f"user_{len(self._turns)}_{i}", name=action.name, arguments=action.arguments)
                    for i, action in enumerate(own)
                ]
                self._turns.append(Message(role="user", calls=calls))
        self._next = 0

    async def reply(self, view: EpisodeView) -> Message | UserStop:
        if self._next == len(self._turns):
            return UserStop(Code.USER_STOP)
        self._next += 1
        return self._turns[self._next - 1]

    def fork(self) -> ScriptedUser:
        return copy.copy(self)
