"""Links that an episode left: one that leads to what only checks can read must not be followed by a check."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

LIB = str(Path(__file__).resolve().parents[3])
MOST_LINKS = 40


def leads_to(link: Path, hidden: Sequence[str]) -> bool:
    """Whether a path leads into one of the folders, to one above them, or through more links than the kernel follows.

    Unlike `os.path.realpath` it sees the links on the way: where those of /proc lead depends on who asks.
    """
    places = [os.path.normpath(folder) for folder in hidden]
    place, rest = "/", [*reversed(link.parts[1:])]
    followed = 0
    while rest:
        part = rest.pop()
        place = os.path.dirname(place) if part == ".." else os.path.join(place, part)
        if any(place == folder or place.startswith(f"{folder}/") for folder in places):
            return True
        if os.path.islink(place):
            followed += 1
            if followed > MOST_LINKS:
                return True
            target = os.readlink(place)
            place = "/" if target.startswith("/") else os.path.dirname(place)
            rest += [each for each in reversed(target.split("/")) if each not in ("", ".")]
    return any(folder.startswith(place.rstrip("/") + "/") for folder in places)


def remove_link(link: Path) -> None:
    """Remove a link, also from a folder that is closed to us; its mode stays."""
    mode = stat.S_IMODE(link.parent.stat().st_mode)
    link.parent.chmod(mode | 0o300)
    try:
        link.unlink()
    finally:
        link.parent.chmod(mode)
