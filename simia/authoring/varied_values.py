"""Choose new names, mail addresses and identifiers for a pack: the mapping of `simia pack vary`.

Identifiers are letters and digits such as `ORD-20417`: keys of the state's tables, and values of columns with the name of an identifier.
Identifiers of one form keep their order, so that code which sorts them gives the same order. Names are those of people: in rows with a
name and a mail address, in rows of tables such as `members` or `staff`, or in columns such as `guest_name`. Each part of a name is replaced
on its own, also in the part of mail addresses before the @.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from simia.authoring.fresh_people import choose_person, spell_handles
from simia.pack import Pack
from simia.quality.mentions import contains_phrase

IDENTIFIER = re.compile(r"(?=.*[A-Za-z])[A-Za-z]{1,10}([-_#][A-Za-z]{1,6})?[-_#]?\d{2,}")
IDENTIFIER_COLUMN = re.compile(r"(^|_)(ids?|code|number|ref)$")
DIGITS = re.compile(r"\d+$")
MAIL = re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+")
INITIAL = re.compile(r"([a-z])[._-]([a-z]+)$")
NAME = re.compile(r"[^\W\d_][\w'’.-]*( [^\W\d_][\w'’.-]*){1,3}")
PERSON_COLUMN = re.compile(
    r"(^|_)(first|last|full|given|family|customer|guest|user|passenger|employee|patient|member|contact|owner|person|applicant)_?name$"
)
PERSON_TABLE = re.compile(
    r"(^|_)(members?|guests?|customers?|users?|staff|employees?|people|persons?|patients?|contacts?|drivers?|owners?|students?|pupils?|teachers?"
    r"|candidates?|applicants?|borrowers?|tenants?|volunteers?|passengers?|residents?|clients?)$"
)
PARTICLES = "(?:de|del|van|vande|vander|der|den|ter|le|la|di|da|von|o|d)?"
IN_CODE = "the pack's code names it"
FEWEST_LETTERS = 3
TRIES = 50


@dataclass(slots=True)
class ValueMapping:
    """Old value → new value, and the old values that are not replaced, each with the reason."""

    values: dict[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    def compile(self) -> re.Pattern[str] | None:
        """An expression that finds every old value as a whole word, mail addresses in any case."""
        if not self.values:
            return None
        longest = sorted(self.values, key=lambda each: (-len(each), each))
        forms = [f"(?i:{re.escape(each)})" if "@" in each else re.escape(each) for each in longest]
        return re.compile(rf"(?<![\w@])({'|'.join(forms)})(?![\w@])")


def collect_identifiers(state: Any) -> set[str]:
    """The identifiers of a state."""
    found: set[str] = set()
    if isinstance(state, dict):
        for key, each in state.items():
            if IDENTIFIER.fullmatch(key):
                found.add(key)
            texts = [each] if isinstance(each, str) else each if isinstance(each, list) else []
            if IDENTIFIER_COLUMN.search(key):
                found |= {text for text in texts if isinstance(text, str) and IDENTIFIER.fullmatch(text)}
            found |= collect_identifiers(each)
    elif isinstance(state, list):
        for each in state:
            found |= collect_identifiers(each)
    return found


def map_identifiers(identifiers: Iterable[str], taken: set[str], rng: random.Random) -> dict[str, str]:
    """Map identifiers to new ones of the same form and in the same order; forms with too few free numbers are left out.

    `taken`: texts of the pack, of which none becomes a new identifier.
    """
    forms: dict[tuple[str, int], list[str]] = defaultdict(list)
    for each in sorted(identifiers):
        digits = DIGITS.search(each)
        if digits:
            forms[each[: digits.start()], len(digits[0])].append(each)
    found: dict[str, str] = {}
    for (prefix, size), old in sorted(forms.items()):
        if size > 9:
            continue
        least = 10 ** (size - 1) if all(each[len(prefix)] != "0" for each in old) else 0
        many = 10**size - least
        if many < 3 * len(old):
            continue
        for _ in range(TRIES):
            numbers = sorted(rng.sample(range(least, 10**size), len(old)))
            new = [f"{prefix}{number:0{size}d}" for number in numbers]
            if taken.isdisjoint(new):
                found |= dict(zip(old, new, strict=True))
                break
    return found


def collect_people(state: Any, above: int = 0) -> tuple[set[str], set[str]]:
    """(full names, mail addresses) of the people of a state. `above`: levels below this one whose field `name` is a person's."""
    names: set[str] = set()
    mails: set[str] = set()
    inner: list[tuple[Any, int]] = []
    if isinstance(state, dict):
        own = [each for each in state.values() if isinstance(each, str) and MAIL.fullmatch(each)]
        mails.update(own)
        for key, each in state.items():
            person = PERSON_COLUMN.search(key) or (key == "name" and (own or above))
            if isinstance(each, str) and NAME.fullmatch(each) and person:
                names.add(each)
            inner.append((each, 2 if PERSON_TABLE.search(key) else above - 1))
    elif isinstance(state, list):
        inner = [(each, above - 1) for each in state]
    for each, levels in inner:
        more, others = collect_people(each, max(0, levels))
        names |= more
        mails |= others
    return names, mails


