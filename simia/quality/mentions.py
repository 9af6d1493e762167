"""Search the texts of a conversation for a value.

A value must be a whole token: ORD-1 is not in ORD-12, 12 is not in 12.50. Letter case, spaces and hyphens may differ, because people
write "ord 20417" and "555 123 4567". A number and its digits as text are the same.

Scripts that are written without spaces, or that attach particles to words (Chinese, Japanese, Thai, Korean, Arabic), never
continue a token of Latin letters and digits: `订单#W5918442里` has the token W5918442. Values in these scripts are found
anywhere in running text. Full-width letters, and the digits of other scripts, count as the ASCII ones.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import orjson

from simia.json_values import iterate_strings

# Models often write typographic hyphens and spaces, which have no meaning.
PLAIN = (*((char, "-") for char in "‐‑‒–—―−"), *((char, " ") for char in "\u00a0\u202f\u2007\u2009\u3000"))
# Full-width ASCII, and the zeros of decimal digits that people write in Arabic, Persian, Indic, Thai, Lao, Khmer and Burmese.
WIDE = {chr(code + 0xFEE0): chr(code) for code in range(0x21, 0x7F)} | {"￥": "¥", "￦": "₩", "，": ", ", "：": ": "}
ZEROS = "٠۰०০੦૦௦౦೦൦๐໐០၀"
FOLDED = WIDE | {chr(ord(zero) + digit): str(digit) for zero in ZEROS for digit in range(10)}
FOLDABLE = re.compile(f"[{re.escape(''.join(FOLDED))}]")
# UTF-8 lead bytes of these characters and of letters that may be written as several characters. A test by characters of each text that
# is nearly ASCII would take as long as all searches together.
LEADS = frozenset({char.encode()[0] for char in FOLDED} | {0xCC, 0xCD, 0xE1, 0xE3, 0xEF})
# The long-vowel mark of Kana, which Japanese keyboards write for a hyphen. In a word it follows Kana; here it is between letters or
# digits of an identifier.
LONG_MARK = re.compile(r"(?<=[a-z0-9])[ーｰ](?=[a-z0-9])", re.I)
EDGES = re.compile(r"^[^\w+]+|[^\w]+$")
SEPARATOR = r"[\s\-_()]{0,2}"
PREFIXED_NUMBER = re.compile(r"#?[a-z]{1,6}[-_ #]?(\d{4,})")
PARTS = re.compile(r"[,;、\s]+")
# A letter, digit or underscore that continues a token of Latin letters and digits: of Latin, Greek or Cyrillic script, but not the
# signs of "nº" and "2ª".
DENSE = r"\u00aa\u00ba\u0530-\u1dff\u2000-\U0010ffff"
CONTINUES = rf"[^\W{DENSE}]"
# What follows an amount or a year, in scripts that put it right after the digits.
UNIT = r"\s?(?:元|块|円|원|บาท|년|年|€)"
# Arabic attaches conjunctions, prepositions and the article to a word.
ARABIC_PREFIX = re.compile(r"(?:^|[^\u0620-\u065f])[وف]?[بلك]?(?:ال|ل)?$")

DIGIT_GROUPS = re.compile(r"\d[\d \-().]*\d")
PHONE = re.compile(r"\s*\+[\d \-().]+")
LEAST_PHONE = 7  # digits of a phone number without a country code


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
        return len(parts) > 1 and ("," in needle or "、" in needle) and all(self.contains(part) for part in parts)

    def contains_phone(self, value: Any) -> bool:
        """Return whether a value is a phone number with a country code that a text has without it."""
        if not isinstance(value, str) or not PHONE.fullmatch(value):
            return False
        written = "".join(filter(str.isdigit, value))
        return any(adds_country_code(written, given) for text in self._texts for given in join_digits(text))

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
            bare = re.compile(rf"(?<!{CONTINUES})(?<![\-.,/:€$£¥₩฿]){number[1]}(?!{CONTINUES}|[\-.,/:]\d|{UNIT})")
            if any(bare.search(text) for text in self._user):
                return True
        if needle.isdecimal() and len(needle) >= 4:  # AS15169 for 15169
            named = re.compile(rf"(?<!{CONTINUES})[a-z]{{1,6}}{needle}(?!{CONTINUES}|[\-.,/:]\d)")
            if any(named.search(text) for text in reversed(self._texts)):
                return True
        kept = "".join(char for char in needle if char.isalnum())
        dense = bool(kept) and all(map(is_dense, kept))
        if not 4 - 2 * dense <= len(kept) <= 64 or (kept.isdigit() and len(kept) < 6):
            return False
        before, after = (rf"(?<![^\W_{DENSE}])", rf"(?![^\W_{DENSE}]|[-.]\d)")
        if dense:
            before, after = (r"(?<!\w)", r"(?!\w)") if is_arabic(kept[0]) else ("", "")
        loose = re.compile(f"{before}{SEPARATOR.join(map(re.escape, kept))}{after}")
        return any(loose.search(text) for text in reversed(self._texts))


def join_digits(text: str) -> list[str]:
    """Return the numbers of a text that are written in groups, such as phone numbers, without spaces and signs."""
    return [re.sub(r"\D+", "", run) for run in DIGIT_GROUPS.findall(text)]


def adds_country_code(written: str, given: str) -> bool:
    """Return whether the digits of a phone number are given ones with a country code before them, which replaces a leading 0."""
    own = [each for each in (given, given.removeprefix("0")) if len(each) >= LEAST_PHONE and written.endswith(each)]
    return any(1 <= len(written) - len(each) <= 3 for each in own)


def normalize_mention(text: str) -> str:
    if not text.isascii():
        raw = text.encode("utf-8", "replace")
        if any(lead in raw for lead in LEADS):
            text = unicodedata.normalize("NFC", text)
            text = FOLDABLE.sub(lambda found: FOLDED[found[0]], text)
            text = LONG_MARK.sub("-", text)
        for char, plain in PLAIN:
            text = text.replace(char, plain)
    return text.lower()


def contains_phrase(phrase: str, text: str) -> bool:
    """Return whether a phrase occurs in a text, not within a word."""
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text) is not None


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
    if continues(needle[0], before):
        return (
            is_arabic(before) and is_arabic(needle[0]) and ARABIC_PREFIX.search(text[max(0, at - 5) : at]) is not None
        )
    if "@" in needle:
        return before not in ".+-"
    return not (before in ".,:/-" and needle.isdigit() and at > 1 and text[at - 2].isdigit())


def ends_token(needle: str, text: str, end: int) -> bool:
    after = text[end : end + 1]
    if not after:
        return True
    if continues(needle[-1], after):
        return False
    follows = text[end + 1 : end + 2]
    if "@" in needle:
        return not (after in ".-" and continues(needle[-1], follows))
    if after == "-" or (needle.isdigit() and after in ".,:/"):
        return not follows.isdigit()
    return True


def continues(edge: str, neighbour: str) -> bool:
    """Return whether a neighbouring character belongs to the same token as the edge of a value."""
    if neighbour.isascii() and edge.isascii():  # nearly always
        return neighbour.isalnum() or neighbour == "_"
    if not (neighbour.isalnum() or neighbour == "_") or neighbour in "ºª":
        return False
    if is_dense(neighbour):
        return is_arabic(edge) and is_arabic(neighbour)
    return not is_dense(edge)


def is_dense(char: str) -> bool:
    """Return whether the character's script may join words to their neighbours without a space."""
    return char >= "\u0530" and not "\u1e00" <= char <= "\u1fff"


def is_arabic(char: str) -> bool:
    return "\u0620" <= char <= "\u06ff"


def decode_strings(text: str) -> list[str]:
    """Return every string of a JSON text, unescaped; none if it is not JSON."""
    try:
        return list(iterate_strings(orjson.loads(text)))
    except orjson.JSONDecodeError:
        return []
