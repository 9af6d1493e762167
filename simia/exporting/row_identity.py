"""Find trajectories that an export would write as equal rows.

The duplicates among generated data are found by `quality.exact_duplicates`, which ignores spacing, letter case, system text and tools. An
export may hold data of the user, in which these matter.
"""

from __future__ import annotations

import hashlib
import json

from simia.quality.suites import detect_suite
from simia.trajectory import Trajectory


def hash_row(t: Trajectory, *, system: bool = True, reasoning: bool | None = None) -> str:
    """Hash what an export writes of a trajectory: system text, tools, messages and calls, without call ids.

    Args:
        t: The trajectory.
        system: Whether its system text is written. False: another text replaces it.
        reasoning: Whether its reasoning is written. None: only if the suite's prompt requires it.
    """
    reasoned = detect_suite(t).reasoned if reasoning is None else reasoning
    written = {
        "system": (t.system or None) if system else None,
        "tools": [tool.flat() for tool in t.tools],
        "messages": [
            [
                message.role,
                message.content or None,
                (message.reasoning or None) if reasoned else None,
                [[call.name, call.arguments, call.raw] for call in message.calls],
                message.train is False,
            ]
            for message in t.messages
        ],
    }
    return hashlib.blake2b(json.dumps(written, sort_keys=True).encode(), digest_size=16).hexdigest()
