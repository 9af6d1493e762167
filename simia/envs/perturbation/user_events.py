"""Perturb the messages of a user: a scripted user's by code, a model's by a fragment in its prompt."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

from simia.envs.perturbation.checks import message_shows_event, names_exactly
from simia.envs.perturbation.effects import iterate_plain, renew_digits
from simia.envs.perturbation.settings import PlannedEvent
from simia.envs.users import EpisodeView, LLMUser, User, UserStop
from simia.prompts import load_template, read_lines
from simia.task import Task
from simia.trajectory import Message, Perturbation

IDENTIFIER = re.compile(r"(?<![\w@.-])(?=[\w-]*\d)[A-Za-z]{1,8}[-_#]?\d[\w-]{2,}(?![\w@-])")
TWO_MESSAGES = ("change_of_mind", "wrong_id", "off_topic")
Said = tuple[Message | UserStop, Perturbation | None]


class UserEvents:
    """The user's part of a schedule. Events that add a message are left out where the number of messages has a meaning: in tasks with
    goals, with tools that are revealed later, or with withheld facts."""

    def __init__(self, planned: Sequence[PlannedEvent], task: Task, rng: random.Random) -> None:
        fixed = has_fixed_messages(task)
        self._left_out = [each for each in planned if fixed and each.kind in TWO_MESSAGES]
        self._due = [each for each in planned if each not in self._left_out]
        self._opening, self._rng = task.opening, rng
        self._identifiers = [
            each
            for action in task.actions
            for each in iterate_plain(action.arguments)
            if isinstance(each, str) and re.search(r"\d", each) and " " not in each and len(each) > 3
        ]
        self._turns = 0
        self._pending: list[Message] = []
        self._again: tuple[str, dict[str, Any]] | None = None

    @property
    def missed(self) -> list[PlannedEvent]:
        """Planned events that were not made so far."""
        return [*self._left_out, *self._due]

    async def reply(self, user: User, view: EpisodeView, at: int) -> Said:
        """Return the user's next message, and the event that it shows. `at`: the message's index in the episode."""
        if self._pending:
            self._turns += 1
            return self._pending.pop(0), None
        if isinstance(user, LLMUser) and (view.messages or not self._opening):
            return await self._ask_model(user, view, at)
        word = await user.reply(view)
        if isinstance(word, UserStop) or word.calls or not word.text:
            return word, None
        self._turns += 1
        for event in self._list_due():
            if changed := self._change(event.kind, word.text):
                self._due.remove(event)
                first, later, detail = changed
                self._pending += [Message(role="user", content=text) for text in later]
                happened = message_shows_event(event.kind, first, detail)
                record = Perturbation(kind=event.kind, message=at, happened=happened, detail=detail)
                return word.model_copy(update={"content": first}), record
        return word, None

    def _list_due(self) -> list[PlannedEvent]:
        return [each for each in self._due if each.at <= self._turns]

    def _change(self, kind: str, text: str) -> tuple[str, list[str], dict[str, Any]] | None:
        """Return the message as changed by an event, the messages that follow it, and the chosen values; None: it does not apply."""
        if kind == "impatience":
            return f"{text} {self._pick('impatience')}", [], {}
        if kind == "off_topic":
            return self._pick("off_topic"), [text], {"topic": self._list_topic(text)}
        if kind == "change_of_mind":
            return f"{text} {self._pick('doubts')}", [self._pick("decisions")], {}
        chosen = self._choose_identifier(text)
        if chosen is None:
            return None
        right, wrong = chosen
        correction = self._pick("corrections").replace("RIGHT", right).replace("WRONG", wrong)
        first = re.sub(rf"(?<![\w-]){re.escape(right)}(?![\w-])", wrong, text)
        return first, [correction], {"right": right, "wrong": wrong}

    def _pick(self, name: str) -> str:
        return self._rng.choice(read_lines(f"perturb/{name}.txt"))

    def _list_topic(self, text: str) -> list[str]:
        """Return the task's identifiers that occur in a message."""
        return [each for each in dict.fromkeys(self._identifiers) if each in text]

    def _choose_identifier(self, text: str | None) -> tuple[str, str] | None:
        """Choose an identifier and a wrong one of the same form: one of the solution's that the text contains, else another of the text.
        Without a text, the first of the solution."""
        known = [each for each in self._identifiers if text is None or names_exactly(text, each)]
        right = next(iter(known), None)
        if right is None and text is not None:
            found = IDENTIFIER.search(text)
            right = found[0] if found else None
        return None if right is None else (right, renew_digits(right, self._rng))

    async def _ask_model(self, user: LLMUser, view: EpisodeView, at: int) -> Said:
        """Ask a user that is a model, with the event's fragment in its prompt."""
        if self._again is not None:
            (kind, detail), self._again = self._again, None
            word = await self._steer(user, view, kind, {**detail, "again": True})
            self._turns += not isinstance(word, UserStop) and not word.calls
            return word, None
        for event in self._list_due_next():
            chosen = self._choose_detail(event.kind)
            if chosen is None:
                continue
            word = await self._steer(user, view, event.kind, {**chosen, "again": False})
            if isinstance(word, UserStop) or word.calls:  # no message: a call of its own, or the end
                return word, None
            self._turns += 1
            self._due.remove(event)
            if event.kind in TWO_MESSAGES:
                self._again = event.kind, chosen
            happened = message_shows_event(event.kind, word.text, chosen)
            return word, Perturbation(kind=event.kind, message=at, by="model", happened=happened, detail=chosen)
        word = await user.reply(view)
        self._turns += not isinstance(word, UserStop) and not word.calls
        return word, None

    def _list_due_next(self) -> list[PlannedEvent]:
        return [each for each in self._due if each.at <= self._turns + 1]

    def _choose_detail(self, kind: str) -> dict[str, Any] | None:
        if kind == "off_topic":
            return {"topic": list(dict.fromkeys(self._identifiers))}
        if kind != "wrong_id":
            return {}
        chosen = self._choose_identifier(None)
        return None if chosen is None else dict(zip(("right", "wrong"), chosen, strict=True))

    async def _steer(self, user: LLMUser, view: EpisodeView, kind: str, values: dict[str, Any]) -> Message | UserStop:
        user.steering = load_template(f"perturb/{kind}.j2")[0].render(values).strip()
        try:
            return await user.reply(view)
        finally:
            user.steering = ""


def has_fixed_messages(task: Task) -> bool:
    """Whether the number or the place of the user's messages has a meaning in a task."""
    return bool(task.goals or task.reveals or task.withheld)
