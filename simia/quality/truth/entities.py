"""Results against their calls and against earlier results: a result is about the entity that its call named, and does not
contradict an earlier one unless a call between may have changed it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from simia.errors import Code, Issue
from simia.json_values import is_number, iterate_objects
from simia.quality.entity_ledger import (
    KEY,
    MISSING,
    are_compatible,
    extract_noun,
    flatten_fields,
    has_key,
    is_scalar,
    iterate_scalars,
    list_entity_rows,
    list_scalars,
)
from simia.quality.grounding import looks_like_identifier
from simia.quality.tool_effects import split_tool_name
from simia.quality.truth.changing_fields import chooses_anew, goes_on, is_fleeting, reads_live_values
from simia.quality.truth.facts import Step, TruthView
from simia.quality.truth.identifiers import make_shape

NAMED = re.compile(
    r"(?:^|_)(?:no|number|phone|sku|card|account|barcode|locator|reference|code|isbn|username|symbol|ticker|file|filename|path)$",
    re.I,
)
# What an entity keeps when another part of it is changed.
STABLE = re.compile(
    r"(?:^|_)(?:depart|arrive|departure|arrival|start|end|title|name|email|phone|birth|author|brand|from|to|origin|destination|flight|train_no|bus_no|ordered_on|created_at|per_day|per_person|rate)(?:$|_)|_of_birth$",
    re.I,
)
CODE = re.compile(r"[A-Z]{1,6}[-_]?\d{3,}")
SERVICE = re.compile(r"^(?:train|flight|bus|ferry|performance|screening|showing|sailing)(?:_(?:no|number|id|code))?$")
PLACES = re.compile(r"^(?:from|to|origin|destination|station|stop)(?:_|$)|_(?:from|to|station|stop|city|airport)$")
TIMES = re.compile(r"^(?:depart|arriv|start)")
CLOCK = re.compile(r"\d{1,2}:\d\d")
LASTING = re.compile(
    r"(?:^|_)(?:depart|arrive|departure|arrival|title|name|birth|author|brand|origin|destination|model|memory|serial|warranty|manufacturer|isbn)(?:$|_)",
    re.I,
)
CHANGES = frozenset(
    [
        "change",
        "update",
        "modify",
        "move",
        "reschedule",
        "edit",
        "set",
        "rebook",
        "exchange",
        "replace",
        "correct",
        "switch",
        "postpone",
        "rename",
        "convert",
        "cancel",
    ]
)
TITLE = ("title", "name", "summary", "subject")
START = ("start", "start_time", "date", "begin")
MAKES = frozenset(
    [
        "create",
        "add",
        "make",
        "book",
        "reply",
        "forward",
        "copy",
        "duplicate",
        "exchange",
        "send",
        "clone",
        "place",
        "order",
        "reserve",
        "rebook",
        "split",
        "merge",
        "transfer",
        "move",
    ]
)
PLAIN = re.compile(r"[\W_]+")
PART = re.compile(
    r"(?:^|_)(?:amount|quantity|qty|count|balance|total|status|date|price|fare|cost|fee|type|rate|role|source)(?:$|_)|^name$",
    re.I,
)
NESTED = 6


def find_wrong_entities(facts: TruthView) -> Iterator[Issue]:
    """Report a result about another entity than its call named."""
    for step in facts.steps:
        if step.failed or step.result is None or not step.call.arguments:
            continue
        if step.writes is not False and not MAKES.isdisjoint(split_tool_name(step.call.name)):
            continue  # the result's identifier can be that of the new object
        for name, value in step.arguments.items():
            if not isinstance(value, str | int) or isinstance(value, bool):
                continue
            told = find_field(step, name)
            if (
                not is_entity_name(name)
                and not is_other_code(value, told)
                and not is_other_choice(facts, step, name, told)
            ):
                continue
            if (
                told is None
                or is_same(value, told)
                or told in step.arguments.values()
                or normalize(value) in {normalize(each) for each in iterate_scalars(step.result)}
            ):
                continue
            detail = f"{step.call.name} was asked about {name} {value!r}, and the result is about {told!r}"
            yield Issue(code=Code.WRONG_ENTITY, where=f"messages[{step.at}]", detail=detail[:300])
            return


def is_other_code(value: Any, told: Any) -> bool:
    """Return whether two values are codes of one shape with other digits: OL-2291 and OL-2219."""
    if not isinstance(value, str) or not isinstance(told, str) or not CODE.fullmatch(value):
        return False
    return make_shape(value) == make_shape(told)


def is_other_choice(facts: TruthView, step: Step, name: str, told: Any) -> bool:
    """Return whether the schema of a reading call's argument lists the result's value as another choice, as with rooms."""
    if step.writes is not False or not isinstance(told, str):
        return False
    tool = next((each for each in facts.t.tools if each.name == step.call.name), None)
    properties: Any = tool.parameters.get("properties") if tool is not None else None
    schema = properties.get(name) if isinstance(properties, dict) else None
    choices = schema.get("enum") if isinstance(schema, dict) else None
    return isinstance(choices, list) and told in choices and step.arguments[name] in choices


@lru_cache(maxsize=4096)
def is_entity_name(name: str) -> bool:
    """Return whether an argument names an entity: an identifier, a number of one, a phone number, a file."""
    return NAMED.search(name) is not None or looks_like_identifier(name, {"type": "string"})


def find_field(step: Step, name: str) -> Any:
    """Return the result's own value of a field: at the top, or in the only object that it holds."""
    value = step.result
    for _ in range(NESTED):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict):
            return None
        if is_scalar(value.get(name)) and value.get(name) is not None:
            return value[name]
        if name.endswith("_id") and is_scalar(value.get("id")) and value.get("id") is not None and not step.writes:
            return value["id"] if name[:-3] in split_tool_name(step.call.name) else None
        inner = [each for each in value.values() if isinstance(each, dict)]
        if len(inner) != 1:
            return None
        value = inner[0]
    return None


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values name the same thing: signs and letter-case do not count, and one may be a part of the other."""
    a, b = normalize(one), normalize(other)
    return not a or not b or a == b or a in b or b in a


def normalize(value: Any) -> str:
    return PLAIN.sub("", str(value)).lower()


def find_contradicting_results(facts: TruthView) -> Iterator[Issue]:
    """Report a result that says otherwise of an entity than an earlier one did, with no change between."""
    steps = [step for step in facts.steps if step.result is not None or MISSING.search(step.text)]
    if len(steps) < 2:
        return
    if sum(step.writes is False for step in steps) < 2:
        return
    entities: dict[int, list[tuple[str, str, dict[str, Any], bool]]] = {}
    may_be_dated = 0
    for step in steps:
        if not step.failed:
            shapes: set[tuple[str, ...]] = set()
            entities[id(step)] = list_entities(step, shapes)
            may_be_dated += step.writes is False and any(all(select_title_and_start(names)) for names in shapes)
    places = Counter((table, key) for rows in entities.values() for table, key, _, _ in rows)
    repeated = {place for place, count in places.items() if count > 1}  # what occurs once has nothing to contradict
    known: dict[tuple[str, str], dict[str, Any]] = {}
    answers: dict[str, Step] = {}
    dated: dict[tuple[str, str], dict[str, Any]] = {}
    lasting: dict[str, Step] = {}
    departures: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for step in steps:
        same = f"{step.call.name} {step.arguments!r}"
        before = answers.get(same)
        if step.writes is not False:
            if not step.failed:
                is_plain = step.writes is True and CHANGES.isdisjoint(split_tool_name(step.call.name))
                lasting = lasting | answers if is_plain else {}
            forget(known, answers, step)
            words = set(split_tool_name(step.call.name))
            if step.writes is None or not words.isdisjoint(CHANGES):
                dated.clear()
        elif before is not None and MISSING.search(step.text) and not before.failed and step.failed:
            yield make_contradiction_issue(step, f"{step.call.name} found before what is missing now")
            return
        if step.failed:
            continue
        is_live = reads_live_values(step.call.name)
        if before is not None and (change := compare_answers(before.result, step.result, is_live=is_live)):
            yield make_contradiction_issue(step, f"{change}, for the same call")
            return
        if same in lasting and (
            change := compare_answers(pick_lasting(lasting[same].result), pick_lasting(step.result))
        ):
            yield make_contradiction_issue(step, f"{change}, for the same call")
            return
        if step.writes is False and not chooses_anew(step.call.name):
            answers[same] = step
        if step.writes is not False:
            departures.clear()
        for service, now in list_departures(step) if step.writes is False else ():
            for earlier in departures.setdefault(service, []):
                if change := compare_departures(earlier, now):
                    yield make_contradiction_issue(step, f"{service[1]}: {change}")
                    return
            departures[service].append(now)
        rows = list_dated(step) if may_be_dated > 1 and step.writes is False else {}
        for place, now in rows.items():
            if place in dated and (change := compare_answers(dated[place], now)):
                yield make_contradiction_issue(step, f"{place[0]!r}: {change}")
                return
        dated |= rows
        for table, key, shown, is_part in entities[id(step)] if repeated else ():
            if (table, key) not in repeated:
                continue
            row = known.setdefault((table, key), {})
            for name, value in flatten_fields(shown).items():
                if is_part and PART.search(name):
                    continue
                if step.writes is False and name in row and differs(name, row[name], value, is_live=is_live):
                    yield make_contradiction_issue(
                        step, f"{name} of {key!r} was {row[name]!r} before and is {value!r} now"
                    )
                    return
                row[name] = value


def list_entities(step: Step, shapes: set[tuple[str, ...]]) -> list[tuple[str, str, dict[str, Any], bool]]:
    """Return the entities of a result as (table, key, object, whether it is a part of another one: an item of an order)."""
    found = [each for each in list_entity_rows(step.result, extract_noun(step.call.name), shapes) if each[3] is None]
    whole = isinstance(step.result, dict) and has_key(step.result)
    return [(table, key, row, whole and at > 0) for at, (table, key, row, _) in enumerate(found)]


def pick_lasting(result: Any) -> Any:
    """Return the fields of a result that no call changes which only adds something: model, memory, title."""
    if not isinstance(result, dict):
        return None
    return {name: value for name, value in result.items() if is_scalar(value) and LASTING.search(name)}


def compare_answers(before: Any, now: Any, name: str = "", *, is_live: bool = False) -> str | None:
    """Describe the first value of the same call's result that has changed; lists of another length are not compared.
    `is_live`: the tool reads what changes by itself."""
    if isinstance(before, dict) and isinstance(now, dict):
        return next(
            (
                found
                for each in sorted(before.keys() & now.keys())
                if (found := compare_answers(before[each], now[each], each, is_live=is_live))
            ),
            None,
        )
    if isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            return None
        pairs = zip(before, now, strict=True)
        return next((found for a, b in pairs if (found := compare_answers(a, b, name, is_live=is_live))), None)
    if is_scalar(before) and is_scalar(now) and name and differs(name, before, now, is_live=is_live):
        return f"{name} was {before!r} before and is {now!r} now"
    return None


def list_dated(step: Step) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows that have a title and a day, by both; those that occur twice are left out."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    twice = set()
    for held in iterate_objects(step.result):
        titles, starts = select_title_and_start(tuple(held))
        if not titles or not starts:
            continue
        title = next((held[each] for each in titles if isinstance(held[each], str)), None)
        start = next((held[each] for each in starts if isinstance(held[each], str)), None)
        if title and start and len(start) > 10:
            key = (title, start[:10])
            twice |= {key} if key in found else set()
            found[key] = held
    return {key: row for key, row in found.items() if key not in twice}


@lru_cache(maxsize=4096)
def select_title_and_start(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Return the fields of a row that can be its title and its start; none of a row with an identifier."""
    if any(KEY.search(name) for name in names):
        return [], []
    return [each for each in TITLE if each in names], [each for each in START if each in names]


