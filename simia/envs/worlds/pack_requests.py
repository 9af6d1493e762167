"""The isolation, interpreter, network, variables and files that a pack requests, and the user's grants: a pack cannot grant itself anything.

Every pack can read the system's programs and libraries, simia's interpreter, and the environments that simia built in its cache, which it
names without a path. Any other file or folder needs a grant: without it the pack is not opened.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from simia.config_secrets import is_secret_variable
from simia.errors import UserError
from simia.masking import hide
from simia.pack import ExecutableSpec, Pack
from simia.sandbox.bubblewrap import Bind, list_interpreter_paths
from simia.sandbox.grants import check_grant, explain_refusal, is_below, is_shown
from simia.search_path import cache_root, data_root
from simia.venvs import FOR_PACKS, RECIPES, ensure_environment

SETTINGS = (
    "/etc/fonts",
    "/etc/libreoffice",
)  # settings of system programs, without secrets: no grant needed
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def list_granted_binds(pack: Pack, read: Sequence[str]) -> tuple[Bind, ...]:
    """Return the host paths to bind: every granted path, and the requested paths within them.

    Raises `UserError` for a grant that is not permitted, and for a request that was not granted.
    """
    granted = [check_grant(path) for path in read]
    asked = list_requested_paths(pack.executable) if pack.executable else {}
    found, missing = dict.fromkeys(granted), []
    for path, key in asked.items():
        real = os.path.realpath(path)
        if reason := explain_refusal(real):
            raise UserError(
                f"pack {pack.name} asks to read {resolve_path(path)} ({key} in pack.yaml), which cannot be granted: {reason}"
            )
        if not os.path.exists(real):
            raise UserError(
                f"pack {pack.name} asks to read {resolve_path(path)} ({key} in pack.yaml), which does not exist"
            )
        if any(is_below(real, outside) for outside, _ in granted):
            found[real, path] = None
        else:
            missing.append(path)
    if missing:
        raise UserError(
            f"pack {pack.name} asks to read {', '.join(map(resolve_path, missing))}: if you trust it with that, open it with "
            f"{grant_options(missing)} (in a config backend_settings.read, in Python read=[…])"
        )
    return tuple(found)


def list_requested_paths(how: ExecutableSpec) -> dict[str, str]:
    """Return host path that the pack asks to read → the key of pack.yaml that asks for it."""
    found = {os.path.normpath(name): "needs" for name in how.needs if name.startswith("/")}
    if how.python and how.python.startswith("/"):
        folders = [*list_interpreter_paths(how.python), str(Path(how.python).parent.parent)]
        found |= {os.path.normpath(path): "python" for path in folders}
    return {path: key for path, key in found.items() if not is_shown(path) and path not in SETTINGS}


def resolve_path(path: str) -> str:
    """Return a path together with its target, so that a link in the pack's own folder cannot hide the target."""
    real = os.path.realpath(path)
    return path if real == path else f"{path} (a link to {escape_path(real)})"


def escape_path(path: str) -> str:
    """Quote a path for a shell, with every invisible character escaped."""
    if path.isprintable():
        return path
    escaped = "".join(
        each if each.isprintable() and each not in "'\\" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(each))
        for each in path
    )
    return f"$'{escaped}'"


def grant_options(paths: Sequence[str]) -> str:
    """Return the options that grant the targets of these paths."""
    return " ".join(f"--grant-read {quote_path(os.path.realpath(path))}" for path in paths)


def quote_path(path: str) -> str:
    """Quote like `shlex.quote`, with invisible characters escaped."""
    return shlex.quote(path) if path.isprintable() else escape_path(path)


def option_words(pack: Pack) -> str:
    """Return all options that grant the pack's requests; empty if it has none."""
    how = pack.executable
    if how is None:
        return ""
    words = ["--network"] if how.network else []
    words += [f"--variable {name}" for name in how.variables]
    paths = list(list_requested_paths(how))
    return " ".join([*words, *([grant_options(paths)] if paths else [])])


