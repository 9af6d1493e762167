"""Read replies with the user's messages for a chain's task: one message, the user of a conversation, or a message for each turn."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from simia.json_values import iterate_plain_values
from simia.quality.mentions import contains_phrase
from simia.reward_spec import StrictModel
from simia.state_schema import StateSchema
from simia.synthesis.chains.chain import Chain
from simia.synthesis.chains.grounded_words import find_unsaid, find_unused
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.scenarios.scenario import ScenarioUser
from simia.synthesis.scenarios.scenario_prompts import check_withheld_facts
from simia.task import Action

SHOWN = 4
FORM = "each value as it is written in the list"


class PlainWords(StrictModel):
    """The message of a task without a conversation."""

    task: str = Field(min_length=20)


class TurnWords(StrictModel):
    """The user's messages of a task over several turns."""

    messages: list[str] = Field(min_length=2)


class Ungrounded(Unreadable):
    """The user's messages lack a value that the chain needs, or name one that it does not use."""


@dataclass(frozen=True, slots=True)
class ChainWords:
    """Reads the user's messages for a chain's task, and checks which values they must and may contain."""

    chain: Chain
    """The chain in its final state."""
    values: Sequence[Any]
    """What its calls returned there."""
    schema: StateSchema
    """The schema of the state."""
    tools: Collection[str]
    """Names of the environment's tools."""

    def read_plain(self, text: str) -> str:
        """Return the message of a reply. Raises `Unreadable`."""
        found: PlainWords = read_json(text, PlainWords)
        self._check(found.task, found.task)
        return found.task.strip()

    def read_talk(self, text: str) -> ScenarioUser:
        """Return the user of a reply. Raises `Unreadable`."""
        user: ScenarioUser = read_json(text, ScenarioUser)
        free = check_withheld_facts(user)
        self._check("\n".join([free, *(each.fact for each in user.withheld)]), user.profile)
        for each in user.withheld:
            held = [value for value in iterate_plain_values(self.chain.known) if not find_unsaid(each.fact, value)]
            told = [value for value in held if isinstance(value, str) and not find_unsaid(free, value)]
            if told and len(told) == sum(isinstance(value, str) for value in held):
                raise Unreadable(
                    f"the withheld fact {each.fact!r} can be told from another part: {told[0]} is there too"
                )
        return user

    def read_turns(self, text: str, turns: Sequence[Sequence[Action]]) -> list[str]:
        """Return the messages of a reply, one for each turn. Raises `Unreadable`."""
        found: TurnWords = read_json(text, TurnWords)
        messages = [each.strip() for each in found.messages]
        if len(messages) != len(turns) or not all(messages):
            raise Unreadable(f"there are {len(turns)} turns, and {len(messages)} messages")
        self._check("\n".join(messages), "")
        known = list(iterate_plain_values(self.chain.known))
        for number, calls in enumerate(turns, start=1):
            used = list(iterate_plain_values([call.arguments for call in calls]))
            lacking = find_unsaid("\n".join(messages[:number]), [value for value in known if value in used])
            if lacking:
                raise Ungrounded(f"turn {number} needs {lacking[0]!r}, and no message up to it says so: write {FORM}")
        return messages

    def _check(self, words: str, more: str) -> None:
        """Raise `Ungrounded` if `words` lack a value that the user knows, or if `words` or `more` name one that the chain does not use."""
        if lacking := find_unsaid(words, self.chain.known):
            raise Ungrounded(f"the words lack {', '.join(map(repr, lacking[:SHOWN]))}: write {FORM}")
        state: Mapping[str, Any] = self.chain.state
        whole = f"{words}\n{more}"
        if unused := find_unused(whole, self.chain.known, self.values, state, self.schema):
            raise Ungrounded(f"the words name {', '.join(unused[:SHOWN])}, which the chain does not use: leave it out")
        if named := [name for name in self.tools if "_" in name and contains_phrase(name, whole)]:
            raise Ungrounded(f"the words name the tool {named[0]}: a user knows no tools")
