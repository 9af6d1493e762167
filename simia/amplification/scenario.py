"""Read the scenarios of runs before 0.3: a persona, tools in no order, and an unexpected event, sampled independently of each other.

New items hold a plan (`simia.amplification.request_plan`). Stored items keep their scenario, and their prompts are rendered as they were.
"""

from __future__ import annotations

from collections.abc import Sequence


def render_scenario(spec: Sequence[object]) -> str:
    """Write the hint of an item whose spec holds `[persona, tools, twist]`."""
    persona, tools, twist = spec
    parts = [f"The user {persona}."]
    if isinstance(tools, list) and tools:
        parts.append(f"Calls, in whatever order fits: {', '.join(tools)}.")
    return " ".join([*parts, str(twist)]).strip()
