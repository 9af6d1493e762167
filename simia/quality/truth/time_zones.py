"""Times in another time zone than they were given in."""

from __future__ import annotations

import re

from simia.quality.truth.facts import TruthView

MARKED_TIME = re.compile(
    r"(?<![\d:])(\d{1,2}):(\d{2})(?::\d{2}(?:[.,]\d+)?)?(?:Z\b|[+-]\d{2}:?\d{2}\b)"
)  # 15:00:00Z, 15:00+02:00
NAMED_ZONE = re.compile(
    r"\b(?:UTC|GMT|BST|JST|IST|MSK|CES?T|EES?T|WES?T|AE[SD]T|[ECMP][SD]T)\b|\b(?:Europe|America|Asia|Africa|Australia|Pacific|Atlantic)/[A-Z]"
    r"|\b[Tt]ime ?[Zz]ones?\b|\blocal time\b|\d(?: ?[AaPp]\.?[Mm]\.?)?,? (?:[ECMP]T\b|(?:your|my|[A-Z]\w+(?: [A-Z]\w+)?) time\b)|\b[Ii]n (?:[A-Z]\w+ ){1,2}time\b"
    r"|时区|時区|タイムゾーン|当地时间|現地時間|北京时间|日本時間"
)
STEP = 30  # minutes: zones are whole or half hours apart


def may_be_in_other_zone(facts: TruthView, i: int, goals: tuple[float, ...], known: set[float]) -> bool:
    """Return whether a time of message i can be a given one in another time zone: whole or half hours away from a time that was given
    with its zone, or from any given time if a zone is named.

    Args:
        facts: The trajectory.
        i: The message's index.
        goals: The time, in minutes; several where it can be in the morning and in the afternoon.
        known: The given times, in minutes.
    """
    texts = facts.written[: i + 1]
    if not any(map(NAMED_ZONE.search, texts)):
        known = {int(hour) * 60.0 + int(minute) for text in texts[:i] for hour, minute in MARKED_TIME.findall(text)}
    return any((goal - base) % STEP == 0 for goal in goals for base in known)
