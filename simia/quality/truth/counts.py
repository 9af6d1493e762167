"""Counts in the assistant's texts: "you have 3 orders" is true of the list of orders in a result."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from simia.errors import Code, Issue
from simia.quality.entity_ledger import is_scalar, to_singular
from simia.quality.tool_effects import split_tool_name
from simia.quality.truth.facts import TruthView
from simia.quality.truth.quantities import narrow

WORDS = {
    word: n
    for n, word in enumerate(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    )
}
CJK_WORDS = dict(zip("一二三四五六七八九十", range(1, 11), strict=True)) | {"两": 2, "兩": 2}
ENGLISH = re.compile(
    r"(?<![\w.,$€£#/:-])(?P<n>\d{1,2}|"
    + "|".join(list(WORDS)[1:])
    + r")(?P<between>(?: [a-z][a-z-]*){0,3}?) (?P<noun>[a-z]+s)\b"
)
CJK = re.compile(
    r"(?<![\d.,第月年])(?P<n>\d{1,2}|[一二三四五六七八九十两兩])[ ]?(?:个|件|笔|条|张|份|封|本|家|位|名|款|种|部|趟|班|间|場|つ|個|通|冊|便|室|枚|台|社|か所|箇所|ヶ所)(?!月|半|以|目|工作)"
)
CLAIM = re.compile(
    r"\b(?:you(?: currently)? have|there (?:are|were)|i (?:found|see|have found)|found|shows?|lists?|returned|here are(?: the| your)?|are|has|have)(?: only| exactly| the| a total of| these| all)*$"
)
CLAIM_WORDS = ("are", "has", "have", "found", "show", "list", "returned", "see", "were")  # CLAIM has one of these
CJK_CLAIM = re.compile(r"(?:共|有|找到|查到|为您找到|一共|总共|以下|这|計|全部で|合計|は|が|に)(?:了|以下|是|有)?[ ]?$")
CJK_EXISTS = re.compile(
    r"^[^。！？\n]{0,24}(?:ござい|あり|見つか|です|订单|预约|预订|结果|文件|邮件|航班|记录|，|：|:)"
)
COMPARES = re.compile(
    r"\b(?:more|less|under|over|above|below|at least|at most|other|another|remaining|additional|further|of (?:the|your|them|these)|between|within|per|each|left|working|business|more than|up to|first|last|next)\b|其他|另外|另|还|剩|以上|以下|以内|ほか|他に|残り|あと|もう|うち|其中"
)
# A count of something else than rows: of copies, pieces, people, days.
NOT_THINGS = re.compile(
    r"[ ]?(?:行李|人|月|欠席|出席|参加|不参加|库存|单位|在架|可借|张票|名様|様|分の|在庫|個の|席|つの|目|ずつ|当たり|あたり|可以|套餐|小时|星期|工作日)"
)
NOUNS = {
    "order": ("订单", "注文"), "flight": ("航班", "便", "フライト"), "booking": ("预订", "预约", "予約"), "reservation": ("预订", "预约", "予約"),
    "appointment": ("预约", "予約", "挂号"), "mail": ("邮件", "メール"), "email": ("邮件", "メール"), "message": ("消息", "メッセージ", "邮件"), "file": ("文件", "ファイル"),
    "item": ("商品", "件", "点", "品"), "product": ("商品", "产品"), "event": ("日程", "会议", "予定", "イベント", "活动"), "loan": ("借", "貸出", "本"),
    "book": ("书", "本", "図書"), "result": ("结果", "結果"), "task": ("任务", "タスク"), "ticket": ("工单", "票", "チケット"), "slot": ("时段", "空き", "枠", "号"),
    "room": ("房", "部屋", "室"), "hotel": ("酒店", "ホテル"), "shipment": ("包裹", "货", "荷物", "出荷"), "voucher": ("券", "クーポン"), "coupon": ("券", "クーポン"),
    "transaction": ("交易", "笔", "取引"), "contact": ("联系人", "連絡先"), "address": ("地址", "住所"), "passenger": ("乘客", "搭乗者"), "train": ("车次", "列车", "列車"),
    "restaurant": ("餐厅", "レストラン", "店"), "meeting": ("会议", "会議"), "invoice": ("发票", "請求書"), "refund": ("退款", "返金"), "return": ("退货", "返品"), "course": ("课程", "講座"),
}  # fmt: skip


INCLUDING = re.compile(
    r"\b(?:including|such as|like|for example|e\.g\.|among|etc|cheapest|best|first|earliest|top)\b|例如|比如|包括|其中|等|など|例えば|うち|最"
)
# What anything that is listed may be called.
ANYTHING = frozenset(["item", "thing", "result", "entry", "record", "row", "option", "match"])


class Listing:
    """A list of a result. `nouns`: what its rows may be called; `inner`: it is in a row of another list."""

    __slots__ = ("inner", "nouns", "rows")

    def __init__(self, nouns: set[str], rows: list[Any], inner: bool) -> None:
        self.nouns, self.rows, self.inner = nouns, rows, inner


def find_wrong_counts(facts: TruthView) -> Iterator[Issue]:
    """Report a count of listed things that no listing and no part of one has."""
    if not any("[" in step.text for step in facts.steps):
        return
    listings: list[tuple[int, Listing]] | None = None
    for i in facts.answers:
        low = narrow(facts.view.lows[i])
        if found := find_wrong_share(facts, i, low):
            yield Issue(code=Code.WRONG_COUNT, where=f"messages[{i}]", detail=found)
            return
        counts = list(iterate_counts(low))
        units = Counter(low[end - 1] for *_, end in counts)
        for count, nouns, shown, end in counts:
            if units[low[end - 1]] > 1 and not low.isascii():
                continue  # several counts of one unit: a rule does not know what each counts
            if listings is None:
                listings = [
                    (step.at, each)
                    for step in facts.steps
                    if not step.failed
                    for each in iterate_listings(step.result, step.call.name)
                ]
            known = [each for at, each in listings if at < i and not each.nouns.isdisjoint(nouns)]
            if not known and (not nouns or not ANYTHING.isdisjoint(nouns)):
                known = find_only_listing(facts, listings, i)
            if known and is_wrong(facts, i, low, count, known, end):
                yield Issue(
                    code=Code.WRONG_COUNT,
                    where=f"messages[{i}]",
                    detail=f"{shown!r}, and the results list {len(known[-1].rows)}",
                )
                return


def find_wrong_share(facts: TruthView, i: int, low: str) -> str | None:
    """Find a count of rows with a value that the only list of the result before the text does not have: "two are ready"."""
    found = [step for step in facts.steps if step.at == i - 1 and not step.failed]
    if not found or sum(step.place == found[0].place for step in facts.steps) > 1:
        return None
    rows = [each for each in iterate_listings(found[0].result, "") if each.rows and not each.inner]
    if len(rows) != 1 or not all(isinstance(each, dict) for each in rows[0].rows):
        return None
    groups: Counter[str] = Counter()
    names = defaultdict(set)
    for row in rows[0].rows:
        for name, value in row.items():
            if isinstance(value, str) and 2 <= len(value) <= 16 and not any(map(str.isdigit, value)):
                groups[value.lower()] += 1
                names[value.lower()].add(name)
    values = "\n".join(groups)
    for match in SHARE.finditer(low):
        word = match["n"] or match["n2"]
        count = WORDS.get(word) or CJK_WORDS.get(word) or int(word)
        start = max(low.rfind(mark, 0, match.start()) for mark in ".!?。！？\n;；:：") + 1
        before = low[start : match.start()]
        clause = re.match(r"[^,.!?。！？\n、]*", low[match.end() :])
        after = clause[0] if clause else ""
        if PARTIAL.search(before) or PARTIAL.search(after) or any(map(str.isdigit, before + after)):
            continue
        if any(word in values for word in LETTERS.findall(before)):
            continue  # of the rows with another value
        for value, size in groups.items():
            ends = not value.isascii() or not after[len(value) :][:1].isalpha()
            others = any(other in after[len(value) :] for other in groups)
            if after.startswith(value) and ends and not others and len(names[value]) == 1 and count != size:
                return f"{(match[0] + after)[:40]!r}, and the result lists {size}"
    return None


LETTERS = re.compile(r"[a-z]{2,}|[\u3040-\u30ff]{2,}|[\u4e00-\u9fff]{2}")
SHARE = re.compile(
    r"(?<![\w.,$€£#/:-])(?P<n>\d{1,2}|"
    + "|".join(list(WORDS)[1:])
    + r") (?:of (?:them|these|those) )?(?:are|is) (?:still |currently )?"
    r"|(?<![\d.,第月年一二三四五六七八九十两兩])(?P<n2>\d{1,2}|[一二三四五六七八九十两兩])[ ]?(?:个|件|笔|条|张|次|份|封|本|名|間|つ|個|通|冊|便|枚|台|回)(?:是|が|は)?"
)
# A part of the list: what follows counts within it.
PARTIAL = re.compile(
    r"\b(?:in|on|from|since|before|after|by|with|other|more|another|this|last|next|only|than|at|between|except|among|due|(?:mon|tues|wednes|thurs|fri|satur|sun)day|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*|red|new|old)\b|月|周|週|本周|今天|明天|今日|明日|其他|另|还有|还|ほか|他|别|以外|除|以上|以下|之前|之后|里的|的里"
)


def find_only_listing(facts: TruthView, listings: list[tuple[int, Listing]], i: int) -> list[Listing]:
    """Return the newest result's list of objects before message i, if it is the only one."""
    newest = max((at for at, _ in listings if at < i), default=-1)
    if any(facts.t.messages[at].role == "user" for at in range(max(newest, 0), i)):
        return []  # the count may be of something else by now
    found = [
        each
        for at, each in listings
        if at == newest and each.rows and isinstance(each.rows[0], dict) and not each.inner
    ]
    return found if len(found) == 1 else []


