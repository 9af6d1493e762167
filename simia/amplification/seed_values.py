"""Find the values of a seed that can vary (its user states them and a call uses them), with their kinds and the persons they belong to."""

from __future__ import annotations

import re
import unicodedata
import weakref
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from simia.authoring.fresh_people import write_handle
from simia.quality.language import find_trajectory_languages
from simia.quality.truth.quantities import find_quantities
from simia.tool import CompiledSchema, SchemaError, compile_schema
from simia.trajectory import Trajectory

Kind = Literal[
    "name", "first", "last", "email", "user", "phone", "postcode", "city", "region", "date", "code", "number"
]  # fmt: skip
EMAIL = re.compile(r"([^@\s]+)@([^@\s]+)")
CODE = re.compile(r"(?=.*\d)[\w#./-]*\d[\w#./-]*")
DATE = re.compile(r"(?<!\d)(?:19|20)\d\d-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?(?!\d)")
WHOLE_DATE = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")
DOTTED_DATE = re.compile(r"(?<![\d.])(\d{1,2})\.[ ]?(\d{1,2})\.[ ]?(\d{4})(?!\d)")  # 19.03.2026
DAY, MONTH, YEAR = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])", r"(?:19|20)\d\d"
BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
# Codes whose other digits would be no date and no address of the Internet: 19.03.2026, 03/19/2026, 2026/03/19, 20260319, 192.168.1.10.
NO_CODE = re.compile(
    rf"{DAY}([./-]){MONTH}\1{YEAR}|{MONTH}([./-]){DAY}\2{YEAR}|{YEAR}([./]){MONTH}\3{DAY}|{YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])"
    rf"|(?:{BYTE}\.){{3}}{BYTE}(?:/\d\d?)?"
)
FULL_NAME = re.compile(r"[^\W\d_][^\W\d_'’.-]*(?:[ '’.-]+[^\W\d_]+)+")
OTHER_NAME = re.compile(r"[^\x00-\x7f][^\d_@,;:!?()\"]{1,39}")  # 王小明, สมหญิง ใจดี
USER_ID = re.compile(r"([A-Za-z]+)([._-]?)([A-Za-z]*)([._-]?)(\d*)")
# Parts of an argument's name.
NO_PERSON_WORDS = (
    "file folder sheet document product item event city hotel company organisation organization team tool app room shop store brand "
    "airline table column field category album song course restaurant project calendar street country state"
)
NO_PERSON = frozenset(NO_PERSON_WORDS.split())
FIRST, LAST = {"first", "given", "fore", "forename"}, {"last", "family", "sur", "surname"}
POSTCODE, PHONES = {"zip", "zipcode", "postcode", "postal", "plz"}, {"phone", "mobile", "telephone", "tel"}
CITY, REGION = {"city", "town"}, {"state", "province", "prefecture", "region"}
USERS = {"user", "username", "login", "account", "customer", "member", "handle", "passenger", "guest"}
Validators = dict[str, CompiledSchema | None]


@dataclass(slots=True)
class Slot:
    """A value of a seed that its user states and a call uses. `person`: number of its owner; `nth`: index among the owner's values of its kind."""

    name: str
    value: Any
    kind: Kind
    person: int = 0
    nth: int = 0


@dataclass(slots=True)
class SeedPerson:
    """A person of a seed: words of the name or address, and the kinds of values known."""

    words: set[str] = field(default_factory=set)
    kinds: list[Kind] = field(default_factory=list)


@dataclass(slots=True)
class SeedValues:
    """The values that can vary in a seed, found once for all its items."""

    slots: list[Slot]
    language: str
    called: frozenset[str]
    schemas: dict[str, Validators]  # tool → argument → its schema


_FOUND: dict[int, tuple[weakref.ref[Trajectory], SeedValues]] = {}  # by the seed's id()


def find_values(seed: Trajectory) -> SeedValues:
    """Return the values that can vary in a seed. The result is cached as long as the seed exists."""
    key = id(seed)
    known = _FOUND.get(key)
    if known is None or known[0]() is not seed:
        _FOUND[key] = known = (weakref.ref(seed, lambda _: _FOUND.pop(key, None)), read_values(seed))
    return known[1]


def read_values(seed: Trajectory) -> SeedValues:
    """Find the values that the user states and a call uses, their owners, and the schemas of their arguments."""
    text = " ".join(message.text for message in seed.messages if message.role == "user")
    said, dates = normalise_text(text), find_dates(text)
    slots: list[Slot] = []
    for _, _, call in seed.calls():
        for name, value in (call.arguments or {}).items():
            plain = isinstance(value, str | int | float) and not isinstance(value, bool)
            is_new = plain and not any(slot.name == name for slot in slots)
            if not is_new or (kind := find_kind(name, value)) is None:
                continue
            if normalise_text(str(value)) in said or (kind == "date" and says_dates(str(value), dates)):
                slots.append(Slot(name, value, kind))
    assign_people(slots)
    spoken = any(slot.kind not in ("date", "code", "number") for slot in slots)
    languages = sorted(find_trajectory_languages(seed)) if spoken else []
    schemas = {tool.name: read_schemas(tool.parameters, {slot.name for slot in slots}) for tool in seed.tools}
    called = frozenset(call.name for _, _, call in seed.calls())
    # A seed of mixed languages has the names of the one that is not English.
    language = next((each for each in languages if each != "en"), languages[0] if languages else "")
    return SeedValues(slots, language, called, {tool: args for tool, args in schemas.items() if args})


