"""How a trainer is started: what `simia train` prints or runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Launch:
    """`env` is added to the process's own; `notes` are said before it starts; `prepare` writes what it reads, and is called by a
    start alone: whoever only looks must not write over the files of a run."""

    command: list[str]
    cwd: Path | None = None
    env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    prepare: Callable[[], None] | None = None
    check: list[str] | None = None
    """A command of the trainer's environment that a dry run asks; what it says on stderr is what is wrong."""


def as_setting(value: Any) -> str:
    """A value as `--set` reads it back. A date, which YAML makes of 2026-11-21, is text again."""
    return json.dumps(value, default=str)
