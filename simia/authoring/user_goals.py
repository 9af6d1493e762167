"""Derive what the user of a seed trajectory wants and knows, only from the user's turns.

A user simulator must not know what the seed's user learned during the conversation, such as an order's total or the flights that were
found. So each value in the user's turns that the assistant or a tool mentioned first is replaced by `[…]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from simia.quality.mentions import DENSE, Mentions
from simia.trajectory import Message, Trajectory

GAP = "[…]"
GAP_MEANING = f"{GAP} marks something that the assistant will have told you by then."
# Scripts without spaces end a token: `就订CA1234那班` holds CA1234, and `850元` holds 850.
CHAR = rf"[^\W{DENSE}]|(?=[{DENSE}])\d|[Ａ-Ｚａ-ｚ]"  # disjoint, so that no text is searched in many ways
UNITS = "年月日号號時时点點分秒년월일시분초"
TOKEN = re.compile(
    rf"(?:{CHAR}|[.+-])+@(?:{CHAR}|-)+(?:\.(?:{CHAR}|-)+)+"
    rf"|\d+[{UNITS}](?:\s?\d+[{UNITS}])+"  # a date or a time
    rf"|[€$£¥₹#]?(?:{CHAR})+(?:[-./:,'’](?:{CHAR})+)*"
    rf"|(?:(?!{CHAR})\w)+"
)
GAPS = re.compile(re.escape(GAP) + rf"(?:[\s,]*{re.escape(GAP)})+")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")
OWN_WORDS = re.compile(r"(?:I|I['’]\w+|OK)$")
SMALL = 100  # a smaller whole number is a quantity rather than a fact that was looked up


@dataclass(frozen=True, slots=True)
class UserGoal:
    """Input of a user simulator: the first message, what the user wants in the user's own words, and the facts to disclose."""

    opening: str
    later: tuple[str, ...]
    """The further messages, with `[…]` for what the user learned in the conversation."""
    knows: tuple[str, ...]
    """Sentences of the user that hold a value, such as an order number, and nothing that was learned."""

    @property
    def instruction(self) -> str:
        """The goal without a model's help: the messages in order."""
        lines = ["You write to an assistant. This is your first message, and it says what you want:", self.opening]
        if self.later:
            lines.append("Later you want, decide or say the following, each when the conversation has come to it:")
            lines += [f"- {text}" for text in self.later]
        if any(GAP in text for text in self.later):
            lines.append(GAP_MEANING)
        return "\n".join(lines)


@dataclass(slots=True)
class HeardValues:
    """Values and names in what one side wrote."""

    texts: Mentions = field(default_factory=Mentions)
    names: set[str] = field(default_factory=set)
    """Words that are capitalised within a sentence."""
    words: set[str] = field(default_factory=set)
    """All words as they are written."""

    def add(self, text: str) -> None:
        """Take in a message."""
        self.texts.add(text)
        for token, starts in list_tokens(text):
            self.words.add(token.text)
            if is_name_like(token.text) and not starts:
                self.names.add(token.text)

    def holds(self, value: str) -> bool:
        """Whether a value was written; a name counts only if it was written as a name."""
        if is_name_like(value):
            return value in self.names and value.lower() not in self.words
        return self.texts.contains(value)


def describe_user(seed: Trajectory) -> UserGoal | None:
    """Return what the seed's user wants and knows; None if the user says nothing."""
    heard, own = HeardValues(), Mentions()
    messages: list[str] = []
    last: Message | None = None
    for message in seed.messages:
        if message.role == "user" and message.text.strip():
            text = message.text.strip()
            shown = hide_learned(text, heard, own) if messages else text
            if last is not None and last.role == "user" and messages:  # one turn in two messages
                messages[-1] += f"\n{shown}"
            else:
                messages.append(shown)
            own.add(text, by_user=True)
        elif message.role in ("assistant", "tool") and message.text:
            heard.add(message.text)
        last = message
    if not messages:
        return None
    return UserGoal(messages[0], tuple(flatten(text) for text in messages[1:]), tuple(list_facts(messages)))


def hide_learned(text: str, heard: HeardValues, own: Mentions) -> str:
    """Replace the values that the assistant or a tool gave before the user did."""
    pieces, end = [], 0
    for token, _ in list_tokens(text):
        if not (is_value(token.text) or is_name_like(token.text)):
            continue
        if heard.holds(token.text) and not own.contains(token.text):
            pieces += [text[end : token.at], GAP]
            end = token.at + len(token.text)
    return GAPS.sub(GAP, "".join([*pieces, text[end:]]))


class Token(NamedTuple):
    """A word, number, address or identifier, and its place in the text."""

    at: int
    text: str


def list_tokens(text: str) -> Iterator[tuple[Token, bool]]:
    """Yield each token, and whether it starts a sentence."""
    starts = {0, *(found.end() for found in SENTENCE_END.finditer(text))}
    for found in TOKEN.finditer(text):
        yield Token(found.start(), re.sub(r"['’]s$", "", found[0])), found.start() in starts


def is_value(token: str) -> bool:
    """Whether a token is an address, a path, an identifier or a number that is no small quantity."""
    if token.isdecimal():
        return int(token) >= SMALL
    return any(char.isdigit() for char in token) or any(sign in token for sign in "@/_.")


def is_name_like(token: str) -> bool:
    """Whether a token is written like a name."""
    return token[:1].isupper() and len(token) > 1 and not is_value(token) and not OWN_WORDS.match(token)


def list_facts(messages: Sequence[str]) -> Iterator[str]:
    """Yield each sentence once that holds a value and no gap."""
    seen: set[str] = set()
    for text in messages:
        for sentence in SENTENCE_END.split(text):
            fact = flatten(sentence)
            if fact and GAP not in fact and fact not in seen and holds_fact(fact):
                seen.add(fact)
                yield fact


def holds_fact(text: str) -> bool:
    """Whether a text holds a value or a name."""
    return any(is_value(token.text) or (is_name_like(token.text) and not starts) for token, starts in list_tokens(text))


def flatten(text: str) -> str:
    return " ".join(text.split())
