"""Dates, weekdays and times in the assistant's texts: each was given before, or is a given one some given time away."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from functools import lru_cache

from simia.errors import Code, Issue
from simia.quality.truth.facts import TruthView
from simia.quality.truth.quantities import (
    CJK_DATE,
    MONTH,
    Quantity,
    find_marked_quantities,
    find_policy_quantities,
    find_quantities,
    make_date,
    narrow,
)
from simia.quality.truth.time_zones import may_be_in_other_zone
from simia.quality.truth.vocabulary import CJK_DONE

WEEKDAYS = {
    name: number
    for number, names in enumerate(
        ("monday mon 周一 星期一 月曜日 月曜 礼拜一", "tuesday tue tues 周二 星期二 火曜日 火曜", "wednesday wed 周三 星期三 水曜日 水曜",
         "thursday thu thur thurs 周四 星期四 木曜日 木曜", "friday fri 周五 星期五 金曜日 金曜", "saturday sat 周六 星期六 土曜日 土曜",
         "sunday sun 周日 周天 星期日 星期天 日曜日 日曜")
    )
    for name in names.split()
}  # fmt: skip
SHORT_WEEKDAYS = dict(zip("月火水木金土日", range(7), strict=True)) | dict(zip("一二三四五六", range(6), strict=True))
DAY_BEFORE = re.compile(
    r"\b(monday|tuesday|wednesday|thursday|friday|saturday|sunday|mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)\.?,?[ ]+(?:the )?"
    rf"(?:(?:{MONTH})\.?[ ]+(?:the )?)?$"
)
DAY_AFTER = re.compile(
    r",?[ ]?[(（][ ]?((?:周|星期|礼拜)[一二三四五六日天]|[月火水木金土日](?:曜日?)?|mon|tue|wed|thu|fri|sat|sun)[a-z]*\.?[ ]?[)）,，]"
    r"|,?[ ]?((?:周|星期)[一二三四五六日天]|[月火水木金土日]曜)"
)
# Words of users and of the answer itself that name a day near today.
RELATIVE = re.compile(
    r"\b(?:tomorrow|yesterday|tonight|next|last|coming|this|weekend|monday|tuesday|wednesday|thursday|friday|saturday|sunday|fortnight)\b"
    r"|明天|后天|昨天|前天|明日|昨日|明後日|あさって|今天|今日|[下上这本]个?(?:周|星期|月)|周[一二三四五六日末]|星期[一二三四五六日]|来週|来月|今週|先週|先月|翌|月末|月底|[月火水木金土日]曜",
    re.I,
)
NUMERALS = {
    word: n
    for n, words in enumerate(
        ("", "one a an 一", "two couple 两 二", "three 三", "four 四", "five 五", "six 六", "seven 七", "eight 八", "nine 九", "ten 十", "eleven", "twelve 十二")
    )
    for word in words.split()
} | {"thirty": 30, "fourteen": 14, "fifteen": 15, "twenty": 20, "sixty": 60, "ninety": 90, "half": 0.5, "半": 0.5, "forty-five": 45}  # fmt: skip
DURATION = re.compile(
    r"(\d+(?:\.\d+)?|\b(?:" + "|".join(word for word in NUMERALS if word.isascii()) + r")\b|[一二两三四五六七八九十半])"
    r"(?:[ -]?(?:to|[-–~〜至到])[ ]?(\d+))?[ -]?(?:个|個|か|ヶ|ケ)?(?:an? )?(?:full |more |working |business |calendar |consecutive |started )?"
    r"(minutes?|mins?|hours?|hrs?|h\b|days?|nights?|weeks?|months?|years?|小时|小時|分钟|分鐘|天|工作日|周|月|年|晚|泊|日間|日|時間|分|営業日|週間|年間)"
    r"(?!あたり|当たり|当り|につき|ごと)",  # a rate, not a duration
    re.I,
)
FIELD = re.compile(
    r'"(\w*(?:minutes|duration|nights|days|hours|length|mins|weeks|months)\w*)": ?"?(\d+(?:\.\d+)?)', re.I
)
FIELD_NAMES = ("minutes", "duration", "nights", "days", "hours", "length", "mins", "weeks", "months")
DAYS = {
    "day": 1,
    "night": 1,
    "天": 1,
    "日": 1,
    "晚": 1,
    "泊": 1,
    "工": 1,
    "営": 1,
    "week": 7,
    "周": 7,
    "週": 7,
    "month": 30,
    "月": 30,
    "year": 365,
    "年": 365,
}
MINUTES = {"min": 1, "分": 1, "hour": 60, "hr": 60, "h": 60, "小": 60, "時": 60}
MOST_DATES = 60
# A text with a question or a condition proposes: it may name any day, or one that it worked out.
PROPOSES = re.compile(
    r"[?？]|\b(?:would|could|if|shall|say yes|let me know|go-ahead)\b|か。|か$|ましょう|いただければ|ください|下さい|如果|要不|吗|吧|告诉我|的话|请确认|请回复",
    re.I,
)
# A sentence that says what was just done: it states the date of that change, also beside a polite request.
CJK_SENTENCE = re.compile(r"[^。！？!?\n]+[。！？!?]?")
SPOKEN_TIME = re.compile(
    r"\b(?:half|quarter|o['’]?clock|noon|midnight|midday)\b|"
    r"\b(?:at|by|until|till|before|after|from|to|around|about|past) (?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b|"
    r"[一二两三四五六七八九十][点點時时]|半|中午|正午",
    re.I,
)


def find_wrong_dates(facts: TruthView) -> Iterator[Issue]:
    """Report a weekday that is not its date's, and a date or time of an answer that does not follow from what was given."""
    for i in facts.answers:
        text = facts.texts[i]
        found = [each for each in find_quantities(text) if each.kind in ("date", "time")]
        if not found:
            continue
        low = narrow(text).lower()
        states = restates_result(facts, i)
        done = [] if states else find_done_sentences(facts, i)
        for each in found:
            if each.kind == "date":
                if is_wrong_weekday(facts, i, low, each):
                    yield make(i, text, each, "is not on this weekday")
                    return
                is_done = any(start <= each.start < end for start, end in done)
                if (states or is_done) and not follows_date(facts, i, each, strict=is_done or states == "write"):
                    yield make(i, text, each, "does not follow from what was given")
                    return
            elif states and (states == "write" or not is_spoken(facts, i)) and not follows_time(facts, i, each, found):
                yield make(i, text, each, "does not follow from what was given")
                return


