"""Patterns of pack folders in an environment config: `packs: [gyms/*]` names every pack in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simia.search_path import looks_like_path, resource_roots


def expand_pack_patterns(shares: Sequence[Any]) -> list[Any]:
    """Read names as shares, and replace each share whose name contains `*` by one share for each pack folder that matches.

    Folders are taken in the order of their names. A pattern without a match in the working directory is matched with the bundled packs (`gyms/*`).
    Raises `ValueError` for a pattern that matches no pack.
    """
    found: list[Any] = []
    for share in shares:
        given = {"pack": share} if isinstance(share, str) else share
        name = given.get("pack") if isinstance(given, dict) else None
        if not isinstance(name, str) or "*" not in name:
            found.append(given)
            continue
        pattern = Path(name).expanduser()
        root = Path(pattern.anchor)
        folders = find_folders(root, pattern.relative_to(root))
        if not folders and not looks_like_path(name):
            folders = next(filter(None, (find_folders(each / "seeds", pattern) for each in resource_roots())), [])
        if not folders:
            raise ValueError(
                f"no folder with a pack.yaml matches {name!r}; a pattern names folders of packs, such as gyms/*"
            )
        found += [{**given, "pack": f"./{path}" if not path.is_absolute() else str(path)} for path in folders]
    return found


def find_folders(root: Path, pattern: Path) -> list[Path]:
    """The folders with a pack below `root` that match a pattern."""
    return sorted(path.parent for path in root.glob(str(pattern / "pack.yaml")))
