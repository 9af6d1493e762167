"""A tolerant reader for JSON that a language model wrote nearly right: it repairs common errors and refuses ambiguous text.

It knows a few well-understood errors (trailing comma, missing closing bracket, raw newline, single quotes, Python's
literals, unescaped quotes, needless backslashes) and names each repair. If a text has two possible readings it is
refused: a lost sample costs a cent, but a sample that is read wrongly teaches the error. The reader runs only after the
fast, strict parser has failed.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

MAX_DEPTH = 64
SPACE = re.compile(r"[ \t\r\n\u00a0\ufeff]*")
NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?=[\s,\]}]|$)")
WORD = re.compile(r"[A-Za-z]+(?=[\s,\]}]|$)")
FORBIDDEN = re.compile(r"[+-]?(?:NaN|Infinity|inf|undefined|nil|N/A)\b", re.I)
KEY = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*:""", re.S)
ITEM = re.compile(r"[\"'{\[\-0-9]|(?:true|false|null|True|False|None)\b")
PLAIN = {'"': re.compile(r'[^"\\\x00-\x1f]*'), "'": re.compile(r"[^'\\\x00-\x1f]*")}
# JSON structure inside a string shows that a closing quote was wrongly read as text.
RESIDUE = re.compile(r"""["']\s*[:,]\s*["'{\[0-9]|["']\s*:|[}\]]\s*,\s*["'{]""")
UNITS = re.compile(r"(?:\\u[0-9a-fA-F]{4})+")
HEX = re.compile(r"[0-9a-fA-F]{2}")
LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
NEEDLESS = "'$`"
LARGEST = 2**64
STRICT = json.JSONDecoder()


class Unreadable(ValueError):  # noqa: N818 - a finding on the reply, not a fault of the program
    """The text has no single reading; the message says why."""


class RepairError(Unreadable):
    """The text cannot be read as JSON without guessing. `final`: no other reader should try either."""

    def __init__(self, detail: str, *, final: bool = False) -> None:
        super().__init__(detail)
        self.final = final