def make(i: int, text: str, each: Quantity, problem: str) -> Issue:
    shown = text[max(0, each.start - 12) : each.end + 6].strip()
    return Issue(code=Code.WRONG_DATE, where=f"messages[{i}]", detail=f"{shown!r} {problem}")


def restates_result(facts: TruthView, i: int) -> str | None:
    """Return "write" or "read" where a text states what results with dates just said; None where it asks, proposes or computes."""
    return None if PROPOSES.search(facts.texts[i]) else find_dated_result(facts, i)


def find_dated_result(facts: TruthView, i: int) -> str | None:
    """Return "write" or "read" where message i follows results with dates; None where it does not."""
    last = next((step for step in facts.steps if step.at == i - 1), None)
    if last is None or last.failed:
        return None
    batch = [step for step in facts.steps if step.place == last.place]
    if not any(each.kind in ("date", "time") for step in batch for each in find_quantities(step.text)):
        return None
    return "write" if all(step.writes for step in batch) else "read"


def find_done_sentences(facts: TruthView, i: int) -> list[tuple[int, int]]:
    """Return (start, end) of the Japanese and Chinese sentences of a text that say what the call before it did, and ask nothing."""
    text = facts.texts[i]
    if text.isascii() or find_dated_result(facts, i) != "write":
        return []
    return [
        match.span()
        for match in CJK_SENTENCE.finditer(text)
        if CJK_DONE.search(match[0]) and not PROPOSES.search(match[0])
    ]


def is_spoken(facts: TruthView, i: int) -> bool:
    """Return whether the user named a time in words: "half past three", 三点半."""
    return any(SPOKEN_TIME.search(facts.texts[at]) for at in range(i) if facts.t.messages[at].role == "user")


