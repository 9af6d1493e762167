"""Fresh values for an item's prompt, so that samples of one seed differ.

A model that sees one exemplar many times copies its values (a model of half a billion parameters nearly always does). Each item therefore
gets new values in place of those that the exemplar's user states and a call uses: identifiers, addresses, numbers, dates, people, places.
They have the same shape and belong to one invented person of the seed's language: name, e-mail address and user id agree, and so do city,
postcode and phone. They derive from the item's own number, not from a shared random stream, so an item is the same on every resume.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import orjson

from simia.amplification.seed_values import DATE, USER_ID, Kind, Slot, find_values
from simia.amplification.value_shapes import ValueShapes, renew_digits
from simia.authoring.fresh_people import Person, Place, choose_person, choose_place
from simia.trajectory import Trajectory

# Reserved for examples (RFC 2606), so that no address is anybody's.
DOMAINS = (
    "example.com", "example.org", "example.net", "mail.example", "post.example", "inbox.example", "webmail.example", "home.example",
    "mail.example.com", "mail.example.org", "mail.example.net", "team.example", "office.example", "family.example", "letters.example",
)  # fmt: skip
MOST_DAYS = 27
LEAST_DIGITS = 9  # of a telephone number with its area code
MOST_TRIES = 4
LARGEST = 10**12
RANGE = (0.6, 1.6)  # of the seed's number
NO_SHAPES = ValueShapes()
ANOTHER = 500_009  # added to a number to get another person, or another try


@dataclass(slots=True)
class Sampler:
    """The parameters that the values of one item share."""

    number: int
    language: str
    shapes: ValueShapes
    group: int
    rng: random.Random
    place: Place | None
    days: int

    def person(self, slot: Slot) -> Person:
        person = choose_person(self.language, self.number + ANOTHER * slot.person)
        return person.latin if isinstance(slot.value, str) and slot.value.isascii() else person


def render_fresh_values(seed: Trajectory, number: int, shapes: ValueShapes | None = None) -> str:
    """Write a line for the request, empty if the seed has nothing to vary. `number` is the item's random number."""
    values = choose_fresh_values(seed, number, shapes=shapes)
    # As JSON: a small model takes the full stop of a sentence for a part of the last value.
    return f"Values: {orjson.dumps(values).decode()}" if values else ""


def choose_fresh_values(
    seed: Trajectory,
    number: int,
    tools: Collection[str] | None = None,
    language: str = "",
    shapes: ValueShapes | None = None,
) -> dict[str, Any]:
    """Choose new values in place of those that the seed's user states. The result depends on the item's number alone.

    Args:
        seed: The exemplar.
        number: The item's random number. Consecutive numbers give different people and identifiers.
        tools: Names of tools; only values that one of them takes as an argument are chosen. None: the tools that the seed calls.
        language: ISO 639-1 code of the language of names and places; "": that of the seed.
        shapes: Shapes of identifiers, learnt from all seeds (`learn_shapes`); None: this seed's values alone.

    Returns:
        Argument name → new value, which the tools' schemas allow.
    """
    found = find_values(seed)
    if not found.slots:
        return {}
    wanted = found.called if tools is None else tools
    spoken = language or found.language
    rng = random.Random(number)
    place = choose_place(spoken, number)
    if place is not None and any(slot.value == place.city for slot in found.slots):
        place = choose_place(spoken, number + ANOTHER)
    shapes = shapes or NO_SHAPES
    sampler = Sampler(number, spoken, shapes, shapes.find_group(seed), rng, place, rng.randint(1, MOST_DAYS))
    fresh: dict[str, Any] = {}
    for slot in found.slots:
        schemas = [args[slot.name] for tool, args in found.schemas.items() if tool in wanted and slot.name in args]
        if not schemas or slot.name in fresh:
            continue
        for _ in range(MOST_TRIES):
            new = VARIANTS[slot.kind](slot, sampler)
            is_new = new is not None and (new != slot.value or slot.kind == "region")
            if is_new and all(each and each.valid(new) for each in schemas):
                fresh[slot.name] = new
                break
            sampler.number += ANOTHER  # only where a value happens to be the seed's own, or is out of bounds
        sampler.number = number
    return fresh


def vary_email(slot: Slot, sampler: Sampler) -> str:
    """Write an address of the person in the style of the seed's, or in another usual one."""
    first, last = sampler.person(slot).handles
    local = str(slot.value).partition("@")[0]
    marks = re.findall(r"[._-]", local)
    mark = marks[0] if marks else ""
    digits = sum(char.isdigit() for char in local)
    turn = sampler.number + slot.nth
    if not marks and slot.nth == 0 and len(local) < 9:
        local = (f"{first[0]}{last}", f"{first}{last[0]}")[turn % 2]
        digits = digits or 2
    else:
        local = (f"{first}{mark}{last}", f"{first}{mark}{last}", f"{last}{mark}{first}", f"{first[0]}{mark}{last}")[
            turn % 4
        ]
        digits = digits or 2 * (turn % 4 == 3 or len(local) < 6)
    tail = str(sampler.rng.randrange(10 ** (digits - 1), 10**digits)) if digits else ""
    return f"{local}{tail}@{DOMAINS[(turn + turn // len(DOMAINS)) % len(DOMAINS)]}"


def vary_user_id(slot: Slot, sampler: Sampler) -> str:
    """Write a user id of the person: mei_wilson_1792 becomes their names, with other digits."""
    first, last = sampler.person(slot).handles
    found = USER_ID.fullmatch(str(slot.value))
    assert found is not None  # `find_kind` has checked it
    one, mark, other, tail, digits = found.groups()
    names = [name.capitalize() if old[:1].isupper() else name for name, old in ((first, one), (last, other))]
    return f"{names[0]}{mark}{names[1]}{tail}{renew_digits(digits, sampler.number, sampler.rng)}"


