"""Search the texts of a conversation for a value.

A value must be a whole token: ORD-1 is not in ORD-12, 12 is not in 12.50. Letter case, spaces and hyphens may differ, because people write "ord 20417" and "555 123 4567"; a number and its digits as text are the same.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from simia.formats.reply.reply_json import iterate_strings

# Models often write typographic hyphens and spaces, which have no meaning.
PLAIN = (*((char, "-") for char in "‐‑‒–—−"), *((char, " ") for char in "\u00a0\u202f\u2007\u2009"))
EDGES = re.compile(r"^[^\w+]+|[^\w]+$")
SEPARATOR = r"[\s\-_()]{0,2}"
PREFIXED_NUMBER = re.compile(r"#?[a-z]{1,6}[-_ #]?(\d{4,})")
PARTS = re.compile(r"[,;\s]+")


class Mentions:
    """Texts in lower case. `contains` searches for the exact value first, then for its looser forms."""

    __slots__ = ("_escaped", "_texts", "_user")

    def __init__(self, system: str | None = None) -> None:
        self._texts: list[str] = []
        self._user: list[str] = []
        self._escaped: list[str] = []
        if system:
            self.add(system)

    def add(self, text: str, *, by_user: bool = False, low: str | None = None) -> None:
        """Add a text. `low`: the text in lower case, if it is known."""
        plain = normalize_mention(text) if low is None or not text.isascii() else low
        self._texts.append(plain)
        if by_user:
            self._user.append(plain)
        elif "\\" in text and text[:1] in ("{", "["):
            self._escaped.append(text)

    def add_normalized(self, plain: str) -> None:
        """Add a text from `normalize_mention`."""
        if plain:
            self._texts.append(plain)

    def contains(self, value: Any) -> bool:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        needle = normalize_mention(str(value))
        if needle and not (needle[0].isalnum() and needle[-1].isalnum()):
            needle = EDGES.sub("", needle)
        if not needle or self._contains_exactly(needle):
            return True
        if self._escaped:  # escapes hide a value from the text search: look at the decoded values too
            self._texts += [normalize_mention(value) for text in self._escaped for value in decode_strings(text)]
            self._escaped.clear()
            if self._contains_exactly(needle):
                return True
        if self._contains_loosely(needle):
            return True
        parts = [part for part in PARTS.split(needle) if part]
        # Several identifiers in one string, as tools that take "A1, B2" want them.
        return len(parts) > 1 and "," in needle and all(self.contains(part) for part in parts)

    def _contains_exactly(self, needle: str) -> bool:
        # The newest text first: most identifiers come from the last result.
        for text in reversed(self._texts):  # noqa: SIM110 - a generator costs more than the search
            if needle in text and contains_token(needle, text):
                return True
        return False

    def _contains_loosely(self, needle: str) -> bool:
        if "@" in needle:
            return False
        if number := PREFIXED_NUMBER.fullmatch(needle):
            # "order 20417" for ORD-20417: only from the user, and never a piece of a date, a price or another code.
            bare = re.compile(rf"(?<![\w\-.,/:€$£]){number[1]}(?!\w|[\-.,/:]\d)")
            if any(bare.search(text) for text in self._user):
                return True
        kept = "".join(char for char in needle if char.isalnum())
        if len(kept) < 4 or (kept.isdigit() and len(kept) < 6) or len(kept) > 64:
            return False
        loose = re.compile(rf"(?<![^\W_]){SEPARATOR.join(map(re.escape, kept))}(?![^\W_]|[-.]\d)")
        return any(loose.search(text) for text in reversed(self._texts))


def normalize_mention(text: str) -> str:
    if not text.isascii():
        for char, plain in PLAIN:
            text = text.replace(char, plain)
    return text.lower()


def contains_token(needle: str, text: str) -> bool:
    """Return whether the needle is in the text with token borders on both sides."""
    at = text.find(needle)
    while at >= 0:
        end = at + len(needle)
        if starts_token(needle, text, at) and ends_token(needle, text, end):
            return True
        at = text.find(needle, at + 1)
    return False


def starts_token(needle: str, text: str, at: int) -> bool:
    if at == 0:
        return True
    before = text[at - 1]
    if is_word(before):
        return False
    if "@" in needle:
        return before not in ".+-"
    return not (before in ".,:/-" and needle.isdigit() and at > 1 and text[at - 2].isdigit())


def ends_token(needle: str, text: str, end: int) -> bool:
    after = text[end : end + 1]
    if not after:
        return True
    if is_word(after):
        return False
    follows = text[end + 1 : end + 2]
    if "@" in needle:
        return not (after in ".-" and is_word(follows))
    if after == "-" or (needle.isdigit() and after in ".,:/"):
        return not follows.isdigit()
    return True


def is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def decode_strings(text: str) -> list[str]:
    """Return every string of a JSON text, unescaped; none if it is not JSON."""
    try:
        return list(iterate_strings(orjson.loads(text)))
    except orjson.JSONDecodeError:
        return []
