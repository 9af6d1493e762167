"""Remove a value from a user's message so that a full sentence remains: "Where is my order ORD-1?" → "Where is my order?"

Rules for English are tried in order. A result in which a word seems to be missing is refused. So is a value that the text names twice or
lists together with others.
"""

from __future__ import annotations

import re

LABELS = r"(?:customer|account|order|booking|return|voucher|ticket|invoice|e-?mail|address|phone|post ?code|zip|number|no\.?|id|code)"
OWN = r"(?:(?:[Mm]y|[Yy]our|[Tt]he|[Oo]ur|[Tt]his|[Tt]hat|[Aa]n?|[Hh]is|[Hh]er|[Tt]heir)\s+)"
IS = rf"(?:{OWN}(?:[A-Za-z]+ ){{1,3}}is |(?i:{LABELS}) is |[Ii]t['’]?s |[Ii]t is |[Ii]['’]m |[Ii] am )"
PREPOSITIONS = r"(?:for|from|of|on|in|under|to|with|at|as|by)"
DANGLING = re.compile(
    rf"\b(?:is|are|{PREPOSITIONS[3:-1]}|and|or|the|an?|my|your|use|cancel|called)\s*[.,!?;:)]|"
    r"[(,]\s*[,.!?)]|\(\s|\s[,.!?)]|[:]\s*(?:$|[.,!?])|(?:,|\band|\bor)\s*$|^\W*$|\b(?:the|an?|my|your)\s+(?:the|an?|my|your)\b",
    re.IGNORECASE,
)
LEAST_WORDS = 3


def count_mentions(text: str, value: str) -> int:
    """Count how often a value occurs in a text, not within a longer one."""
    return len(re.findall(mark_value(value), text))


def mark_value(value: str) -> str:
    """Return a pattern that finds the value, but not within a longer identifier, address or number."""
    return rf"(?<![\w@.+/-]){re.escape(value)}(?![\w@+/-]|\.\w)"


def remove_value(text: str, value: str, noun: str) -> str | None:
    """Return the text without the value; None if no rule gives a full sentence. `noun`: what the value is, such as `order`."""
    if count_mentions(text, value) != 1 or text.count(value) != 1 or is_coordinated(text, value):
        return None
    v, of = mark_value(value), re.escape(noun)
    label = rf"(?i:(?:{LABELS}|{of}):?\s+){{0,3}}"
    for pattern, put in (
        (rf"\s*\(\s*{label}{v}\s*\)", ""),
        (rf"\(\s*{label}{v}\s*[,;]\s*", "("),
        (rf"\s*[,;]\s*{label}{v}\s*(?=[);])", ""),
        (rf"(?:(?<=[.!?])\s+|^\s*)(?:{IS}{label}|{OWN}?{label}){v}(?:\s*[.!]|\s*$)", ""),
        (rf"(?:(?<=[.!?]\s)|^)(?:{IS}{label}|{label}){v}\s*(?:,| and)\s+", ""),
        (rf",\s+{label}{v},(?=\s+(?!and\b|but\b|or\b|so\b|which\b|please\b)[a-z]+\b(?![.@]))", ""),
        (rf"(?:,? and|,)\s+(?:{IS}{label}|{label}){v}(?:\s+here)?(?=\s*(?:[.!?,;]|$))", ""),
        (rf"({OWN}(?:[a-z'’]+ )?{of})\s+{v}", r"\1"),
        (rf"\b{of}\s+{v}", f"{choose_article(noun)} {noun}"),
        (rf"\s+{PREPOSITIONS}\s+{v}(?=\s*[\s.,!?;:])", "") if not is_place(text, v) else (r"$^", ""),
        (rf"({OWN}(?:[a-z]+ ){{0,2}}(?!{PREPOSITIONS}\b)[a-z]+)\s+{v}", r"\1"),
        (rf"(?<![:,])(\s+|^){v}(?=\s*[\s.,!?;]|$)", rf"\1a certain {noun}") if is_identifier(value) else (r"$^", ""),
    ):
        found, times = re.subn(pattern, put, text, count=1)
        if times and value not in found and is_sentence(found := tidy(found), text):
            return found
    return None


def is_coordinated(text: str, value: str) -> bool:
    """Whether the value is listed with another identifier: "ORD-1 and ORD-2"."""
    v, joint = mark_value(value), r"(?:\s*,\s*|\s+(?:and|or|nor|with|to)\s+)"
    prefix = re.match(r"[A-Za-z]+[-_]?(?=\d)", value)
    other = rf"{re.escape(prefix[0])}\d[\w-]*" if prefix else r"[\w.+-]+@[\w.-]+" if "@" in value else r"\d{4,}"
    return re.search(rf"{v}{joint}{other}|{other}{joint}{v}", text) is not None


def is_place(text: str, pattern: str) -> bool:
    """Whether the value says where something is put: the sentence needs such a value."""
    return (
        re.search(rf"\b(?i:put|place|add|enter|wait|ask|look)\b[^.!?]*\s{PREPOSITIONS}\s+{pattern}", text) is not None
    )


def is_identifier(value: str) -> bool:
    """Whether the value is a code of letters and digits, such as ORD-20417."""
    return re.fullmatch(r"[A-Za-z]+[-_]?\d[\w-]*", value) is not None


def tidy(text: str) -> str:
    """One space between words; sentences begin with a capital."""
    text = re.sub(r"[ \t]{2,}", " ", text).strip()
    return re.sub(r"(^|[.!?]\s+)([a-z])(?![^\s,]*[@\d])", lambda found: found[1] + found[2].upper(), text)


def is_sentence(text: str, original: str) -> bool:
    """Whether a text has enough words, and no more places where a word seems to be missing than the original."""
    words = len(re.findall(r"[^\W\d_]{2,}", text))
    return words >= LEAST_WORDS and len(DANGLING.findall(text)) <= len(DANGLING.findall(original))


def choose_article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" else "a"
