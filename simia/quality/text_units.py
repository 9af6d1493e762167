"""Divide texts into units of comparable size in all scripts: words, or short runs of characters in scripts without spaces.

If words are split at spaces, a whole Chinese clause is one word: a filler word then changes every unit, and sequences of eight
words never occur. Runs of such scripts are divided into overlapping pieces of the average length of a word, so that a changed
word changes about as many units as in English. No dictionary is needed, and text without such runs does not change.
"""

from __future__ import annotations

import re
import unicodedata

# Thai, Lao, Burmese and Khmer; Han and Kana; Hangul, whose particles are attached to words.
LONG_WORDS = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
HAN = r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
KANA = r"\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\uff66-\uff9f"
HANGUL = r"\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3"
DENSE = re.compile(f"[{LONG_WORDS}{HAN}{KANA}{HANGUL}]")
RUN = re.compile(f"[{LONG_WORDS}]+|[{HAN}{KANA}{HANGUL}]+")
JOINED = re.compile(f"(?<={DENSE.pattern}) (?={DENSE.pattern})")
LONG_LETTER = re.compile(f"[{LONG_WORDS}]")
MARKS = re.compile(
    r"[\u00a1-\u00a9\u00ab-\u00b4\u00b6-\u00b9\u00bb-\u00bf\u2000-\u206f\u3000-\u3004\u3008-\u3020\u30fb]+"
)
SHORT, LONG = 2, 5  # characters of a unit


def divide_dense(text: str) -> str:
    """Return the text with spaces around each unit of a script without spaces. Any other text is returned unchanged."""
    if text.isascii() or not DENSE.search(text):
        return text
    # Full-width letters become ASCII; marks would otherwise be words of their own.
    return RUN.sub(divide_run, MARKS.sub(" ", unicodedata.normalize("NFKC", text)))


def divide_run(found: re.Match[str]) -> str:
    run = found[0]
    size = LONG if LONG_LETTER.match(run) else SHORT
    if len(run) <= size:
        return f" {run} "
    return f" {' '.join([run[i : i + size] for i in range(len(run) - size + 1)])} "


def divide_dense_bytes(text: bytes) -> bytes:
    """`divide_dense` of UTF-8."""
    if text.isascii():
        return text
    return divide_dense(text.decode("utf-8", "replace")).encode("utf-8", "replace")