def read_weekday(low: str, each: Quantity) -> int | None:
    """Return the weekday that is written with a date; None: there is none."""
    if found := DAY_BEFORE.search(low[max(0, each.start - 24) : each.start]):
        return WEEKDAYS.get(found[1])
    if found := DAY_AFTER.match(low, each.end):
        word = (found[1] or found[2]).strip()
        if word in WEEKDAYS:
            return WEEKDAYS[word]
        if word + "日" in WEEKDAYS:
            return WEEKDAYS[word + "日"]
        return SHORT_WEEKDAYS.get(word) if word != "日" or found[1] else None
    return None


def is_wrong_weekday(facts: TruthView, i: int, low: str, each: Quantity) -> bool:
    weekday = read_weekday(low, each)
    if weekday is None:
        return False
    given = collect_dates(facts, i)
    years = sorted({date.year for date in given})
    for year, month, day in each.dates:
        exact = {date.year for date in given if (date.month, date.day) == (month, day)}
        for one in [year] if year else exact or years:
            date = make_date(one, month, day)
            if date is None or date.weekday() == weekday:
                return False
    return bool(years) or any(year for year, _, _ in each.dates)


def list_quantities(facts: TruthView, i: int) -> Iterator[tuple[Quantity, ...]]:
    """Yield the quantities of the policy and of each message before message i, but for plain numbers of results."""
    yield find_policy_quantities(facts.policy)
    yield from map(find_marked_quantities, facts.written[:i])


def collect_dates(facts: TruthView, i: int) -> set[datetime.date]:
    """Return the dates with a year that were given before message i."""
    known: set[datetime.date] | None = facts.kept.get(("dates", i))
    if known is None:
        known = facts.kept["dates", i] = {
            date
            for quantities in list_quantities(facts, i)
            for each in quantities
            for reading in each.dates
            if reading[0] and (date := make_date(*reading))
        }
    return known


def collect_days(facts: TruthView, i: int) -> set[tuple[int, int]]:
    """Return the (month, day) of every date that was given before message i."""
    known: set[tuple[int, int]] | None = facts.kept.get(("days", i))
    if known is None:
        known = facts.kept["days", i] = {
            (month, day)
            for quantities in list_quantities(facts, i)
            for each in quantities
            for _, month, day in each.dates
        }
    return known


def follows_date(facts: TruthView, i: int, each: Quantity, *, strict: bool = False) -> bool:
    """Return whether a date was given, or is a given duration from a given one, or is a day that a relative word can mean.

    `strict`: the day was settled before, so that relative words mean no other one.
    """
    if any(facts.is_said(f"-{month:02}-{day:02}", i) for year, month, day in each.dates if not year):
        return True
    if any(facts.is_said(f"{year}-{month:02}-{day:02}", i) for year, month, day in each.dates if year):
        return True
    known = collect_dates(facts, i)
    days = collect_days(facts, i)
    for year, month, day in each.dates:
        if (month, day) in days and (not year or not known or any(date.year == year for date in known)):
            return True
    if not known or len(known) > MOST_DATES:
        return True  # nothing to compute from, or too much
    given, _ = collect_durations(facts, i)
    away = given | ({0} if strict else {n - 1 for n in given} | {0, 1})
    spoken = [text for at, text in enumerate(facts.texts[: i + 1]) if facts.t.messages[at].role == "user" or at == i]
    is_relative = any(RELATIVE.search(text) for text in spoken)
    today = min(known) if not facts.t.system else min(collect_system_dates(facts) or known)
    for year, month, day in each.dates:
        for one in [year] if year else sorted({date.year for date in known} | {max(date.year for date in known) + 1}):
            date = make_date(one, month, day)
            if date is None:
                continue
            if is_relative and not strict and abs((date - today).days) <= 14:
                return True
            for base in known:
                apart = abs((date - base).days)
                if apart in away or is_month_away(base, date, away) or is_working_days(base, date, away):
                    return True
                if (date.day == 1 or (date + datetime.timedelta(days=1)).day == 1) and 0 <= (date - base).days <= 62:
                    return True  # the first or the last day of a month
    return False


