"""Users without a model: the task is the first message, or the user follows a script."""

from __future__ import annotations

import copy

from simia.envs.users.user import EpisodeView, UserStop, make_user_answer
from simia.errors import Code
from simia.task import Task, WithheldFact
from simia.tool import SchemaError, compile_schema
from simia.trajectory import Message, ToolCall


class NoUser:
    """The task's text is the first message, and an answer of the agent ends the episode.

    In a task with goals, the goals' queries are the messages, one after each answer. Withheld facts are disclosed when the agent's
    answer asks for them.
    """

    def __init__(self, task: Task) -> None:
        words = task.opening if not task.instruction else task.instruction
        self._words = [goal.query for goal in task.goals] or [words or ""]
        self._withheld = list(task.withheld)
        self._next = 0

    async def reply(self, view: EpisodeView) -> Message | UserStop:
        if self._next and self._withheld:
            asked, self._withheld = split_asked(self._withheld, view)
            if asked:
                return make_user_answer(" ".join(each.fact for each in asked))
        if self._next == len(self._words):
            return UserStop(Code.ANSWERED)
        self._next += 1
        return Message(role="user", content=self._words[self._next - 1])

    def fork(self) -> NoUser:
        return copy.copy(self)


def split_asked(withheld: list[WithheldFact], view: EpisodeView) -> tuple[list[WithheldFact], list[WithheldFact]]:
    """The facts that the agent's last answer asks for, and the others."""
    last = next((m.text for m in reversed(view.messages) if m.role == "assistant" and m.text), "")
    asked = [each for each in withheld if matches_question(each.asked, last)]
    return asked, [each for each in withheld if each not in asked]


def matches_question(expression: str, text: str) -> bool:
    """Whether a regular expression matches in a text, ignoring case; an invalid expression is searched for as plain text."""
    try:
        return compile_schema({"type": "string", "pattern": f"(?i){expression}"}).valid(text)
    except SchemaError:
        return expression.casefold() in text.casefold()


class ScriptedUser:
    """Follows the user's turns and calls of the task's script, or of the script of its reference, whatever the agent says.

    A withheld fact is said only when the agent's last message asks for it. Turns of the script that state a withheld fact are skipped.
    """

    def __init__(self, task: Task) -> None:
        self._withheld = list(task.withheld)
        self._facts = {each.fact for each in task.withheld}
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
        asked, self._withheld = split_asked(self._withheld, view)
        if asked:
            return make_user_answer(" ".join(each.fact for each in asked))
        while self._next < len(self._turns) and self._turns[self._next].text in self._facts:
            self._next += 1
        if self._next == len(self._turns):
            return UserStop(Code.USER_STOP)
        self._next += 1
        return self._turns[self._next - 1]

    def fork(self) -> ScriptedUser:
        return copy.copy(self)
