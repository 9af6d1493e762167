"""Find prompts, configs and seeds by name in the folders of `SIMIA_PATH`, then among the bundled ones; or at an explicit path.

Bundled files are in the wheel under `simia/_data`, in a clone at its root. A path is explicit if it begins with `/`, `./`, `../` or
`~`, or if it exists and no bundled file has that name: a file in the working directory never replaces a bundled one.
`kind` is one of `prompts`, `configs`, `seeds`.

A run may be continued in another folder than the one in which it was started. `searching_from` makes its relative paths valid there.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from simia.errors import UserError

Kind = Literal["prompts", "configs", "seeds"]
ROW_FILES = (".json", ".jsonl", ".parquet")
MOST_NAMED = 8
IMPORTS = (
    (r"tau2-(\w+)", r"simia import tau2 \1"),
    (r"officebench", "simia import officebench FOLDER"),
    (r"apigen-mt/\w+", "simia pack new --from trajectories data/seeds/apigen-mt_5k.json --out apigen-mt"),
)
"""Packs that bundled configs use but the wheel does not contain, each with the command that makes it in the working directory."""


_start_folder: ContextVar[Path | None] = ContextVar("start_folder", default=None)


def find_working_directory() -> str | None:
    """Return the working directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


@contextmanager
def searching_from(folder: Path | None) -> Iterator[None]:
    """Let `locate` find relative paths in this folder, in which a run was started, before the working directory."""
    is_here = folder is not None and str(folder) == find_working_directory()
    token = _start_folder.set(None if is_here else folder)
    try:
        yield
    finally:
        _start_folder.reset(token)


def locate(path: str | Path) -> Path:
    """Return a path with `~` expanded; if it is relative and exists in the folder of `searching_from`, the path there."""
    given, start = Path(path).expanduser(), _start_folder.get()
    return start / given if start is not None and (start / given).exists() else given


def data_root() -> Path:
    """Return the folder of the bundled files: inside the wheel, or at the root of a clone, with links resolved."""
    package = Path(__file__).resolve().parent
    packaged = package / "_data"
    return packaged if packaged.is_dir() else package.parent


def cache_root() -> Path:
    """Return the folder of models, trainer environments and other files that can be made again; never inside a clone."""
    return Path(os.environ.get("SIMIA_CACHE") or Path.home() / ".cache" / "simia")


def user_roots() -> list[Path]:
    """Return the folders of `SIMIA_PATH`, whose files replace bundled ones."""
    return [Path(p).expanduser() for p in os.environ.get("SIMIA_PATH", "").split(os.pathsep) if p]


def resource_roots() -> list[Path]:
    return [*user_roots(), data_root()]


def looks_like_path(name: str) -> bool:
    """Check whether a name can only be a path: absolute, or beginning with `.` or `~`."""
    return name.startswith(("./", "../", "~")) or name in (".", "..") or Path(name).is_absolute()


def find_named_resource(kind: Kind, name: str | Path) -> Path | None:
    """Return the file or folder of that name in `SIMIA_PATH` or among the bundled ones."""
    if looks_like_path(str(name)):
        return None
    return next((found for root in resource_roots() if (found := root / kind / name).exists()), None)


def find_resource(kind: Kind, name: str | Path) -> Path:
    """Return the file or folder with that name, or at that path. Raises `UserError`, which lists the known names."""
    if (named := find_named_resource(kind, name)) is not None:
        return named
    given = locate(name)
    if given.exists():
        return given
    if kind == "seeds" and (start := _start_folder.get()) is not None and not given.is_absolute():
        raise UserError(
            f"{name} is neither in {start}, where the run was started, nor in this folder: put it back, or resume the run in the folder"
            " that it was moved to"
        )
    if given.is_absolute() or str(name).startswith(("./", "../")):
        raise UserError(f"{name} does not exist")
    if kind == "seeds" and given.suffix in ROW_FILES:
        raise UserError(f"{name} does not exist")
    if kind == "configs":
        raise UserError(f"no config named {str(name).removesuffix('.yaml')!r}{suggest_config(given)}")
    what = "pack" if kind == "seeds" else kind.removesuffix("s")
    missing = f"no {what} named {str(name)!r}"
    if kind == "seeds" and (given.suffix or len(given.parts) > 1):  # meant as a path
        missing = f"no such file or folder: {str(name)!r}, and no pack of that name"
    if kind == "seeds" and (made := list_made_packs(given.parent)):
        raise UserError(f"{missing}; {given.parent} holds the packs {', '.join(made)}: name one of them")
    for pattern, command in IMPORTS if kind == "seeds" else ():
        if found := re.fullmatch(pattern, str(name)):
            raise UserError(f"{missing}; make it by: {found.expand(command)} (or give a path)")
    known = f"there are: {', '.join(list_names(kind)) or 'none'}"
    if near := difflib.get_close_matches(given.name, list_names(kind), n=3):
        raise UserError(f"{missing}; did you mean {' or '.join(near)}? ({known}; or give a path)")
    raise UserError(f"{missing}; {known} (or give a path)")