def list_departures(step: Step) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Yield (field and number of a train, flight or performance; the row's fields with those around it and of the call)."""
    waiting = [(step.result, dict(step.arguments))]
    while waiting:
        held, around = waiting.pop()
        if isinstance(held, list):
            waiting += [(each, around) for each in held]
        elif isinstance(held, dict):
            fields = around | {name: each for name, each in held.items() if is_scalar(each)}
            waiting += [(each, fields) for each in held.values() if isinstance(each, dict | list)]
            for name, value in held.items():
                if isinstance(value, str) and SERVICE.search(name):
                    yield (name, value), fields


def compare_departures(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """Describe another time of the same service on the same day between the same places; None where one of these is not known."""
    days = [{row[name] for name in ("day", "date", "departure_date") if name in row} for row in (before, now)]
    if len(days[0]) != 1 or days[0] != days[1]:
        return None
    if any(PLACES.search(name) and before.get(name) != now.get(name) for name in before.keys() | now.keys()):
        return None
    for name in sorted(before.keys() & now.keys()):
        was, value = before[name], now[name]
        if (
            TIMES.search(name)
            and all(isinstance(each, str) and CLOCK.fullmatch(each) for each in (was, value))
            and was != value
        ):
            return f"{name} was {was!r} before and is {value!r} now"
    return None


def make_contradiction_issue(step: Step, detail: str) -> Issue:
    return Issue(code=Code.CONTRADICTING_RESULTS, where=f"messages[{step.at}]", detail=detail[:300])


def differs(name: str, was: Any, value: Any, *, is_live: bool = False) -> bool:
    if was == value or is_fleeting(name) or goes_on(name, was, value) or are_compatible(was, value):
        return False
    if is_live and is_number(was) and is_number(value) and not is_entity_name(name):
        return False
    if isinstance(was, str) and isinstance(value, str):
        return not is_same(was, value) and not (len(was) > 40 or len(value) > 40)
    return type(was) is type(value) or (isinstance(was, int | float) and isinstance(value, int | float))


def forget(known: dict[tuple[str, str], dict[str, Any]], answers: dict[str, Step], step: Step) -> None:
    """Forget what a change may have changed: of every entity that shares a value with its arguments or its result all fields,
    or those that are not stable where the tool's name says that it only adds something."""
    if step.failed:
        return
    answers.clear()
    if not known:
        return
    words = set(split_tool_name(step.call.name))
    keeps = step.writes is True and words.isdisjoint(CHANGES)
    values = [*list_scalars(step.arguments), *list_scalars(step.result)]
    said = {text for each in values if len(text := each if isinstance(each, str) else str(each)) > 2}
    for place, row in list(known.items()):
        if said & {*place[1].split("|"), *map(str, list_scalars(row))}:
            known[place] = {name: value for name, value in row.items() if STABLE.search(name)} if keeps else {}