def vary_phone(slot: Slot, sampler: Sampler) -> str | None:
    """Return a number of the place with the seed's country code and marks; one of the seed's shape where their lengths differ much.
    None for a number of letters (+1 CALL-NOW)."""
    text = str(slot.value)
    if sampler.place is None:
        return renew_phone(text, sampler)
    country = re.match(r"\+\d{1,3}[ -]", text)
    head, rest = (country[0], text[country.end() :]) if country else ("", text)
    if not any(char.isdigit() for char in rest):
        return None
    number = fill(sampler.place.phone, sampler.rng)
    (area, *_), (own_area, *_) = re.findall(r"\d+", rest), re.findall(r"\d+", number)
    digits, own_digits = re.sub(r"\D", "", rest), re.sub(r"\D", "", number)
    if len(area) == len(own_area) and len(digits) == len(own_digits):
        pour = iter(own_digits)
        return head + "".join(next(pour) if char.isdigit() else char for char in rest)
    if abs(len(digits) - len(own_digits)) > 2:
        return renew_phone(text, sampler)
    marks = re.findall(r"\D", rest)
    return head + re.sub(r"[ -]", marks[-1] if marks else "", number)


def renew_phone(text: str, sampler: Sampler) -> str:
    """Return a number with other digits. A leading 0 and the digit after it stay: they say what kind of number it is, such as 05 of a mobile."""
    kept = 2 if re.match(r"0[1-9]", text) and sum(map(str.isdigit, text)) >= LEAST_DIGITS else 0
    return text[:kept] + renew_digits(text[kept:], sampler.number, sampler.rng)


def vary_postcode(slot: Slot, sampler: Sampler) -> str:
    """Return a postcode of the place where it has the seed's shape; else another of that shape."""
    text = str(slot.value)
    if sampler.place is not None and mark_characters(sampler.place.postcode) == mark_characters(text):
        return fill(sampler.place.postcode, sampler.rng)
    capitals = re.sub("[A-Z]", lambda _: sampler.rng.choice("ABCDEFGHJKLMNPRSTVWXY"), text)
    return renew_digits(capitals, sampler.number, sampler.rng)


def mark_characters(text: str) -> str:
    """Return the shape of a postcode: 0 for a digit or #, A for a letter."""
    return re.sub("[A-Za-z]", "A", re.sub(r"[\d#]", "0", text))


def fill(pattern: str, rng: random.Random) -> str:
    return re.sub("#", lambda _: str(rng.randrange(10)), pattern)


def vary_date(slot: Slot, sampler: Sampler) -> str | None:
    return shift_dates(str(slot.value), sampler.days)


def vary_code(slot: Slot, sampler: Sampler) -> str | None:
    """Return another identifier of the shape that all seeds have. Dates within it, such as in a file's name, stay dates."""
    text = str(slot.value)
    if not any(char.isdigit() for char in text) and not sampler.shapes.is_code(sampler.group, slot.name, text):
        return None
    if DATE.search(text):
        return shift_dates(text, sampler.days)
    number = sampler.number + zlib.crc32(slot.name.encode())
    return sampler.shapes.vary(sampler.group, slot.name, text, number, sampler.rng)


def vary_number(slot: Slot, sampler: Sampler) -> Any:
    """Return a number of a similar size, as round as the seed's."""
    value, rng = slot.value, sampler.rng
    if abs(value) > LARGEST:
        return None
    if isinstance(value, int) and 0 <= value < 10:
        return rng.choice([other for other in range(1, max(4, value) + 1) if other != value])
    if "year" in slot.name.lower() and 1900 < value < 2100:
        return value + rng.choice((-3, -2, -1, 1, 2))
    text = str(value)
    decimals = len(text.partition(".")[2]) if isinstance(value, float) else 0
    # The unit of the last significant digit (0.01 for 19.99); half of it for a number with one such digit, such as 100.
    step = 10.0**-decimals if decimals else 10.0 ** (len(text) - len(text.rstrip("0")))
    if step > 1 and len(text.strip("-0")) == 1:
        step /= 2
    new = round(rng.uniform(*RANGE) * value / step) * step
    return type(value)(round(new, decimals))


def shift_dates(text: str, days: int) -> str | None:
    """Move each date (2025-09-30) in a text by some days, and each month (2025-09) by one to three."""

    def shift(found: re.Match[str]) -> str:
        day = date.fromisoformat(found[0] if len(found[0]) == 10 else f"{found[0]}-15")
        return (day + timedelta(days=days if len(found[0]) == 10 else 30 * (1 + days % 3))).isoformat()[: len(found[0])]

    try:
        return DATE.sub(shift, text)
    except (ValueError, OverflowError):
        return None


VARIANTS: dict[Kind, Callable[[Slot, Sampler], Any]] = {
    "name": lambda slot, sampler: sampler.person(slot).full,
    "first": lambda slot, sampler: sampler.person(slot).first,
    "last": lambda slot, sampler: sampler.person(slot).last,
    "email": vary_email,
    "user": vary_user_id,
    "phone": vary_phone,
    "postcode": vary_postcode,
    "city": lambda slot, sampler: sampler.place and sampler.place.city,
    "region": lambda slot, sampler: sampler.place and sampler.place.region,
    "date": vary_date,
    "code": vary_code,
    "number": vary_number,
}
