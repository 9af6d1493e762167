"""Find the licence of a server's source: in the metadata of its project, or from the text of its licence file."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path

UNKNOWN = "unknown"
PROJECT = (".git", "pyproject.toml", "package.json", "setup.py", "setup.cfg")
LEVELS = 6
TITLES = (  # words in the first lines of a licence; longer names come first
    ("gnu affero general public license version 3", "AGPL-3.0"),
    ("gnu lesser general public license version 3", "LGPL-3.0"),
    ("gnu lesser general public license version 2.1", "LGPL-2.1"),
    ("gnu general public license version 3", "GPL-3.0"),
    ("gnu general public license version 2", "GPL-2.0"),
    ("apache license version 2.0", "Apache-2.0"),
    ("mozilla public license version 2.0", "MPL-2.0"),
    ("this is free and unencumbered software", "Unlicense"),
    ("permission is hereby granted, free of charge, to any person", "MIT"),
    ("permission to use, copy, modify, and/or distribute this software for any purpose", "ISC"),
)


def find_source_licence(file: Path) -> str:
    """Return the licence of a source file's project as an SPDX expression; `unknown` if none is stated.

    Only the file's folder and its parents up to the project's root (the folder with `pyproject.toml`, `.git`, …) are read, so that
    the licence of something that merely contains the file is never taken.
    """
    folders = list(file.resolve().parents)[:LEVELS]
    root = next((n for n, each in enumerate(folders) if any((each / name).exists() for name in PROJECT)), 0)
    for folder in folders[: root + 1]:
        if found := read_metadata(folder) or read_licence_file(folder):
            return found
    return UNKNOWN


def read_metadata(folder: Path) -> str | None:
    """Return what `pyproject.toml` or `package.json` states."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stated = tomllib.loads((folder / "pyproject.toml").read_text("utf-8")).get("project", {}).get("license")
        stated = stated.get("text") if isinstance(stated, dict) else stated
        if isinstance(stated, str) and is_licence_name(stated):
            return stated
    with contextlib.suppress(OSError, ValueError, AttributeError):
        stated = json.loads((folder / "package.json").read_bytes()).get("license")
        if isinstance(stated, str) and is_licence_name(stated):
            return stated
    return None


def is_licence_name(text: str) -> bool:
    """Whether a stated licence is a name, not its text."""
    return 0 < len(text) < 80 and text.isprintable()


def read_licence_file(folder: Path) -> str | None:
    """Return the licence whose text a file of this folder holds."""
    names = ("license", "licence", "copying")
    with contextlib.suppress(OSError):
        for path in sorted(folder.iterdir()):
            if path.name.lower().startswith(names) and path.is_file():
                return identify_licence(path.read_text("utf-8", errors="replace")[:20_000])
    return None


def identify_licence(text: str) -> str | None:
    words = " ".join(text.split()).lower().replace("license, version", "license version")
    for title, name in TITLES:
        if title in words[:1_500]:
            return name
    if "redistribution and use in source and binary forms" in words:
        return "BSD-3-Clause" if "neither the name" in words else "BSD-2-Clause"
    return None