def normalise_text(text: str) -> str:
    """Return a text with ASCII for full-width characters, and without the commas of numbers."""
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).replace(",", "")


def find_dates(text: str) -> set[tuple[int, int, int]]:
    """Return all readings of the dates of a text as (year or 0, month, day): March 19, 2026年3月19日, 19.03.2026, 3/19/2026."""
    text = unicodedata.normalize("NFKC", text)
    dates = {(int(year), int(month), int(day)) for day, month, year in DOTTED_DATE.findall(text)}
    return dates.union(*(each.dates for each in find_quantities(text) if each.kind == "date"))


def says_dates(value: str, dates: Collection[tuple[int, int, int]]) -> bool:
    """Whether each date of a value is among the dates, which may lack the year."""
    days = [(int(year), int(month), int(day)) for year, month, day in WHOLE_DATE.findall(value)]
    return bool(days) and all(day in dates or (0, *day[1:]) in dates for day in days)


def read_schemas(parameters: dict[str, Any], names: set[str]) -> Validators:
    """Compile the schemas of these arguments. None: a schema that cannot be read, which allows nothing."""
    found: Validators = {}
    for name, schema in (parameters.get("properties") or {}).items():
        if name in names:
            try:
                found[name] = compile_schema(schema) if isinstance(schema, dict) else None
            except SchemaError:
                found[name] = None
    return found


def find_kind(name: str, value: Any) -> Kind | None:
    """Return the kind of a value, by the name of its argument and its form; None for free text."""
    if isinstance(value, int | float):
        return "number"
    parts = set(re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()))
    text = str(value)
    if EMAIL.fullmatch(text):
        return "email"
    for kind, words in (("postcode", POSTCODE), ("phone", PHONES)):
        if parts & words and any(char.isdigit() for char in text):
            return kind  # type: ignore[return-value]
    if not any(char.isdigit() for char in text):
        return find_name_kind(parts, text)
    if parts & USERS and (found := USER_ID.fullmatch(text)) and found[3] and found[1].lower() not in USERS:
        return "user"
    if DATE.match(text):
        return "date"
    return "code" if CODE.fullmatch(text) and not NO_CODE.fullmatch(text) else None


def find_name_kind(parts: set[str], text: str) -> Kind | None:
    """Return the kind of a value without a digit: a name of a person or place, a code of capitals, or None."""
    if parts & CITY and "name" not in parts - CITY:
        return "city"
    if parts & REGION and len(text) > 1:
        return "region"
    if parts & NO_PERSON:
        return None
    named = bool(parts & {"name", "fullname"})
    if parts & FIRST and (named or len(parts) == 1):
        return "first"
    if parts & LAST and (named or len(parts) == 1):
        return "last"
    is_name = text[:1].isupper() and FULL_NAME.fullmatch(text) and len(text.split()) < 5
    if named and (is_name or OTHER_NAME.fullmatch(text)):
        return "name"
    return "code" if text.isascii() and text.isupper() and text.isalnum() and len(text) > 3 else None


def assign_people(slots: list[Slot]) -> None:
    """Assign each value to a person: the one whose name it contains, else the first one without a value of its kind, else a new one."""
    people: list[SeedPerson] = []
    for slot in sorted(slots, key=lambda slot: slot.kind in ("email", "user")):  # names first: addresses contain them
        if slot.kind not in ("name", "first", "last", "email", "user", "phone"):
            continue
        words = split_name_words(str(slot.value)) if slot.kind != "phone" else set()
        owner = next((each for each in people if shares_word(each.words, words)), None)
        owner = owner or next((each for each in people if slot.kind not in each.kinds), None)
        if owner is None:
            people.append(owner := SeedPerson())
        slot.person, slot.nth = people.index(owner), owner.kinds.count(slot.kind)
        owner.kinds.append(slot.kind)
        owner.words |= words


def split_name_words(text: str) -> set[str]:
    """Return the words of a name or of the local part of an address, in ASCII letters."""
    return {word for part in re.split(r"[\W\d_]+", text.partition("@")[0]) if len(word := write_handle(part)) > 2}


def shares_word(some: Collection[str], others: Collection[str]) -> bool:
    return any(one in other or other in one for one in some for other in others)