class JSONScanner:
    """Reads one value at `at` and remembers, in order, the names of the repairs that it needed."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.end = len(text)
        self.at = at
        self.repairs: dict[str, None] = {}
        self._open: list[str] = []

    def skip(self, at: int) -> int:
        found = SPACE.match(self.text, at)
        return found.end() if found else at

    def value(self) -> Any:
        self.at = self.skip(self.at)
        if self.at >= self.end:
            raise RepairError("the text is cut off before a value", final=True)
        char = self.text[self.at]
        if char in "{[":
            if len(self._open) >= MAX_DEPTH:
                raise RepairError(f"the value nests deeper than {MAX_DEPTH}", final=True)
            return self._object() if char == "{" else self._array()
        if char in "\"'":
            return self._string(char, key=False)
        return self._literal()

    def _literal(self) -> Any:
        if number := NUMBER.match(self.text, self.at):
            self.at = number.end()
            value = float(number[0]) if number[1] or number[2] else int(number[0])
            if abs(value) >= LARGEST and (isinstance(value, int) or math.isinf(value)):
                raise RepairError(f"the number {number[0][:30]} is too large", final=True)
            return value
        if FORBIDDEN.match(self.text, self.at):
            raise RepairError("NaN, Infinity and undefined are no values", final=True)
        word = WORD.match(self.text, self.at)
        if word and word[0] in LITERALS:
            self.at = word.end()
            if word[0][0].isupper():
                self.repairs["python_literal"] = None
            return LITERALS[word[0]]
        missing = self.text[self.at] in ",:}]"
        raise RepairError(f"no value at character {self.at}: {self.text[self.at : self.at + 20]!r}", final=missing)

    def _object(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._enter("}")
        while not self._closed(comma=bool(found)):
            self.at = self.skip(self.at)
            char = self.text[self.at]
            if char not in "\"'":
                raise RepairError(f"no key at character {self.at}: {self.text[self.at : self.at + 20]!r}")
            key = self._string(char, key=True)
            self.at = self.skip(self.at)
            if self.text[self.at : self.at + 1] != ":":
                raise RepairError(f"the key {key[:40]!r} has no value", final=self.at >= self.end)
            self.at += 1
            if key in found:
                raise RepairError(f"the key {key[:40]!r} stands twice in one object", final=True)
            found[key] = self.value()
        return found

    def _array(self) -> list[Any]:
        found: list[Any] = []
        self._enter("]")
        while not self._closed(comma=bool(found)):
            found.append(self.value())
        return found

    def _enter(self, closer: str) -> None:
        self._open.append(closer)
        self.at += 1

    def _closed(self, *, comma: bool) -> bool:
        """Step over the comma between elements, or close the innermost bracket, also a missing one."""
        self.at = self.skip(self.at)
        if comma and self.text[self.at : self.at + 1] == ",":
            after = self.skip(self.at + 1)
            # A missing brace between two objects of a list: an object cannot hold a bare object.
            if self._open[-2:] == ["]", "}"] and self.text[after : after + 1] == "{":
                return self._leave("missing_bracket", step=0)
            if after < self.end and self.text[after] not in "}]":
                self.at = after
                return False
            if after >= self.end:
                raise RepairError("the text is cut off after a comma", final=True)
            self.repairs["trailing_comma"] = None
            self.at = after
        if self.at >= self.end:
            return self._leave("missing_bracket", step=0)
        char = self.text[self.at]
        if char == self._open[-1]:
            return self._leave(None, step=1)
        if char in "}]" and len(self._open) > 1 and char == self._open[-2]:
            return self._leave("missing_bracket", step=0)
        if comma or char in "}],:":
            raise RepairError(f"no comma or bracket at character {self.at}: {self.text[self.at : self.at + 20]!r}")
        return False

    def _leave(self, repair: str | None, *, step: int) -> bool:
        self._open.pop()
        self.at += step
        if repair:
            self.repairs[repair] = None
        return True

    def _string(self, quote: str, *, key: bool) -> str:
        if not key and (inner := self._json_in_quotes(quote)) is not None:
            return inner
        plain, text, at = PLAIN[quote], self.text, self.at + 1
        parts: list[str] = []
        kept = backslashes = controls = 0
        while True:
            chunk = plain.match(text, at)
            if chunk is not None and chunk.end() > at:
                parts.append(chunk[0])
                at = chunk.end()
            if at >= self.end:
                raise RepairError("the text is cut off inside a string", final=not kept)
            char = text[at]
            if char == quote:
                if self._closes(at + 1, key=key):
                    break
                kept += 1
                parts.append(char)
                at += 1
            elif char == "\\":
                piece, at, kind = self._escape(at, quote)
                parts.append(piece)
                backslashes += kind == "literal"
                controls += kind == "control"
            else:
                self.repairs["raw_control"] = None
                parts.append(char)
                at += 1
        self.at = at + 1
        found = "".join(parts)
        if backslashes and controls:
            raise RepairError("a string mixes escapes and bare backslashes: two readings", final=True)
        if kept:
            if RESIDUE.search(found):
                raise RepairError("unescaped quotes in a string: two readings", final=True)
            if quote == '"' and kept % 2:
                raise RepairError("one unescaped quote in a string")
            self.repairs["unescaped_quote"] = None
        if quote == "'":
            self.repairs["single_quotes"] = None
        return found

    def _json_in_quotes(self, quote: str) -> str | None:
        """Read `"{"error": "none"}"`: JSON text in quotes without escapes, taken unchanged."""
        start = self.at + 1
        if quote != '"' or self.text[start : start + 1] not in ("{", "["):
            return None
        try:
            _, end = STRICT.raw_decode(self.text, start)
        except (ValueError, RecursionError):
            return None
        if self.text[end : end + 1] != '"' or not self._closes(end + 1, key=False):
            return None
        found = self.text[start:end]
        if '"' in found:
            self.repairs["unescaped_quote"] = None
        self.at = end + 1
        return found

    def _closes(self, at: int, *, key: bool) -> bool:
        """Return whether the quote before `at` ends its string, judged by what follows it."""
        at = self.skip(at)
        if at >= self.end or key:
            return True
        char = self.text[at]
        if char in "}]":
            depth = len(self._open)
            while at < self.end and self.text[at] in "}]":
                depth -= 1
                if depth <= 0:
                    return True
                at = self.skip(at + 1)
            return at >= self.end or self.text[at] == ","
        if char != ",":
            return False
        at = self.skip(at + 1)
        if at >= self.end or self.text[at] in "}]":
            return True
        if self._open and self._open[-1] == "]":
            return ITEM.match(self.text, at) is not None
        return KEY.match(self.text, at) is not None or (self._open[-2:] == ["]", "}"] and self.text[at] == "{")

    def _escape(self, at: int, quote: str) -> tuple[str, int, str]:
        """Return (decoded text, end, kind: control, plain or literal)."""
        char = self.text[at + 1 : at + 2]
        if not char:
            raise RepairError("the text is cut off inside a string", final=True)
        if char in ESCAPES:
            return ESCAPES[char], at + 2, "control" if char.isalpha() else "plain"
        if units := UNITS.match(self.text, at):
            decoded: str = json.loads(f'"{units[0]}"')
            if any("\ud800" <= each <= "\udfff" for each in decoded):
                raise RepairError("half of a surrogate pair", final=True)
            return decoded, units.end(), "plain"
        self.repairs["bad_escape"] = None
        if char in NEEDLESS:
            return char, at + 2, "plain"
        digits = HEX.match(self.text, at + 2)
        if char == "x" and quote == "'" and digits:
            return chr(int(digits[0], 16)), at + 4, "plain"
        if char in "xu" and digits:
            raise RepairError("half an escape: which character it stands for is not said", final=True)
        return "\\" + char, at + 2, "literal" if char.isalpha() else "plain"
