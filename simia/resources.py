"""Where prompts, configs and seeds are found: a user's file of the same name first, then ours.

Order: a path as given; each folder of `SIMIA_PATH`; the working directory; our data (in the wheel under
`simia/_data`, in a clone at its root). `kind` is one of `prompts`, `configs`, `seeds`.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Literal

from simia.errors import UserError

Kind = Literal["prompts", "configs", "seeds"]


def data_root() -> Path:
    """Our own data: inside the wheel, or at the root of a clone; behind a link, where that leads."""
    package = Path(__file__).resolve().parent
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent


def cache_root() -> Path:
    """Models, trainer environments and other things that are made again at will; never inside a clone."""
    return Path(os.environ.get("SIMIA_CACHE") or Path.home() / ".cache" / "simia")


def roots() -> list[Path]:
    users = [Path(p) for p in os.environ.get("SIMIA_PATH", "").split(os.pathsep) if p]
    return [*users, Path.cwd(), data_root()]


def find(kind: Kind, name: str | Path) -> Path:
    """The file or folder of that name. Raises `UserError` that lists what there is."""
    given = Path(name).expanduser()
    if given.is_absolute() or given.exists():
        if given.exists():
            return given
        raise UserError(f"{given} does not exist")
    for root in roots():
        candidate = root / kind / given
        if candidate.exists():
            return candidate
    what = "pack" if kind == "seeds" else kind.removesuffix("s")
    missing = f"no {what} named {str(name)!r}"
    if kind == "seeds" and (given.suffix or len(given.parts) > 1):  # meant as a path
        missing = f"no such file or folder: {str(name)!r}, and no pack of that name"
    raise UserError(f"{missing}; there are: {', '.join(names(kind)) or 'none'} (or give a path)")


def names(kind: Kind) -> list[str]:
    """Every name that `find` would accept, ours and the user's."""
    found: set[str] = set()
    for root in roots():
        base = root / kind
        if not base.is_dir():
            continue
        if kind == "seeds":
            found |= {p.parent.name for p in base.glob("*/pack.yaml")}
        else:
            found |= {str(p.relative_to(base)) for p in base.rglob("*") if p.is_file() and p.suffix in TEXT}
    return sorted(found)


TEXT = {".yaml", ".yml", ".j2", ".md", ".txt"}


def file_hash(path: Path) -> str:
    """Short SHA-256 of a file: it travels with everything the file helped to produce."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
