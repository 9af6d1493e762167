"""How a trainer is started: what `simia train` prints or runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Launch:
    """`env` is added to the process's own; `notes` are said before it starts."""

    command: list[str]
    cwd: Path | None = None
    env: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