def list_needed_folders(how: ExecutableSpec) -> tuple[str, ...]:
    """Folders that a pack gets without a grant: environments of simia's, and settings of the system's programs."""
    names = [name for name in how.needs if not name.startswith("/")]
    settings = [path for path in SETTINGS if path in map(os.path.normpath, how.needs) and os.path.isdir(path)]
    return (*map(find_cached_folder, names), *settings)


def find_cached_folder(name: str) -> str:
    """Return the folder of an environment in simia's cache by its name. Raises `UserError` for a name that leads out of the cache."""
    root = cache_root() / "envs"
    folder = root / name
    if not PLAIN.fullmatch(name):
        raise UserError(f"needs: {name!r} is neither an absolute path nor the name of an environment in simia's cache")
    if not folder.is_dir():
        raise UserError(f"the pack needs the environment {name}, which is not built here: import the pack again")
    if os.path.realpath(folder) != os.path.join(os.path.realpath(root), name):
        raise UserError(f"{folder} is a link that leads elsewhere: remove it and import the pack again")
    return str(folder)


def check_environment(name: str) -> None:
    """Raise `UserError` for the environment of a trainer or a model server, which a pack must not build."""
    if name in RECIPES and name not in FOR_PACKS:
        raise UserError(
            f"python: {name!r} in pack.yaml is an environment of a trainer or a model server; a pack may name {', '.join(FOR_PACKS)}"
        )


def choose_isolation(pack: Pack) -> str:
    """The isolation that a pack gets unless the person who opens it chooses another. `shared` in pack.yaml applies to bundled packs
    only: an untrusted pack must not decide that its episodes share a process."""
    assert pack.executable is not None
    asked = pack.executable.isolation
    bundled = pack.root is not None and pack.root.resolve().is_relative_to(data_root() / "seeds")
    return "process" if asked == "shared" and not bundled else asked


def find_interpreter(name: str) -> str:
    """Find the interpreter of a virtual environment by its name, or at that path."""
    check_environment(name)
    if not name.startswith("/"):
        python = ensure_environment(name)
        find_cached_folder(python.parent.parent.name)
        return str(python)
    if not os.access(name, os.X_OK):
        raise UserError(f"{name} is not an interpreter that can be run: correct `python` in pack.yaml")
    return name


def read_variables(variables: list[str]) -> dict[str, str]:
    """Read the values of environment variables. They go into the sandbox, and nowhere else."""
    missing = [name for name in variables if name not in os.environ]
    if missing:
        raise UserError(f"the environment has no variable {', '.join(missing)}: export it first")
    for name in variables:
        if is_secret_variable(name, os.environ[name]):
            hide(os.environ[name])
    return {name: os.environ[name] for name in variables}


def describe_requests(pack: Pack) -> list[tuple[str, str]]:
    """Return (kind, description) of each request of the pack, to be shown before it is opened."""
    how = pack.executable
    if how is None:
        return []
    rows = [("network", "granted with --network")] if how.network else []
    rows += [("variable", f"{name}: granted with --variable {name}") for name in how.variables]
    if how.python and not how.python.startswith("/"):
        recipe = RECIPES.get(how.python)
        if recipe and how.python not in FOR_PACKS:
            word = "refused: an environment of a trainer or a model server"
        else:
            word = "an environment that simia builds" + (f" ({recipe.size})" if recipe else "")
        rows.append(("interpreter", f"{how.python}, {word}"))
    elif how.python:
        rows.append(("interpreter", f"{how.python}, of this machine"))
    rows += [("environment", f"{name}, in simia's cache") for name in how.needs if not name.startswith("/")]
    for path in list_requested_paths(how):
        reason = explain_refusal(os.path.realpath(path))
        word = f"never granted: {reason}" if reason else f"granted with {grant_options([path])}"
        rows.append(("read", f"{resolve_path(path)}: {word}"))
    return rows
