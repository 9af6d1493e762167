"""Amounts that an answer calls the refund, total, balance or fee, and that the results call otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator

from simia.errors import Code, Issue
from simia.json_values import is_number, iterate_objects
from simia.quality.truth.facts import TruthView
from simia.quality.truth.number_search import is_sum
from simia.quality.truth.quantities import Quantity, narrow

KEYS = {
    "refund": re.compile(r"refund", re.I),
    "total": re.compile(r"^(?:grand_|new_|order_)?total(?:_(?:price|amount|cost|due|charge))?$", re.I),
    "balance": re.compile(r"balance", re.I),
    "fee": re.compile(r"(?:^|_)fee", re.I),
    "shipping": re.compile(r"^shipping(?:_(?:fee|cost))?$|delivery_(?:fee|cost)", re.I),
}
LABELS = {
    "refund": re.compile(r"refund(?:ed)?(?: amount)?(?: (?:is|of|will be|comes to|total(?:s|ing)?|for))*[ :]*\W{0,3}$|(?:退款|返金)(?:金额|额|額|金額)?(?:は|为|是|：|:|了|共)?[ ]*\W{0,2}$"),
    "total": re.compile(r"(?<!sub)(?<!sub-)total(?: (?:amount|price|cost|is|of|was|now|will be|comes to|charge))*[ :]*\W{0,3}$|(?:总价|总计|合计|总额|合計|総額)(?:金额|金額|额|額)?(?:は|为|是|：|:|共)?[ ]*\W{0,2}$"),
    "balance": re.compile(r"balance(?: (?:is|of|now|due|currently))*[ :]*\W{0,3}$|(?:余额|残高|余額)(?:は|为|是|：|:)?[ ]*\W{0,2}$"),
    "fee": re.compile(r"\bfee(?: (?:is|of))*[ :]*\W{0,3}$|(?:手续费|手数料)(?:は|为|是|：|:)?[ ]*\W{0,2}$"),
    "shipping": re.compile(r"shipping(?: (?:is|of|costs?|fee))*[ :]*\W{0,3}$|(?:运费|送料)(?:は|为|是|：|:)?[ ]*\W{0,2}$"),
}  # fmt: skip


def find_wrong_label(facts: TruthView, i: int, text: str, amounts: list[Quantity]) -> Issue | None:
    """Find an amount that is called the refund, total, balance or fee, where every result before says another one."""
    low = narrow(text).lower()
    said = {each.value for each in amounts}
    for each in amounts:
        lead = low[max(0, each.start - 48) : each.start]
        for name, label in LABELS.items():
            if not label.search(lead):
                continue
            values = [value for step in facts.steps if step.at < i for value in iterate_fields(step.result, KEYS[name])]
            # The newest result decides; a text that names the right value too explains how it came about.
            if not values or said & set(values) or any(abs(each.value - value) < 0.51 for value in values):
                continue
            if is_sum(each.value, values, 0.006):
                continue
            detail = f"the {name} is said to be {each.value:g}, the results say {values[-1]:g}"
            return Issue(code=Code.WRONG_AMOUNT, where=f"messages[{i}]", detail=detail)
    return None


def iterate_fields(value: object, name: re.Pattern[str]) -> Iterator[float]:
    """Yield the numbers of the fields with such a name."""
    for held in iterate_objects(value):
        for key, each in held.items():
            if is_number(each) and name.search(key):
                yield float(each)
