"""The result of one part of a reward."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartResult:
    """`value` in 0 to 1, or None where it cannot be judged; `reason` in a line."""

    value: float | None
    reason: str
    vacuous: bool = False
    """Whether the part holds only because there was nothing to verify; it then earns nothing."""