def iterate_counts(low: str) -> Iterator[tuple[int, set[str], str, int]]:
    """Yield (count, nouns, the words, end) of each count of things that a text claims."""
    for match in ENGLISH.finditer(low) if any(map(low.__contains__, CLAIM_WORDS)) else ():
        if COMPARES.search(match["between"]) or COMPARES.search(low[match.end() : match.end() + 14]):
            continue
        if not CLAIM.search(low[max(0, match.start() - 32) : match.start()].rstrip()):
            continue
        count = int(match["n"]) if match["n"].isdigit() else WORDS[match["n"]]
        yield count, {to_singular(match["noun"])}, match[0], match.end()
    if low.isascii():
        return
    for match in CJK.finditer(low):
        before = low[max(0, match.start() - 10) : match.start()]
        after = low[match.end() : match.end() + 24]
        if COMPARES.search(before[-4:]) or not (CJK_CLAIM.search(before) or CJK_EXISTS.match(after)):
            continue
        nouns = {
            noun
            for noun, words in NOUNS.items()
            if any(word in match[0] + after[:8] or word in before for word in words)
        }
        if nouns or (match[0][-1] in "件冊册张本笔条封份通" and not NOT_THINGS.match(after)):
            count = int(match["n"]) if match["n"].isdigit() else CJK_WORDS[match["n"]]
            yield count, nouns, match[0] + after[:6], match.end()


