"""Read numbers whose digits are spelt out."""

from __future__ import annotations

import re

NUMERALS = {
    word: str(n)
    for n, word in enumerate(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
} | {
    "oh": "0",
    "o": "0",
}
CJK_NUMERALS = dict(zip("零一二三四五六七八九〇幺", "012345678901", strict=True))
SPOKEN = re.compile(r"\b(?:(?:zero|oh|o|one|two|three|four|five|six|seven|eight|nine|double)[ ,.\-]*){3,}", re.I)
CJK_SPOKEN = re.compile("[零一二三四五六七八九〇幺]{3,}")


def read_spelt_digits(text: str) -> str:
    """Return the digits of numbers that are spelt out: "five oh three" is 503."""
    found = []
    for run in (match[0] for match in SPOKEN.finditer(text.lower())):
        words = re.findall(r"[a-z]+", run)
        digits = ["2" if word == "double" else NUMERALS.get(word, "") for word in words]
        found.append("".join(digits))
    found += (
        ["".join(CJK_NUMERALS[char] for char in run) for run in CJK_SPOKEN.findall(text)] if not text.isascii() else []
    )
    return " ".join(found)
