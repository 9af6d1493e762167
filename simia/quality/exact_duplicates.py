"""Hash a conversation to find exact duplicates; call ids, spacing and letter case do not count."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import orjson

from simia.quality.trajectory_view import TrajectoryView
from simia.trajectory import Trajectory

SPACES = b" \t\r\n"
LOWER = bytes(range(256)).lower()


def hash_content(t: Trajectory, view: TrajectoryView | None = None) -> str:
    """Hash messages and calls, without reasoning, system text and tools."""
    said = (view or TrajectoryView(t)).raw.translate(LOWER, SPACES)
    return hashlib.blake2b(said, digest_size=16).hexdigest()


def normalize_text(text: str) -> str:
    return " ".join(text.lower().split())


def normalize_arguments(arguments: dict[str, Any] | None) -> str:
    if arguments is None:
        return ""
    try:
        text = orjson.dumps(arguments, option=orjson.OPT_SORT_KEYS).decode()
    except TypeError:  # an integer beyond 64 bits, or a lone surrogate
        text = json.dumps(arguments, sort_keys=True)
    return normalize_text(text.replace("\\n", " "))
