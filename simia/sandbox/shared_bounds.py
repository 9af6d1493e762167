"""Bounds of a sandbox that hold for all its processes, whatever code runs in them.

Bubblewrap installs a system call filter before it starts anything. In a sandbox whose workers are forked from one loaded pack
(`shared` and `process` isolation) the supervisor also bounds the sum. The kernel limits each worker, but a worker sets these limits itself, in an interpreter that the pack's code had before. Code that
runs while a pack is loaded may replace what sets them, and may leave processes behind. So the supervisor holds the sandbox
as a whole to what its workers may use together and what loading may leave.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any

from simia.errors import UserError
from simia.sandbox.inside.confine import SLACK, WHILE_LOADING, Unconfined, build_filter_program
from simia.sandbox.limits import WorkerLimits
from simia.sandbox.supervisor import WatchedSandbox

OWN_PROCESSES = 8  # bubblewrap's and the one that forks workers
GRACE = 30.0  # seconds that a worker counts after its end was ordered but not confirmed


class SharedBounds:
    """Sets the bounds of one watched sandbox by how many workers it has."""

    def __init__(self, watch: WatchedSandbox, limits: WorkerLimits) -> None:
        """The pack must be loaded: what it uses now is added to what each worker may use."""
        self._watch, self._limits = watch, limits
        self._until: dict[int, float] = {}
        watch.settle()
        self._apply()

    def add(self, number: int) -> None:
        """Count a worker that is about to be forked."""
        self._until[number] = math.inf
        self._apply()

    def remove(self, number: int, *, confirmed: bool) -> None:
        """Count a worker no longer. One whose end is not confirmed may still hold its memory."""
        if confirmed:
            self._until.pop(number, None)
        elif number in self._until:
            self._until[number] = min(self._until[number], time.monotonic() + GRACE)
        self._apply()

    def _apply(self) -> None:
        now = time.monotonic()
        self._until = {number: until for number, until in self._until.items() if until > now}
        # Memory that a worker shares with the loaded pack is counted again for it where the kernel does not tell them apart.
        each = self._limits.memory + SLACK + self._watch.baseline
        self._watch.memory = self._limits.resident + len(self._until) * each
        self._watch.processes = len(self._until) + WHILE_LOADING + OWN_PROCESSES


def open_syscall_filter(*, alone: bool, unix: bool) -> int:
    """Make a descriptor from which bubblewrap reads the system call filter of a sandbox. Raises `UserError` where none is written
    for this machine."""
    try:
        program = build_filter_program(loading=True, alone=alone, unix=unix)
    except Unconfined as error:
        raise UserError(
            f"this pack's code must run in a sandbox and {error}: use another machine, or --unsafe"
        ) from None
    reading, writing = os.pipe()
    with open(writing, "wb") as file:  # a few kilobytes, less than a pipe holds
        file.write(program)
    return reading


def is_introduction(word: dict[str, Any]) -> bool:
    """Whether it names its tools as it should: by whom → name → whether it writes. The pack's code could have sent it."""
    tools, declared = word.get("tools"), word.get("declared")
    return (
        isinstance(tools, dict)
        and isinstance(declared, dict)
        and isinstance(word.get("by_convention"), bool)
        and all(isinstance(named, dict) for named in [*tools.values(), *declared.values()])
        and all(isinstance(row, dict) for named in declared.values() for row in named.values())
    )
