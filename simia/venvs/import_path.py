"""Let another environment's interpreter import simia: the package by a link, and the dependencies that its environment lacks."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Collection
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from simia.errors import UserError
from simia.search_path import cache_root
from simia.venvs.build import Say, lock_file, normalize_name

LIST = "import json; from importlib.metadata import distributions; print(json.dumps({d.name: d.version for d in distributions() if d.name}))"


def make_python_path(python: Path, say: Say = lambda line: None, *, extras: Collection[str] = ()) -> str:
    """Return the PYTHONPATH that lets a trainer's interpreter import simia: the package alone, and the dependencies that it lacks, with
    those of simia's `extras`."""
    return os.pathsep.join([str(make_simia_path()), str(ensure_missing_packages(python, say, extras))])


def make_simia_path() -> Path:
    """A folder with only a link to the simia package: on a trainer's path it adds no other package of simia's environment."""
    package = Path(__file__).resolve().parents[1]
    folder = cache_root() / "paths" / hashlib.sha256(str(package).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    with lock_file(folder.with_suffix(".lock")):
        link = folder / "simia"
        if not link.is_dir():
            link.unlink(missing_ok=True)  # of a package that has gone
            link.symlink_to(package, target_is_directory=True)
    return folder


def ensure_missing_packages(python: Path, say: Say = lambda line: None, extras: Collection[str] = ()) -> Path:
    """Return a folder with the dependencies of simia and its `extras` that the interpreter's environment lacks, in the versions installed here.

    It is made once. Packages of the trainer are neither shadowed nor replaced. Raises `UserError` with pip's last line, or if neither
    environment has an extra's package.
    """
    has = {normalize_name(name) for name in list_distributions(python)}
    needed = list_needed(extras)
    own = distribution("simia")
    for extra in extras:
        added = set(list_requirements(own, [extra])) - set(list_requirements(own, []))
        if lacking := added - needed.keys() - has:
            raise UserError(
                f"the trainer needs simia's extra {extra}, and {', '.join(sorted(lacking))} is not installed: pip install 'simia[{extra}]'"
            )
    pins = [f"{name}=={version}" for name, version in sorted(needed.items()) if name not in has]
    key = hashlib.sha256(json.dumps([str(python), *pins]).encode()).hexdigest()[:12]
    folder = cache_root() / "envs" / f"beside-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock_file(folder.parent / f"{folder.name}.lock"):
        if not folder.is_dir():
            draft = folder.parent / f".{folder.name}.{os.getpid()}"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            if pins:
                say(f"beside {python}: {' '.join(pins)}")
                pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-deps"]
                pip += ["--only-binary", ":all:", "--target", str(draft), *pins]
                # `cwd`: a Python below 3.11 has no -P.
                done = subprocess.run(
                    pip, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, cwd=draft
                )
                if done.returncode:
                    last = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
                    raise UserError(f"simia's dependencies could not be installed for {python}: {last[:200]}")
            draft.rename(folder)
    return folder


def list_distributions(python: Path) -> dict[str, str]:
    """Return every distribution of an interpreter's environment with its version. Raises `UserError` if it cannot be run."""
    try:
        asked = subprocess.run([str(python), "-I", "-c", LIST], capture_output=True, text=True, check=True)
        return dict(json.loads(asked.stdout))
    except (OSError, subprocess.CalledProcessError, ValueError):
        raise UserError(f"{python} is not a Python interpreter that can be run") from None


def list_requirements(one: Distribution, extras: Collection[str]) -> list[str]:
    """Normalized names of what a distribution requires: without an extra, and for these extras."""
    named = [rf"extra == ['\"]{re.escape(extra)}['\"]" for extra in extras]
    lines = [
        line for line in one.requires or () if "extra ==" not in line or any(re.search(each, line) for each in named)
    ]
    return [normalize_name(re.match(r"[\w.-]+", line).group()) for line in lines]  # type: ignore[union-attr]


def list_needed(extras: Collection[str] = ()) -> dict[str, str]:
    """Every distribution that simia and its `extras` need, dependencies of dependencies too, with the version that is installed here."""
    found: dict[str, str] = {}
    waiting = ["simia"]
    while waiting:
        try:
            one = distribution(waiting.pop())
        except PackageNotFoundError:  # its marker names another platform or Python, so it is not needed here
            continue
        if normalize_name(one.name) not in found:
            found[normalize_name(one.name)] = one.version
            waiting += list_requirements(one, extras if one.name == "simia" else ())
    if found.pop("simia", None) is None:
        raise UserError(
            "simia is on the path but not installed here, so its dependencies are unknown: install its clone or its wheel with pip"
        )
    return found
