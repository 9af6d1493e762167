"""What an endpoint's headers say of its rate limits, and how long to wait before it would have to refuse.

`x-ratelimit-{limit,remaining,reset}-{requests,tokens}`, as OpenAI, Azure and many routers send them. The allowance refills
steadily over a minute, so the wait is for what is missing, not for the whole reset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

WINDOW = 60.0  # seconds over which these limits are counted
LONGEST = 60.0
DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


@dataclass(slots=True)
class Allowance:
    """Of one kind, as last told: how much is left, how much a window holds, seconds until it is full again."""

    left: float
    limit: float | None = None
    reset: float | None = None

    def wait(self, need: float) -> float:
        missing = need - self.left
        if missing <= 0:
            return 0.0
        waits = [self.reset] if self.reset is not None else []
        if self.limit:
            waits.append(missing / self.limit * WINDOW)
        return min([*waits, LONGEST]) if waits else 0.0


@dataclass(slots=True)
class RateLimits:
    """The latest word of one endpoint."""

    allowances: dict[str, Allowance] = field(default_factory=dict)

    def note(self, headers: Mapping[str, str]) -> None:
        for kind in ("requests", "tokens"):
            left = parse_number(headers.get(f"x-ratelimit-remaining-{kind}"))
            if left is not None:
                self.allowances[kind] = Allowance(
                    left,
                    parse_number(headers.get(f"x-ratelimit-limit-{kind}")),
                    parse_seconds(headers.get(f"x-ratelimit-reset-{kind}")),
                )

    def wait(self, tokens: float) -> float:
        """Seconds until a request of so many tokens fits. Each word is used once: the next answer brings a new one."""
        needs = {"requests": 1.0, "tokens": tokens}
        told, self.allowances = self.allowances, {}
        return max((allowance.wait(needs[kind]) for kind, allowance in told.items()), default=0.0)


def parse_number(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text is not None else None
    except ValueError:
        return None


def parse_seconds(text: str | None) -> float | None:
    """`6m0s`, `1.5s`, `20ms`, or plain seconds."""
    if text is None or not (parts := DURATION.findall(text)) or "".join(map("".join, parts)) != text.strip():
        return None
    return sum(float(amount) * SECONDS[unit] for amount, unit in parts)
