"""What a part of a reward says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartResult:
    """`value` in 0 to 1, or None where it cannot be judged; `reason` in a line."""

    value: float | None
    reason: str
    vacuous: bool = False
    """It holds, but there was nothing to verify: it earns nothing by itself."""