def iterate_listings(value: Any, tool: str) -> Iterator[Listing]:
    """Yield the lists of a result with the nouns of their field, and of the tool for a list without one."""
    waiting: list[tuple[Any, set[str], bool]] = [
        (value, {to_singular(word) for word in split_tool_name(tool)[1:]}, False)
    ]
    while waiting:
        held, nouns, inner = waiting.pop()
        if isinstance(held, dict):
            for name, each in held.items():
                if isinstance(each, dict | list):
                    own = {to_singular(word) for word in split_tool_name(name)}
                    waiting.append((each, own | nouns if name in GENERAL else own, inner))
        elif isinstance(held, list):
            yield Listing(nouns, held, inner)
            waiting += [(each, set(), True) for each in held if isinstance(each, dict)]


GENERAL = ("results", "data", "items", "matches", "rows", "list")


def is_wrong(facts: TruthView, i: int, low: str, count: int, known: list[Listing], end: int) -> bool:
    lengths = [len(each.rows) for each in known]
    if count in lengths or any(count in count_groups(each.rows) for each in known):
        return False
    if any(sum(lengths[at:]) == count for at in range(len(lengths))):
        return False
    named = [sum(is_named(row, low[end:]) for row in each.rows) for each in known]
    if count in named or sum(named) == count:
        return False
    if count > sum(lengths):
        return float(count) not in facts.numbers_before(i) or max(named) > 0
    # Fewer than listed can be a selection: wrong only where the text then names one row more or less.
    rest = low[end:]
    return not INCLUDING.search(rest) and any(at >= 2 and abs(at - count) == 1 for at in named)


def count_groups(rows: list[Any]) -> set[int]:
    """Return how many rows share each value of each field: "two delivered orders" of five."""
    groups: Counter[tuple[str, Any]] = Counter()
    for row in rows:
        if isinstance(row, dict):
            groups.update((name, value) for name, value in row.items() if is_scalar(value))
    found = set(groups.values())
    return found | {len(rows) - each for each in found}


def is_named(row: Any, low: str) -> bool:
    """Return whether a text names a row: one of its telling values stands in it."""
    values = row.values() if isinstance(row, dict) else [row]
    return any(isinstance(each, str) and len(each) >= 2 and each.lower() in low for each in values)
