"""Tell texts apart by their script (writing system), and the languages of the Arabic and the Cyrillic script by their letters.

No model is needed, so that these rules also hold without the extra `languages`: an English conversation is not one of an Arabic seed.
The letters of a script are found by their Unicode names.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

MOST_OF = 0.9  # share of the letters of a text that has one script: Chinese texts can hold many English names
SOME_OF = 0.25  # share of the letters of all a seed's texts from which on a script is one of the seed's
SHARE = 0.01  # of the letters of a text, from which on a letter is one of its language, not of a foreign name
# Words of Unicode names → script. Chinese and Japanese share one.
SAME = {
    "CJK": "Han",
    "IDEOGRAPHIC": "Han",
    "HIRAGANA": "Han",
    "KATAKANA": "Han",
    "BOPOMOFO": "Han",
    "KATAKANA-HIRAGANA": "Han",
}
DENSE_SCRIPTS = {"Han": 3, "Hangul": 3}  # a letter says as much as three of another script
OF_LANGUAGE = {
    "zh": "Han", "ja": "Han", "ko": "Hangul", "th": "Thai", "el": "Greek", "he": "Hebrew", "hi": "Devanagari", "bn": "Bengali", "ta": "Tamil",
    "te": "Telugu", "km": "Khmer", "my": "Myanmar", "lo": "Lao", "ka": "Georgian", "hy": "Armenian", "ar": "Arabic", "fa": "Arabic",
    "ur": "Arabic", "ru": "Cyrillic", "uk": "Cyrillic", "bg": "Cyrillic", "be": "Cyrillic", "kk": "Cyrillic", "mk": "Cyrillic",
}  # fmt: skip
"""Script of each language that is not written in Latin letters (Serbian is written in both)."""
# Letters that no other language in this order before "ar" and "bg" has; the first language with enough of them is the text's.
LETTERS = {
    "Arabic": (
        ("", re.compile("[ێۆەېۍټډړ]")),  # Kurdish, Pashto
        ("ur", re.compile("[ٹڈڑںے]")),
        ("fa", re.compile("[پچژگکی]")),
        ("ar", re.compile("[ةىيك]")),
    ),
    "Cyrillic": (
        ("be", re.compile("[ў]")),
        ("kk", re.compile("[әғқңұһ]")),
        ("mk", re.compile("[ѓќѕ]")),
        ("sr", re.compile("[јљњђћ]")),
        ("uk", re.compile("[іїєґ]")),
        ("ru", re.compile("[ыэ]")),
        ("bg", re.compile("ъ")),
    ),
}


@cache
def name_script(char: str) -> str:
    """Return the script of a letter, such as "Latin"; "" for any other character."""
    if not char.isalpha():
        return ""
    name = unicodedata.name(char, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    word = name.partition(" ")[0]
    return SAME.get(word, word.capitalize())


def count_scripts(text: str) -> Counter[str]:
    """Count the letters of each script; one of Chinese, Japanese or Korean counts as three."""
    counts = Counter(map(name_script, text))
    del counts[""]
    for script, weight in DENSE_SCRIPTS.items():
        if script in counts:
            counts[script] *= weight
    return counts


def find_script(text: str, least: int) -> str:
    """Return the script of most letters of a text; "" if it has fewer than `least` letters, or no script has most of them."""
    counts = count_scripts(text)
    if not counts:
        return ""
    script, most = counts.most_common(1)[0]
    return script if most >= max(least, MOST_OF * counts.total()) else ""


def find_scripts(texts: Iterable[str], least: int) -> frozenset[str]:
    """Return the scripts of texts: that of each text, and those with a quarter of all letters."""
    each = list(texts)
    counts = count_scripts("".join(each))
    some = {script for script, count in counts.items() if count >= max(least, SOME_OF * counts.total())}
    return frozenset({find_script(text, least) for text in each} | some) - {""}


def find_by_letters(text: str) -> str:
    """Return the language of a text in Arabic or Cyrillic script, by letters that its neighbours lack; "" if it has too few of them."""
    counts = count_scripts(text)
    low = text.lower()
    for script, languages in LETTERS.items():
        if 2 * counts[script] > counts.total():
            return next((name for name, own in languages if len(own.findall(low)) >= SHARE * counts[script]), "")
    return ""
