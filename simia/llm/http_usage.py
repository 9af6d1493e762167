"""Read the token usage that an endpoint reports. Its figures are summed, stored and compared with a budget, so wrong ones are left out."""

from __future__ import annotations

import math
from typing import Any

from simia.trajectory import Usage

MOST_TOKENS, MOST_COST = 10**9, 10**6  # of one reply; far beyond any, and sums of them fit a ledger's integers


def read_usage(usage: Any) -> Usage:
    """The usage of a reply. All of it is unknown where one count of tokens is impossible; a cost that is impossible is unknown alone."""
    if not isinstance(usage, dict):
        return Usage()
    of_prompt = as_object(usage.get("prompt_tokens_details"))
    of_completion = as_object(usage.get("completion_tokens_details"))
    counts = {
        "prompt": usage.get("prompt_tokens"),
        "completion": usage.get("completion_tokens"),
        "cached": of_prompt.get("cached_tokens") or usage.get("prompt_cache_hit_tokens"),
        "reasoning": of_completion.get("reasoning_tokens"),
    }
    known = {name: read_number(value, MOST_TOKENS) for name, value in counts.items() if value is not None}
    cost = read_number(usage.get("cost"), MOST_COST)  # routers say what they charged
    tokens = {name: int(value) for name, value in known.items() if value is not None and value == int(value)}
    return Usage(**tokens, cost=cost) if len(tokens) == len(known) else Usage()


def read_number(value: Any, most: float) -> float | None:
    """A finite number from 0 to `most`, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None


def as_object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
