"""Values that change without a call: fields of what is measured, states of a process that goes on by itself, readings of live tools, and
results of tools that make another choice each time."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from typing import Any

from simia.quality.entity_ledger import VOLATILE
from simia.quality.tool_effects import split_tool_name

# Fields that change without a call, or differ by what was asked.
FLEETING = re.compile(
    r"(?:^|_)(?:stock|available|availability|seats|score|rank|relevance|distance|temperature|celsius|fahrenheit|humidity|weather|unread|views|eta|message|note|summary|"
    r"progress|location|position|snippet|preview|duration|updated|modified|left|remaining|free|used|usage|battery|signal|level|uptime|matches?|results?|total_?(?:count|results|pages))(?:$|_)",
    re.I,
)
# A process that goes on by itself: what says this of its state has another one later. An order that is pending does not.
STATE = re.compile(r"(?:^|_)(?:status|state|phase|stage)$", re.I)
GOES_ON = re.compile(
    r"queued|enqueued|running|executing|in[ _-]?progress|processing|starting|started|stopping|building|deploying|provisioning|initializing|"
    r"uploading|downloading|syncing|indexing|rendering|compiling|training|排队中|运行中|執行中|执行中|进行中|处理中|実行中|処理中|進行中",
    re.I,
)
# Tools that read what changes by itself: their numbers do too.
LIVE_WORDS = "quote quotes ticker forex crypto sensor sensors telemetry metrics temperature weather traffic"
# Words right before "price" or "rate", as in `get_stock_price`: such prices change by themselves, the price of a product does not.
MARKET_WORDS = "stock stocks share shares exchange currency coin bitcoin gold fuel market current live spot"
# Tools that make something else or choose differently each time. The second words count only as the first or the last of a name: `roll_dice`,
# `dice_roll`.
CHOICE_WORDS = "generate generator random randomize shuffle suggest suggestion suggestions recommend recommendation recommendations"
CHOICE_WORDS_AT_ENDS = "draw roll pick"
LIVE, MARKETS = frozenset(LIVE_WORDS.split()), frozenset(MARKET_WORDS.split())
PRICES = frozenset(("price", "prices", "rate", "rates"))
CHOICES, CHOICES_AT_ENDS = frozenset(CHOICE_WORDS.split()), frozenset(CHOICE_WORDS_AT_ENDS.split())


@lru_cache(maxsize=4096)
def is_fleeting(name: str) -> bool:
    """Whether a field of this name may change without a call."""
    return VOLATILE.search(name) is not None or FLEETING.search(name) is not None


def goes_on(name: str, was: Any, value: Any) -> bool:
    """Whether both values are states of a process, and one of them says that it goes on by itself."""
    if not (isinstance(was, str) and isinstance(value, str) and STATE.search(name)):
        return False
    return any(GOES_ON.fullmatch(each.strip()) for each in (was, value))


@lru_cache(maxsize=4096)
def reads_live_values(tool: str) -> bool:
    """Whether the name of a tool says that it reads what changes by itself, such as a sensor, a quote or the price of a share."""
    words = split_tool_name(tool)
    is_priced = any(a in MARKETS and b in PRICES for a, b in pairwise(words))
    return is_priced or not LIVE.isdisjoint(words)


@lru_cache(maxsize=4096)
def chooses_anew(tool: str) -> bool:
    """Whether the name of a tool says that equal calls may rightly have different results, such as a new password or a random joke."""
    words = split_tool_name(tool.rpartition(".")[2])
    return not CHOICES.isdisjoint(words) or not CHOICES_AT_ENDS.isdisjoint(words[:1] + words[-1:])
