"""Describe in words for a judge what the agent must tell the user: a regular expression of a pack becomes a list of example texts.

`(^|[^0-9])0?16(th)?( of)? [Mm]ay|2025-05-16` becomes "16 May", "2025-05-16". Optional parts are left out, each choice gives a text of its
own, a gap becomes "…", and word boundaries are left out.
"""

from __future__ import annotations

import itertools
import re

from simia.reward_spec import AnswerSpec

MOST, INNER, LONGEST = 8, 4, 200  # spellings of one expression, of a choice within it, and characters of one
BOUNDS = {
    "b": "",
    "B": "",
    "A": "",
    "z": "",
    "d": "#",
    "s": " ",
    "w": "…",
    "W": " ",
    "S": "…",
    "D": "…",
    "n": " ",
    "t": " ",
}
REPEAT = re.compile(r"\{(\d+)(,\d*)?\}|[?*+]")
ANY_WORDS = r"\S"  # an expression that any words satisfy


def describe_answer_part(spec: AnswerSpec) -> list[str]:
    """Return lines that describe one answer part; none for a part that any words satisfy."""
    if spec.match == "regex" and set(spec.expect) == {ANY_WORDS}:
        return []
    quoted = [f'"{each}"' for each in spec.expect]
    if spec.match == "exact":
        return [f"as the last words, exactly {' or '.join(quoted)}"]
    if spec.match == "number":
        return [f"the number {each}" for each in spec.expect]
    if spec.match == "contains":
        return quoted
    choices = [" or ".join(f'"{text}"' for text in list_spellings(each)) for each in spec.expect]
    return [f"{each} (or the same in other words)" for each in choices]


def list_spellings(expression: str) -> list[str]:
    """Return texts that the expression matches, one for each choice in it; or the expression itself if it cannot be parsed."""
    try:
        found = PatternReader(expression).choice()
    except (ValueError, IndexError, RecursionError):
        return [expression]
    texts = (re.sub(r"[ …]*…[ …]*", " … ", re.sub(" +", " ", text)).strip(" …") for text in found)
    return [text for text in dict.fromkeys(texts) if text][:MOST] or [expression]


class PatternReader:
    """A recursive descent through the expression; `at` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def choice(self, closed: bool = False) -> list[str]:
        branches = [self.sequence()]
        while self.at < len(self.text) and self.text[self.at] == "|":
            self.at += 1
            branches.append(self.sequence())
        if closed != (self.at < len(self.text)):
            raise ValueError("a bracket is missing")
        return [text for branch in branches for text in branch]

    def sequence(self) -> list[str]:
        whole = [""]
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            part = self.repeated(self.piece())
            whole = [(a + b)[:LONGEST] for a, b in itertools.product(whole, part)][: MOST * INNER]
        return whole

    def piece(self) -> list[str]:
        char = self.text[self.at]
        self.at += 1
        if char == "(":
            if self.text.startswith("?", self.at):
                if not self.text.startswith("?:", self.at):
                    raise ValueError("a group of another kind")
                self.at += 2
            found = self.choice(closed=True)
            self.at += 1
            return list(dict.fromkeys(found))[:INNER]
        if char == "[":
            return [self.one_of()]
        if char == "\\":
            char = self.text[self.at]
            self.at += 1
            if char.isalnum() and char not in BOUNDS:
                raise ValueError("an escape of another kind")
            return [BOUNDS.get(char, char)]
        return ["" if char in "^$" else "…" if char == "." else char]

    def one_of(self) -> str:
        """Return a readable character of a character class; a null character for a negated class."""
        end = self.at + 1 + self.text[self.at :].startswith("^")  # a leading bracket is a member of the class
        while self.text[end] != "]":
            end += 2 if self.text[end] == "\\" else 1
        held, self.at = self.text[self.at : end], end + 1
        if held.startswith("^"):
            return "\0"
        if "\\" in held:
            raise ValueError("an escape in a class")
        if re.fullmatch(r"(\d-\d)+", held):  # `#` stands for any digit
            return "#"
        return next((char for char in held if char.isalnum() or char == " "), "/" if "/" in held else held[0])

    def repeated(self, found: list[str]) -> list[str]:
        sign = REPEAT.match(self.text, self.at)
        gap = found in (["\0"], ["…"])
        if sign is None:
            return ["" if text == "\0" else text.replace("\0", "") for text in found]
        self.at = sign.end()
        if self.text.startswith("?", self.at):  # a lazy quantifier
            self.at += 1
        if gap:
            return ["…"]
        least = int(sign[1]) if sign[1] else int(sign[0] == "+")
        if found == [" "]:
            least = 1
        return list(dict.fromkeys((text.replace("\0", "") * min(least, LONGEST))[:LONGEST] for text in found))
