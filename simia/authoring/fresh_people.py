"""Invented people and their places, by language: from Faker's tables of names and prompts/amplify/places.txt.

What Faker's generators return depends on earlier calls and on its version. So its tables are read once, sorted, and indexed by a
number: consecutive numbers give different people until every pair of a given and a family name was used. Faker was chosen over
mimesis, which has no Thai and no Vietnamese. It is imported when the first name is needed (0.1 s).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from math import gcd
from typing import Any

from anyascii import anyascii

from simia.prompts import read_lines

PLACES = "amplify/places.txt"
GOLDEN = 0.6180339887
MULTIPLIER = 2_654_435_761  # of Knuth's hash: groups must not follow the order of the seeds
# Locales of a language; people of English conversations come from many countries.
LOCALES = {
    "en": ("en_US", "en_US", "en_GB", "en_IN", "en_NG", "es_MX", "de_DE", "it_IT"),
    "zh": ("zh_CN",),
    "ja": ("ja_JP",),
    "ko": ("ko_KR",),
    "th": ("th_TH",),
    "ar": ("ar_AA",),
    "es": ("es_ES", "es_MX"),
    "fr": ("fr_FR",),
    "de": ("de_DE",),
    "pt": ("pt_BR", "pt_PT"),
    "vi": ("vi_VN",),
    "it": ("it_IT",),
    "nl": ("nl_NL",),
    "ru": ("ru_RU",),
    "uk": ("uk_UA",),
    "pl": ("pl_PL",),
    "tr": ("tr_TR",),
    "hi": ("hi_IN",),
    "id": ("id_ID",),
    "sv": ("sv_SE",),
}
DEFAULT = "en"
FAMILY_FIRST = {"zh", "ja", "ko", "vi"}
NO_SPACE = {"zh", "ko"}
UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
NAME = re.compile(r"[^\W\d_][^\d_.,()]*")

Names = tuple[tuple[str, str], ...]
"""Names with their Latin forms, in order."""


@dataclass(frozen=True, slots=True)
class Place:
    """A city. `postcode` and `phone` are those of the city, with # for any digit."""

    city: str
    region: str
    postcode: str
    phone: str


@dataclass(frozen=True, slots=True)
class Person:
    """An invented person. `handles`: given and family name in lower-case ASCII letters, for addresses and user ids."""

    first: str
    last: str
    full: str
    handles: tuple[str, str]

    @property
    def latin(self) -> Person:
        """The person with the name in Latin letters."""
        first, last = (handle.capitalize() for handle in self.handles)
        return Person(first, last, f"{first} {last}", self.handles)


def choose_person(language: str, number: int) -> Person:
    """Return the person of a number. Numbers in a row give different people until all pairs of names were used."""
    language = language if language in LOCALES else DEFAULT
    groups = load_names(language)
    firsts, lasts = groups[(number * MULTIPLIER >> 16) % len(groups)]
    at = scatter(number, len(firsts) * len(lasts))
    (first, latin_first), (last, latin_last) = firsts[at % len(firsts)], lasts[at // len(firsts)]
    space = "" if language in NO_SPACE else " "
    full = f"{last}{space}{first}" if language in FAMILY_FIRST else f"{first}{space}{last}"
    return Person(first, last, full, (latin_first, latin_last))


def choose_place(language: str, number: int) -> Place | None:
    """Return the place of a number; None for a language that has none."""
    places = load_places().get(language)
    return places[(number * MULTIPLIER >> 16) % len(places)] if places else None


def scatter(number: int, size: int) -> int:
    """Map a number to an index below `size`: neighbouring numbers get distant indices, `size` consecutive ones get each index once."""
    return number * find_step(size) % size


@cache
def find_step(size: int) -> int:
    """Return a step near the golden section of `size` that has no common divisor with it."""
    step = max(1, round(size * GOLDEN))
    while gcd(step, size) > 1:
        step += 1
    return step


@cache
def load_names(language: str) -> tuple[tuple[Names, Names], ...]:
    """Load (given names, family names) of each locale; two such pairs where women and men have different family names."""
    return tuple(pair for locale in LOCALES[language] for pair in read_locale(locale))


@cache
def read_locale(locale: str) -> tuple[tuple[Names, Names], ...]:
    table = import_module(f"faker.providers.person.{locale}").Provider
    if locale == "ja_JP":
        return ((read_pairs(table.first_name_pairs), read_pairs(table.last_name_pairs)),)
    if locale == "vi_VN":  # a middle name belongs to the given one
        given = (*table.first_names_female, *table.first_names_male, *table.first_names_unisex)
        both = (f"{middle} {name}" for middle in table.middle_names for name in given)
        return ((romanize(both), romanize(table.last_names)),)
    if hasattr(table, "last_names_female"):
        return (
            (romanize(table.first_names_female), romanize(table.last_names_female)),
            (romanize(table.first_names_male), romanize(table.last_names_male)),
        )
    return ((romanize(table.first_names), romanize(getattr(table, "unisex_last_names", table.last_names))),)


def romanize(names: Iterable[str]) -> Names:
    """Sort names and add the Latin form of each; names that `NAME` does not match are left out."""
    found = ((name, write_handle(name)) for name in sorted(set(names)) if NAME.fullmatch(name))
    return tuple((name, handle) for name, handle in found if handle)


def read_pairs(table: Any) -> Names:
    """Read Faker's Japanese names: written, spoken, Latin."""
    return tuple(sorted((written, write_handle(latin)) for written, _, latin in table))


def write_handle(name: str) -> str:
    """Write a name in lower-case ASCII letters."""
    return re.sub("[^a-z]", "", anyascii(name).lower())


def spell_handles(name: str) -> list[str]:
    """List the spellings of a name in lower-case ASCII letters: accents dropped, and then umlauts written out, as `oe` for `ö`."""
    forms = (name, unicodedata.normalize("NFC", name).lower().translate(UMLAUTS))
    return list(dict.fromkeys(filter(None, map(write_handle, forms))))


@cache
def load_places() -> dict[str, list[Place]]:
    """Load the places of each language."""
    places: dict[str, list[Place]] = {}
    for line in read_lines(PLACES):
        language, *rest = (part.strip() for part in line.split("|"))
        places.setdefault(language, []).append(Place(*rest))
    return places


def describe_source() -> str:
    """Return the library and version that names come from."""
    return f"Faker {metadata.version('Faker')}"
