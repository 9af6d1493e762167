"""Times in another time zone than they were given in."""

from __future__ import annotations

import re

from simia.quality.truth.facts import TruthView

# 15:00:00Z, 2026-05-04T15:00+02:00; 10:00-11:00 is a range.
MARKED_TIME = re.compile(
    r"(?<![\d:])(\d{1,2}):(\d{2})(?:(?::\d{2}(?:[.,]\d+)?)?Z\b|(?::\d{2}(?:[.,]\d+)?|(?<=T\d\d:\d\d))[+-](?:0\d|1[0-4]):?\d{2}\b(?!:))"
)
# When a record was written: no time of what it is about.
RECORD_TIME = re.compile(
    r'"(?:(?:created|updated|modified|logged|fetched|generated|recorded|synced|last_\w+)(?:_(?:at|on|time))?|timestamp|as_of)":\s*"[^"]*"',
    re.I,
)
NAMED_ZONE = re.compile(
    r"\b(?:UTC|GMT|BST|JST|IST|MSK|CES?T|EES?T|WES?T|AE[SD]T|[ECMP][SD]T)\b|\b(?:Europe|America|Asia|Africa|Australia|Pacific|Atlantic)/[A-Z]"
    r"|\b[Tt]ime ?[Zz]ones?\b|\blocal time\b|\d(?: ?[AaPp]\.?[Mm]\.?)?,? (?:[ECMP]T\b|(?:your|my|[A-Z]\w+(?: [A-Z]\w+)?) time\b)|\b[Ii]n (?:[A-Z]\w+ ){1,2}time\b"
    r"|时区|時区|タイムゾーン|当地时间|現地時間|北京时间|日本時間"
)
STEP = 30  # minutes: zones are whole or half hours apart


def may_be_in_other_zone(facts: TruthView, i: int, goals: tuple[float, ...], known: set[float]) -> bool:
    """Return whether a time of message i can be a given one in another time zone: whole or half hours away from a time that was given
    with its zone, or from any given time if the user or the assistant names a zone.

    Args:
        facts: The trajectory.
        i: The message's index.
        goals: The time, in minutes; several where it can be in the morning and in the afternoon.
        known: The given times, in minutes.
    """
    said = (text for at, text in enumerate(facts.written[: i + 1]) if facts.t.messages[at].role != "tool")
    if not any(map(NAMED_ZONE.search, said)):
        texts = [RECORD_TIME.sub("", text) for text in facts.written[:i]]
        known = {int(hour) * 60.0 + int(minute) for text in texts for hour, minute in MARKED_TIME.findall(text)}
    return any((goal - base) % STEP == 0 for goal in goals for base in known)
