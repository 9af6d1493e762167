"""Read numbers, amounts of money, dates and times from texts in English, Chinese and Japanese.

One search finds the digits; their neighbours decide what they are. Libraries for this (dateparser, price-parser, babel) take
milliseconds or read one value per text; the checks have microseconds and need every value with its place.
"""

from __future__ import annotations

import calendar
import datetime
import re
from functools import lru_cache
from typing import NamedTuple

WIDE = str.maketrans("０１２３４５６７８９，．：％／－＋￥＄（）", "0123456789,.:%/-+¥$()")
WIDE_CHAR = re.compile("[０-９，．：％／－＋￥＄（）]")
TOKEN = re.compile(r"\d+(?:[.,:/-]\d+)*")
# A token that is not a number between the signs of JSON: such a number has no unit, and is neither date nor time.
MARKED = re.compile(
    r'\d(?<!\d\d)(?<!\d[.,:/-]\d)(?!(?:(?<=[":\[]\d)|(?<=: \d))\d*(?:\.\d+)?(?:["}\]]|,(?!\d)))\d*(?:[.,:/-]\d+)*'
)
PLAIN_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?")
EUROPEAN = re.compile(r"(\d{1,3}(?:\.\d{3})*|\d+),(\d{1,2})")
CURRENCY_BEFORE = re.compile(
    r"(?:[$€£¥₹₩฿]|\b(?:usd|eur|gbp|jpy|cny|rmb|inr|krw|cad|aud|chf|hk\$|us\$|a\$|nt\$))[ \u00a0]?[*_]{0,2}[-−]?$", re.I
)
CURRENCY_AFTER = re.compile(
    r"[*_]{0,2}[ \u00a0-]?(?:[万萬億亿千]|million|k\b)?[ \u00a0]?(?:[€£¥₹]|円|圆|圓|元|块(?:钱|(?![\u4e00-\u9fff]))|人民币|人民元|日元|美元|美金|欧元|英镑|港币|"
    r"ユーロ|ドル|ポンド|(?:euros?|dollars?|usd|eur|gbp|jpy|cny|rmb|yuan|yen|pounds?(?! of)|rupees?|bucks)\b)",
    re.I,
)
CENTS = re.compile(r"[ \u00a0]?(?:cents?\b|セント|美分)", re.I)
SCALES = {"万": 1e4, "萬": 1e4, "千": 1e3, "億": 1e8, "亿": 1e8}
SCALE_AFTER = re.compile(r"[ \u00a0]?([万萬億亿千]|million\b|thousand\b|k\b)", re.I)
# What starts no unit after a number, and what ends no currency before one; "" is the border of the text.
NO_UNIT = frozenset(("", *'",.;:!?)]}\n'))
NO_SIGN = frozenset(("", *'",;:!?([{'))
PERCENT = re.compile(r"[ \u00a0]?(?:%|percent|per cent|パーセント|个百分点|割引?|折)", re.I)
MONTHS = {
    name: number
    for number in range(1, 13)
    for name in (calendar.month_name[number].lower(), calendar.month_abbr[number].lower())
} | {"sept": 9}
MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
MONTH_BEFORE = re.compile(rf"\b({MONTH})\.?[ \u00a0]+(?:the )?$")
MONTH_AFTER = re.compile(rf"(?:st|nd|rd|th)?[ \u00a0]+(?:of )?({MONTH})\b\.?(?:,?[ \u00a0](\d{{4}}))?")
YEAR_AFTER = re.compile(r"(?:st|nd|rd|th)?,?[ \u00a0]+(\d{4})\b(?!:)")
CJK_DATE = re.compile(r"(?:(\d{4})[ ]?年[ ]?)?(\d{1,2})[ ]?月[ ]?(\d{1,2})[ ]?[日号號]")
ISO = re.compile(r"(\d{4})([-/.])(\d{1,2})\2(\d{1,2})")
DAY = re.compile(r"\d{1,2}(?!\d|:)")
SHORT = re.compile(r"(\d{1,2})/(\d{1,2})(?:/(\d{2}|\d{4}))?")
CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::\d{2})?")
HALF = re.compile(r"[ \u00a0]?([ap])\.?m\b", re.I)
CJK_CLOCK = re.compile(r"[ ]?[时時点點](?!间|間|半?以内)(半|(?=[ ]?(\d{1,2})[ ]?分))?")
AFTERNOON = re.compile(r"(下午|晚上|傍晚|午後|夜|夕方|中午)[ ]?の?$")