def list_made_packs(folder: Path) -> list[str]:
    """List the packs in a folder below the working directory, as paths; at most the first `MOST_NAMED`."""
    if folder == Path() or not folder.is_dir():
        return []
    made = [str(each) for each in (folder, *sorted(folder.iterdir())) if (each / "pack.yaml").is_file()]
    return made if len(made) <= MOST_NAMED else [*made[:MOST_NAMED], "…"]


def suggest_config(given: Path) -> str:
    """Return a hint to append to a message: the known configs with a similar name."""
    known = [name.removesuffix(".yaml") for name in list_names("configs") if name.endswith(".yaml")]
    alike = difflib.get_close_matches(given.stem, {Path(name).name for name in known}, n=1)
    near = [name for name in known if Path(name).name in alike and given.parent.name in ("", Path(name).parent.name)]
    near = near or [
        name for name in known if difflib.get_close_matches(given.name, [Path(name).parent.name], cutoff=0.8)
    ]
    return (f"; did you mean {' or '.join(near)}?" if near else "") + " (simia config lists all; or give a path)"


def describe_overrides() -> list[str]:
    """Describe each bundled file that `SIMIA_PATH` replaces, and each file in the working directory that has the name of a
    bundled one and is not used."""
    lines, replaced = [], set[str]()
    for root in user_roots():
        found = list_shadowing(root)
        lines += [f"{name} is taken from {root} (SIMIA_PATH)" for name in found if name not in replaced]
        replaced |= set(found)
    packs = [f"./{name}" for name in list_names("seeds", [data_root()]) if (Path(name) / "pack.yaml").is_file()]
    if Path.cwd().name == "seeds" and is_clone(Path.cwd().parent):
        packs = []
    files = [] if is_clone(Path.cwd()) else list_shadowing(Path())
    if unused := [*packs, *(f"./{name}" for name in files if name not in replaced)]:
        shown = ", ".join(unused[:3]) + (f" and {len(unused) - 3} more" if len(unused) > 3 else "")
        lines.append(
            f"not used, because simia has a bundled one of the same name: {shown} (to use it: SIMIA_PATH=. or the path with ./)"
        )
    return lines


def list_shadowing(root: Path) -> list[str]:
    """List the files (of packs: the folders) under `root` that have the name of a bundled one."""
    bundled = data_root()
    if root.resolve() == bundled:
        return []
    files = [f"{kind}/{name}" for kind in KINDS for name in list_names(kind, [bundled])]
    return [name for name in files if os.path.exists(root / name)]


def is_clone(folder: Path) -> bool:
    """Check whether the folder is the root of a clone of simia, whose prompts, configs and seeds are the bundled ones."""
    return folder == data_root() or all((folder / name).is_file() for name in CLONE)


def list_names(kind: Kind, within: list[Path] | None = None) -> list[str]:
    """List every name in `SIMIA_PATH` and among the bundled files, or in these folders alone."""
    found: set[str] = set()
    for root in resource_roots() if within is None else within:
        base = root / kind
        if kind == "seeds":
            found |= {p.parent.name for p in base.glob("*/pack.yaml")}
            found |= {f"{p.parts[-3]}/{p.parts[-2]}" for p in base.glob("*/*/pack.yaml") if p.parts[-3] not in found}
        else:
            found |= {str(p.relative_to(base)) for p in base.rglob("*") if p.is_file() and p.suffix in TEXT}
    return sorted(found)


CLONE = ("simia/search_path.py", "configs/amplify/default.yaml")
KINDS: tuple[Kind, ...] = ("prompts", "configs", "seeds")
TEXT = {".yaml", ".yml", ".j2", ".md", ".txt", ".json", ".css", ".js"}


def file_hash(path: Path) -> str:
    """Return the short SHA-256 of a file, which is stored with everything that was made with it."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
