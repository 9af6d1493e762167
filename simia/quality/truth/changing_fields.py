"""Values that change without a call: fields of what is measured, states of a process that goes on by itself, and readings of live tools."""

from __future__ import annotations

import re
from functools import lru_cache
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
LIVE = frozenset(
    [
        "quote",
        "quotes",
        "ticker",
        "forex",
        "crypto",
        "sensor",
        "sensors",
        "telemetry",
        "metrics",
        "temperature",
        "weather",
    ]
)


@lru_cache(maxsize=4096)
def is_fleeting(name: str) -> bool:
    """Whether a field of this name may change without a call."""
    return VOLATILE.search(name) is not None or FLEETING.search(name) is not None


def goes_on(name: str, was: Any, value: Any) -> bool:
    """Whether both values are states of a process, and one of them says that it goes on by itself."""
    if not (isinstance(was, str) and isinstance(value, str) and STATE.search(name)):
        return False
    return any(GOES_ON.fullmatch(each.strip()) for each in (was, value))


def reads_live_values(tool: str) -> bool:
    """Whether the name of a tool says that it reads what changes by itself, such as a sensor or a quote."""
    return not LIVE.isdisjoint(split_tool_name(tool))