class Quantity(NamedTuple):
    """A value with its place. `kind`: amount, percent, date, time or number; `value`: of a number, or minutes of a time;
    `dates`: the readings of a date as (year or 0, month, day)."""

    kind: str
    value: float
    start: int
    end: int
    dates: tuple[tuple[int, int, int], ...] = ()
    loose: bool = False
    """A time without am or pm may be twelve hours later."""


def narrow(text: str) -> str:
    """Return the text with ASCII digits and signs in place of full-width ones, of equal length."""
    return text if text.isascii() or not WIDE_CHAR.search(text) else text.translate(WIDE)


@lru_cache(maxsize=512)
def find_quantities(text: str) -> tuple[Quantity, ...]:
    """Find the quantities of a text in order. Digits that are part of a word (ORD-20417, T5, #12) are none."""
    return read_quantities(text, TOKEN)


@lru_cache(maxsize=512)
def find_marked_quantities(text: str) -> tuple[Quantity, ...]:
    """Find the quantities of a text except for plain numbers between the signs of JSON: half of what a result costs otherwise."""
    return read_quantities(text, MARKED)


def read_quantities(text: str, tokens: re.Pattern[str]) -> tuple[Quantity, ...]:
    found: list[Quantity] = []
    text = narrow(text)
    low = text.lower()
    done = 0
    for match in tokens.finditer(text):
        start, end = match.span()
        if start < done:
            continue
        quantity = read_quantity(text, low, start, end)
        if quantity is not None:
            done = quantity.end
            found.append(quantity)
    return tuple(found)


@lru_cache(maxsize=256)
def find_policy_quantities(policy: str) -> tuple[Quantity, ...]:
    """Find the quantities of a policy: a cache of its own keeps them for all trajectories of a run."""
    return find_quantities(policy)


def read_quantity(text: str, low: str, start: int, end: int) -> Quantity | None:
    token, after = text[start:end], low[end : end + 24]
    if is_date := read_date(token, text, low, start, end, after):
        return is_date
    if ":" in token and CLOCK.fullmatch(token):
        return read_clock(token, low, start, end, after)
    before = low[start - 1] if start else ""
    if (before and before.isascii() and (before.isalnum() or before in "#_@")) or (after[:1] in ("_", "@")):
        return None
    if before in "-/." and start > 1 and low[start - 2].isascii() and low[start - 2].isalnum():
        return None
    number, length = read_leading_number(token)
    end = start + length
    after = low[end : end + 24]
    lead = low[max(0, start - 6) : start]
    if after[:1] in NO_UNIT:
        kind = "amount" if lead[-1:] not in NO_SIGN and CURRENCY_BEFORE.search(lead) else "number"
        return Quantity(kind, number, start, end)
    if half := HALF.match(after):
        hour = int(number) % 12 + (12 if half[1].lower() == "p" else 0)
        return (
            Quantity("time", hour * 60.0, start, end + half.end()) if number <= 12 and number == int(number) else None
        )
    if number <= 24 and number == int(number) and (clock := CJK_CLOCK.match(after)):
        minutes = 30 if clock[1] == "半" else int(clock[2] or 0)
        hour = int(number)
        noon = AFTERNOON.search(lead)
        if noon and hour < 12:
            hour += 12
        return Quantity("time", hour * 60.0 + minutes, start, end + clock.end(), (), not noon and hour <= 12)
    if PERCENT.match(after):
        return Quantity("percent", number, start, end)
    scale = SCALE_AFTER.match(after)
    factor = (SCALES.get(scale[1]) or {"million": 1e6, "thousand": 1e3, "k": 1e3}.get(scale[1], 1.0)) if scale else 1.0
    if CURRENCY_BEFORE.search(lead) or CURRENCY_AFTER.match(after):
        if scale and (rest := TOKEN.match(text, end + scale.end())):  # 1万2000円
            number = number * factor + read_leading_number(rest[0])[0]
            return Quantity("amount", number, start, rest.end())
        return Quantity("amount", number * factor, start, end + (scale.end() if scale else 0))
    if scale and scale[1] in "万萬" and (rest := TOKEN.match(text, end + 1)) and CURRENCY_AFTER.match(low, rest.end()):
        return Quantity("amount", number * factor + read_leading_number(rest[0])[0], start, rest.end())
    if CENTS.match(after):
        return Quantity("amount", number / 100, start, end)
    if after[:1].isascii() and after[:1].isalpha():
        return None
    return Quantity("number", number * factor, start, end)