def map_people(names: Iterable[str], mails: Iterable[str], words: set[str], rng: random.Random) -> ValueMapping:
    """Map each part of people's names to a part of another person's name, and change mail addresses accordingly.

    `words`: the words that the pack writes in lower case. A name that is also such a word is not replaced; the mapping gives the
    reason.
    """
    found = ValueMapping()
    parts = sorted({part for name in names for part in name.split(" ")})
    known = {part.casefold() for part in parts} | words
    firsts = {name.split(" ")[0] for name in names}
    number = rng.randrange(1_000_000)
    handles: dict[str, str] = {}
    for part in parts:
        if len(part) < FEWEST_LETTERS or not part[:1].isupper():
            continue  # de, van, Le
        if part.casefold() in words:
            found.kept[part] = "it is a word of the pack's texts too"
            continue
        for _ in range(TRIES):
            number += 1
            person = choose_person("en", number).latin
            new = person.first if part in firsts else person.last
            if new.casefold() not in known:
                break
        else:
            continue
        known.add(new.casefold())
        found.values[part] = new
        handles |= dict.fromkeys(spell_handles(part) or [part.casefold()], new.casefold())
    initials = map_initials(names, found.values)
    for mail in sorted(mails):
        local, _, host = mail.partition("@")
        new = replace_handles(local, handles)
        if (first := INITIAL.match(local)) is not None and (first[1], first[2]) in initials and new != local:
            new = initials[first[1], first[2]] + new[1:]
        if new == local:
            found.kept[mail] = "its name is none of the people's that are replaced"
        else:
            found.values[mail] = f"{new}@{host}"
    return found


def map_initials(names: Iterable[str], values: Mapping[str, str]) -> dict[tuple[str, str], str]:
    """Return (initial, last name), as in mail addresses → new initial, for people whose first and last names are both replaced."""
    found: dict[tuple[str, str], str] = {}
    for name in names:
        first, *_, last = name.split(" ")
        if first in values and last in values:
            for handle in spell_handles(last) or [last.casefold()]:
                found[first[:1].casefold(), handle] = values[first][:1].casefold()
    return found


def replace_handles(local: str, handles: Mapping[str, str]) -> str:
    """Replace names in the part of a mail address before the `@`; two names may follow one another without a separator."""
    for old in sorted(handles, key=lambda each: (-len(each), each)):
        if old and (found := re.search(rf"(?<![a-z]){PARTICLES}{re.escape(old)}(?![a-z])", local)):
            local = f"{local[: found.start()]}\0{handles[old]}\0{local[found.end() :]}"
    return local.replace("\0", "")


def list_words(texts: Iterable[str]) -> set[str]:
    """The words that occur in lower case in texts; mail addresses are left out."""
    return {
        word for text in texts for word in re.findall(r"(?<![\w@.])[^\W\d_A-Z][^\W\d_]+(?![\w@])", MAIL.sub(" ", text))
    }


def replace_values(value: Any, pattern: re.Pattern[str] | None, values: Mapping[str, str]) -> Any:
    """A JSON value with every old value replaced in its texts and keys."""
    if pattern is None:
        return value
    if isinstance(value, dict):
        return {
            replace_values(key, pattern, values): replace_values(each, pattern, values) for key, each in value.items()
        }
    if isinstance(value, list):
        return [replace_values(each, pattern, values) for each in value]
    if not isinstance(value, str):
        return value
    return pattern.sub(lambda found: values.get(found[0]) or values[found[0].casefold()], value)


def is_in_files(pack: Pack, value: str) -> bool:
    """Whether a text file of the pack, such as pack.yaml or a description, contains the value."""
    assert pack.root is not None
    files = (
        path for path in pack.root.rglob("*") if path.suffix in (".yaml", ".json", ".jsonl", ".md") and path.is_file()
    )
    return any(contains_phrase(value, path.read_text(encoding="utf-8")) for path in files)


def split_by_code(values: Collection[str], code: str, mapping: ValueMapping) -> set[str]:
    """Return the values that do not occur in the code; the mapping notes that the others are not replaced."""
    named = {each for each in values if contains_phrase(each, code)}
    mapping.kept |= dict.fromkeys(sorted(named), IN_CODE)
    return set(values) - named
