"""One budget for several engines: what they spend together, and what was spent before they were made.

Roles of a rollout may have a model each, and a resumed run goes on with what is left; a cap is the user's, not an engine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from simia.trajectory import Usage

if TYPE_CHECKING:
    from simia.llm.engine import Engine

Cap = Literal["max_tokens", "max_cost"]


@dataclass
class Purse:
    """One budget: of the engines that share it, and of what was spent `before` they were made, in so many requests and answers."""

    engines: list[Engine]
    before: Usage = field(default_factory=Usage)
    sent_before: int = 0
    answered_before: int = 0

    def spent(self, cap: Cap) -> float:
        return cost_in(cap, self.before) + sum(cost_in(cap, engine.stats.usage) for engine in self.engines)

    def under_way(self, cap: Cap) -> float:
        """What the calls in flight will cost, as far as one can know."""
        return sum(engine.gate.in_flight * engine.mean(cap) for engine in self.engines)

    def mean(self, cap: Cap) -> float:
        return self.spent(cap) / self.answered if self.answered else 0.0

    @property
    def answered(self) -> int:
        return self.answered_before + sum(engine.stats.answered for engine in self.engines)

    @property
    def sent(self) -> int:
        return self.sent_before + sum(engine.stats.sent for engine in self.engines)

    def look_again(self, left: Engine) -> None:
        """A call of one engine is over: there may be room for those that wait at the others."""
        for engine in self.engines:
            if engine is not left:
                engine.gate.look_again()


def cost_in(cap: Cap, usage: Usage) -> float:
    return usage.prompt + usage.completion if cap == "max_tokens" else usage.cost or 0.0


def share_budget(engines: Sequence[Engine], before: Usage | None = None, *, sent: int = 0, answered: int = 0) -> None:
    """Let the caps hold for all of them together, and for what an earlier session spent."""
    purse = Purse(list(engines), before or Usage(), sent, answered)
    for engine in engines:
        engine.purse = purse
