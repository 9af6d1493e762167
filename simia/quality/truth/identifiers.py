"""Identifiers in the assistant's texts: numbers of orders, parcels and bookings, e-mail addresses, the last digits of a card."""

from __future__ import annotations

import re
from collections.abc import Iterator

from simia.errors import Code, Issue
from simia.quality.mentions import Mentions, normalize_mention
from simia.quality.truth.facts import TruthView
from simia.quality.truth.quantities import narrow

EMAIL = re.compile(r"[\w.+-]+@[a-z0-9-]+(?:\.[a-z0-9-]+)+", re.I | re.ASCII)
CODE = re.compile(r"(?<![\w@.#/&=-])#?(?=[A-Za-z_./-]*\d)[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*(?![\w@]|[./:-]\w)", re.ASCII)
DIGIT_TO_SPACE = re.compile(r"\d\S*")
NAMED = re.compile(
    r"(?:\b(?:tracking|confirmation|order|booking|reservation|reference|ticket|case|invoice|transaction|receipt|refund|return|request|"
    r"account|customer|member|card|policy|flight|locator|voucher|coupon|serial|claim|code|hold|rental|shipment|appointment)"
    r"[ ]?(?:number|no\.?|id|code|reference|ref\.?)?[ ]?(?:is|was|:|#)?[ ]?[*`\"'#]*|"
    r"(?:单号|订单|订单号|编号|号码|工单|快递单号|运单号|预约号|预订号|票号|确认码|代码|番号|コード|追跡番号|注文|予約|ID|受付番号|問い合わせ番号)"
    r"(?:は|为|是|号|：|:|「|“|\"|[ ])*)$",
    re.I,
)
ENDING = re.compile(
    r"\b(?:ending(?: in| with)?|ends in|last four(?: digits)?(?: are)?|尾号(?:为|是)?|末尾|下4桁(?:は|が)?|下四桁(?:は|が)?)[ :*]*(\d{4})(?!\d)",
    re.I,
)
UNIT = re.compile(r"^\d+(?:st|nd|rd|th|am|pm|h|hr|hrs|min|mins|s|ms|kg|g|mg|lb|lbs|oz|km|m|cm|mm|mi|ft|in|l|ml|gb|mb|tb|kb|k|w|kw|kwh|v|mah|px|p|d|x|c|f|hz|ghz|mhz|mp|k|bn|yr|yrs|usd|eur|gbp|jpy|cny|rmb)$", re.I)  # fmt: skip
MOST_TOKENS = 400


def find_wrong_identifiers(facts: TruthView) -> Iterator[Issue]:
    """Report each identifier of an answer that nothing gave: neither user nor policy nor a result nor a call."""
    for i in facts.answers:
        text = facts.texts[i]
        low = facts.view.lows[i]
        if "@" in low:
            for email in EMAIL.findall(low):
                if not is_given(facts, i, email.rstrip(".")):
                    yield make_identifier_issue(i, email)
                    return
        if not any(map(low.__contains__, "0123456789")):
            continue
        for match in iterate_codes(narrow(text)):
            token = match[0]
            lead = text[max(0, match.start() - 40) : match.start()]
            if is_code(token) and not is_given(facts, i, token) and is_like_one(facts, i, token, lead):
                yield make_identifier_issue(i, token)
                return
        for match in ENDING.finditer(text):
            if not facts.is_said(match[1], i):
                yield make_identifier_issue(i, match[0])
                return


def iterate_codes(text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of `CODE`: only words with a digit are searched, since a search of the whole text tries every character."""
    done = 0
    for word in DIGIT_TO_SPACE.finditer(text):
        start, end = word.span()
        while start > done and not text[start - 1].isspace():
            start -= 1
        yield from CODE.finditer(text, start, end)
        done = end


def make_identifier_issue(i: int, token: str) -> Issue:
    return Issue(code=Code.WRONG_IDENTIFIER, where=f"messages[{i}]", detail=f"{token[:60]!r} was not given before")


def is_code(token: str) -> bool:
    """Return whether a token can be an identifier: letters and digits, or six digits and more."""
    bare = token.lstrip("#")
    if bare.isdigit():
        return len(bare) >= 6 or (token[0] == "#" and len(bare) >= 3)
    return len(bare) >= 3 and UNIT.match(bare) is None and sum(map(str.isdigit, bare)) >= 2 and has_upper(bare)


def has_upper(token: str) -> bool:
    return any(map(str.isupper, token)) or "_" in token


def is_like_one(facts: TruthView, i: int, token: str, lead: str) -> bool:
    """Return whether something given has the same shape, or the words before the token say that it is an identifier."""
    if NAMED.search(lead):
        return True
    shape = make_shape(token)
    return shape in find_shapes(facts, i)


def find_shapes(facts: TruthView, i: int) -> set[str]:
    found: set[str] = set()
    for text in facts.written[:i]:
        if any(map(text.__contains__, "0123456789")):
            found |= {make_shape(each) for each in CODE.findall(narrow(text))[:MOST_TOKENS]}
    return found


def make_shape(token: str) -> str:
    """Return the letters of a token with 0 for each digit; letters behind a digit become A."""
    head = re.match(r"[#A-Za-z_-]*", token)
    start = head.end() if head else 0
    return token[:start].upper() + "".join(
        "0" if each.isdigit() else "A" if each.isalpha() else each for each in token[start:]
    )


def is_given(facts: TruthView, i: int, token: str) -> bool:
    needle = normalize_mention(token).lstrip("#")
    if facts.is_said(needle, i):
        return True
    said = Mentions()
    said.add(facts.policy)
    for at in range(i):
        said.add(facts.written[at], by_user=True)
    return said.contains(token)
