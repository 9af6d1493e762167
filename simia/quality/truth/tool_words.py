"""Tell from the words of a tool's name whether it changes something."""

from __future__ import annotations

import re
from functools import lru_cache

from simia.quality.entity_ledger import READS

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
WRITE_WORDS = frozenset(
    [
        "activate",
        "add",
        "append",
        "apply",
        "approve",
        "archive",
        "assign",
        "book",
        "buy",
        "cancel",
        "change",
        "charge",
        "close",
        "create",
        "deactivate",
        "delete",
        "disable",
        "edit",
        "enable",
        "enroll",
        "exchange",
        "extend",
        "forward",
        "insert",
        "invite",
        "issue",
        "lock",
        "make",
        "modify",
        "move",
        "order",
        "pay",
        "place",
        "process",
        "purchase",
        "refund",
        "refuel",
        "register",
        "remove",
        "rename",
        "renew",
        "reply",
        "reschedule",
        "reserve",
        "reset",
        "return",
        "save",
        "schedule",
        "send",
        "set",
        "submit",
        "subscribe",
        "suspend",
        "resume",
        "transfer",
        "unblock",
        "block",
        "unlock",
        "unsubscribe",
        "update",
        "upgrade",
        "upload",
        "withdraw",
        "write",
        "post",
        "replace",
        "rebook",
        "redeem",
        "notify",
        "email",
        "freeze",
        "unfreeze",
        "pause",
        "enrol",
        "swap",
        "downgrade",
        "terminate",
        "reimburse",
    ]
)
READ_WORDS = frozenset(
    [
        "get",
        "list",
        "find",
        "search",
        "read",
        "show",
        "check",
        "quote",
        "preview",
        "look",
        "lookup",
        "count",
        "calculate",
        "view",
        "query",
        "describe",
        "fetch",
        "convert",
        "estimate",
        "validate",
        "verify",
        "think",
        "analyze",
        "retrieve",
        "compare",
        "is",
        "has",
        "track",
        "detect",
        "translate",
        "generate",
        "recommend",
        "suggest",
    ]
)


@lru_cache(maxsize=4096)
def classify_name(name: str) -> bool | None:
    words = split_tool_name(name)
    if READS.match(name) or (words and words[0] in READ_WORDS):
        return False
    if any(word in WRITE_WORDS for word in words):
        return not any(word in READ_WORDS for word in words)
    return False if any(word in READ_WORDS for word in words) else None


@lru_cache(maxsize=4096)
def split_tool_name(name: str) -> tuple[str, ...]:
    """Split a tool's name into words in lower case: `cancelOrder`, `order.cancel` and `cancel_order` are alike."""
    return tuple(word.lower() for word in WORDS.findall(name))