def read_leading_number(token: str) -> tuple[float, int]:
    """Return a number and how many characters of the token it takes."""
    if found := PLAIN_NUMBER.match(token):
        if found.end() < len(token) and (european := EUROPEAN.fullmatch(token)):
            return float(european[1].replace(".", "") + "." + european[2]), len(token)
        return float(found[0].replace(",", "")), found.end()
    return 0.0, len(token)


def read_date(token: str, text: str, low: str, start: int, end: int, after: str) -> Quantity | None:
    if len(token) >= 8 and (iso := ISO.match(token)) and 1 <= int(iso[3]) <= 12 and 1 <= int(iso[4]) <= 31:
        return Quantity("date", 0, start, start + iso.end(), ((int(iso[1]), int(iso[3]), int(iso[4])),))
    follows = after[:2].lstrip(" ")
    if follows[:1] in ("年", "月"):
        cjk = CJK_DATE.match(text, start)
        if cjk and 1 <= int(cjk[2]) <= 12 and 1 <= int(cjk[3]) <= 31:
            return Quantity("date", 0, start, cjk.end(), ((int(cjk[1] or 0), int(cjk[2]), int(cjk[3])),))
    if "/" in token:
        short = SHORT.fullmatch(token)
        if short is None:
            return None
        a, b, year = int(short[1]), int(short[2]), int(short[3] or 0)
        year += 2000 if 0 < year < 100 else 0
        readings = tuple((year, m, d) for m, d in dict.fromkeys(((a, b), (b, a))) if 1 <= m <= 12 and 1 <= d <= 31)
        return Quantity("date", 0, start, end, readings) if readings else None
    head = DAY.match(token)
    if head is None or not 1 <= int(head[0]) <= 31:
        return None
    day, end = int(head[0]), start + head.end()
    if (start and low[start - 1] == " ") or low[start - 1 : start] == "\u00a0":
        lead = low[max(0, start - 16) : start]
        if month := MONTH_BEFORE.search(lead):
            follows_year = YEAR_AFTER.match(low, end)
            return Quantity(
                "date",
                0,
                start,
                follows_year.end() if follows_year else end,
                ((int(follows_year[1]) if follows_year else 0, MONTHS[month[1]], day),),
            )
    if month := MONTH_AFTER.match(low, end):
        return Quantity("date", 0, start, month.end(), ((int(month[2] or 0), MONTHS[month[1]], day),))
    return None


def read_clock(token: str, low: str, start: int, end: int, after: str) -> Quantity | None:
    clock = CLOCK.fullmatch(token)
    if clock is None or int(clock[1]) > 24 or int(clock[2]) > 59:
        return None
    hour, minutes = int(clock[1]), int(clock[2])
    half = HALF.match(after)
    if half and hour <= 12:
        return Quantity(
            "time", hour % 12 * 60.0 + (720 if half[1].lower() == "p" else 0) + minutes, start, end + half.end()
        )
    if AFTERNOON.search(low[max(0, start - 4) : start]) and hour < 12:
        return Quantity("time", hour * 60.0 + 720 + minutes, start, end)
    return Quantity("time", hour * 60.0 + minutes, start, end, (), hour <= 12)


def make_date(year: int, month: int, day: int) -> datetime.date | None:
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return None