def collect_system_dates(facts: TruthView) -> set[datetime.date]:
    return {
        date
        for each in find_policy_quantities(facts.t.system or "")
        if each.kind == "date"
        for reading in each.dates
        if reading[0] and (date := make_date(*reading))
    }


def collect_durations(facts: TruthView, i: int) -> tuple[set[int], set[float]]:
    """Return the durations that were given before message i or in it: in days, and in minutes."""
    known: tuple[set[int], set[float]] | None = facts.kept.get(("durations", i))
    if known is None:
        known = facts.kept["durations", i] = read_durations(facts, i)
    return known


def read_durations(facts: TruthView, i: int) -> tuple[set[int], set[float]]:
    days: set[int] = set()
    minutes: set[float] = set()
    for at, text in enumerate((facts.policy, *facts.written[: i + 1])):
        for number, upper, unit in find_durations(text):
            for value in (number, upper):
                if value:
                    add_duration(
                        float(NUMERALS.get(value, 0) or value if value[0].isdigit() else NUMERALS[value]),
                        unit,
                        days,
                        minutes,
                    )
        if at and facts.t.messages[at - 1].role != "user":
            low = text.lower()
            for name, value in FIELD.findall(low) if any(map(low.__contains__, FIELD_NAMES)) else ():
                unit = (
                    "day"
                    if re.search("day|night", name)
                    else "week"
                    if "week" in name
                    else "month"
                    if "month" in name
                    else "min"
                )
                add_duration(float(value), unit, days, minutes)
                if unit == "min" and "min" not in name:
                    add_duration(float(value), "hour", days, minutes)
    return days, minutes


@lru_cache(maxsize=512)
def find_durations(text: str) -> list[tuple[str, str, str]]:
    return DURATION.findall(CJK_DATE.sub(" ", narrow(text).lower()))


def add_duration(value: float, unit: str, days: set[int], minutes: set[float]) -> None:
    for start, size in DAYS.items():
        if unit.startswith(start):
            days.add(int(value * size))
    for start, size in MINUTES.items():
        if unit.startswith(start):
            minutes.add(value * size)
            if size == 60 and value >= 24:
                days.add(int(value // 24))


def is_month_away(base: datetime.date, date: datetime.date, away: set[int]) -> bool:
    """Return whether a date is some given months or years after another, on the same day."""
    months = abs((date.year - base.year) * 12 + date.month - base.month)
    return (
        base.day == date.day
        and (months * 30 in away or (months % 12 == 0 and months // 12 * 365 in away))
        and months > 0
    )


def is_working_days(base: datetime.date, date: datetime.date, away: set[int]) -> bool:
    apart = (date - base).days
    if not 0 < apart <= 45:
        return False
    working = sum((base + datetime.timedelta(days=n)).weekday() < 5 for n in range(1, apart + 1))
    return working in away


def follows_time(facts: TruthView, i: int, each: Quantity, own: list[Quantity]) -> bool:
    """Return whether a time was given, also in another time zone, or is a given duration from one."""
    hour, minute = divmod(int(each.value), 60)
    if facts.is_said(f"{hour:02}:{minute:02}", i) or (each.loose and facts.is_said(f"{hour + 12:02}:{minute:02}", i)):
        return True
    known: set[float] = set()
    for quantities in list_quantities(facts, i):
        for other in quantities:
            if other.kind == "time":
                known.add(other.value)
                if other.loose:
                    known.add(other.value + 720)
    if not known:
        return True
    goals = (each.value, each.value + 720) if each.loose else (each.value,)
    if any(goal % 1440 in known or goal in known for goal in goals) or each.value / 60 in facts.numbers_before(i):
        return True  # given, also as "18-20" of a slot
    given = set(known)
    known |= {other.value for other in own if other.start < each.start and other.kind == "time"}
    _, minutes = collect_durations(facts, i)
    sums = minutes | {a + b for a in minutes for b in minutes} if len(minutes) <= 12 else minutes
    if any(abs(goal - base) in sums or 1440 - abs(goal - base) in sums for goal in goals for base in known):
        return True
    return may_be_in_other_zone(facts, i, goals, given)
