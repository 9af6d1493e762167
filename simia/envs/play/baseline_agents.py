"""Agents without a model: the reference, and baselines whose reward must be 0, which test the rewards."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

from simia.envs.environment import Sample
from simia.envs.play.random_arguments import Sampler
from simia.envs.users import EpisodeView
from simia.task import Task
from simia.trajectory import Message, ToolCall

Act = tuple[Message, Sample | None]
CANNED = "I have taken care of that for you. Is there anything else I can help with?"
AGAIN = re.compile(r"\bagain\b|\bonce more\b")
NOTHING = "I am sorry, I cannot help with that."


class ReferenceAgent:
    """Plays the agent's part of the task's script, or of the script that is made from its reference."""

    def __init__(self, task: Task, seed: int = 0) -> None:
        self._messages = make_solution_messages(task)
        self._next = 0

    async def act(self, view: EpisodeView) -> Act:
        if self._next == len(self._messages):
            return make_text_message("Done."), None
        self._next += 1
        return self._messages[self._next - 1], None


def make_solution_messages(task: Task) -> list[Message]:
    """Return the agent's messages in the task's script, or in the script that is made from its reference."""
    numbers = itertools.count(1)
    messages: list[Message] = []
    for turn in task.make_script():
        if turn.agent is not None:
            messages.append(make_text_message(turn.agent))
        own = [action for action in turn.calls or [] if action.by == "agent"]
        if own:
            calls = [ToolCall(id=f"call_{next(numbers)}", name=a.name, arguments=a.arguments) for a in own]
            messages.append(Message(role="assistant", calls=calls))
    return messages


class RepeatingAgent(ReferenceAgent):
    """Plays the reference, and repeats a call when its result says so, as those of perturbed tools do."""

    def __init__(self, task: Task, seed: int = 0, most: int = 6) -> None:
        super().__init__(task, seed)
        self._calls: list[ToolCall] = []
        self._left = self._most = most
        self._made = 0

    async def act(self, view: EpisodeView) -> Act:
        again = [call for call, result in zip(self._calls, list_last_results(view), strict=False) if asks_again(result)]
        if again and self._left:
            self._left -= 1
            self._made += 1
            self._calls = [call.model_copy(update={"id": f"{call.id}_{self._made}"}) for call in again]
            return Message(role="assistant", calls=self._calls), None
        message, sample = await super().act(view)
        self._calls, self._left = list(message.calls), self._most
        return message, sample


def list_last_results(view: EpisodeView) -> list[Message]:
    """Return the tool results at the end of the conversation."""
    results = itertools.takewhile(lambda message: message.role == "tool", reversed(view.messages))
    return list(results)[::-1]


def asks_again(result: Message) -> bool:
    """Whether a result says that the call can be made again."""
    return AGAIN.search(result.text) is not None


class NothingAgent:
    """Says that it cannot help, and does nothing."""

    def __init__(self, task: Task, seed: int = 0, words: str = NOTHING) -> None:
        self._words = words

    async def act(self, view: EpisodeView) -> Act:
        return make_text_message(self._words), None


class CannedAgent(NothingAgent):
    """Says that all is done, and does nothing."""

    def __init__(self, task: Task, seed: int = 0) -> None:
        super().__init__(task, seed, CANNED)


class EchoAgent:
    """Gives the user's own words back."""

    def __init__(self, task: Task, seed: int = 0) -> None: ...

    async def act(self, view: EpisodeView) -> Act:
        return make_text_message("\n".join(m.text for m in view.messages if m.role == "user") or "?"), None


class PolicyAgent:
    """Answers with its whole system text: repeating the policy must earn nothing."""

    def __init__(self, task: Task, seed: int = 0) -> None: ...

    async def act(self, view: EpisodeView) -> Act:
        return make_text_message(view.system or "?"), None


class RandomAgent:
    """Calls tools at random, with arguments that their schemas allow, and then answers."""

    def __init__(self, task: Task, seed: int = 0, calls: int = 6) -> None:
        self._random = random.Random(f"{task.id}/{seed}")
        self._left = self._random.randint(1, calls)
        self._number = itertools.count()

    async def act(self, view: EpisodeView) -> Act:
        if self._left == 0 or not view.all_tools:
            return make_text_message(CANNED), None
        self._left -= 1
        spec = self._random.choice(view.all_tools)
        arguments: dict[str, Any] = Sampler(self._random).object(spec.parameters)
        call = ToolCall(id=f"call_{next(self._number)}", name=spec.name, arguments=arguments)
        return Message(role="assistant", calls=[call]), None


def make_text_message(text: str) -> Message:
    return Message(role="assistant", content=text)
