"""Build the virtual environments of trainers and packs in the cache, once each.

recipes.yaml lists how each is installed. An environment's folder is named by a hash of its recipe, the interpreter and the machine.
It is built under a temporary name and renamed when its probe has passed, so an interrupted build is never used.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from simia.errors import UserError
from simia.search_path import cache_root

Say = Callable[[str], None]
MADE = re.compile(r"[a-z][a-z0-9_]*-[0-9a-f]{12}")


@dataclass(frozen=True)
class Recipe:
    """How an environment is installed. `steps`: pip's arguments; `stubs`: empty modules; `probe`: code that must run; `without`:
    packages that are uninstalled at the end."""

    name: str
    size: str
    steps: tuple[tuple[str, ...], ...]
    stubs: tuple[str, ...]
    probe: str
    without: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name, and hash of the recipe and the interpreter."""
        recipe = {name: value for name, value in asdict(self).items() if name != "without" or value}
        facts = {**recipe, "python": platform.python_version_tuple()[:2], "machine": platform.machine()}
        return f"{self.name}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]}"


RECIPES: dict[str, Recipe] = {
    name: Recipe(
        name,
        row["size"],
        tuple(tuple(step.split()) for step in row["steps"]),
        tuple(row.get("stubs", ())),
        row["probe"],
        tuple(row.get("without", ())),
    )
    for name, row in yaml.safe_load(Path(__file__).with_name("recipes.yaml").read_text("utf-8")).items()
}
FOR_PACKS = ("tau2", "bfcl", "office", "mcp", "adapters")
"""Environments that a pack may name. Those of trainers and model servers are large, and built only when a user asks for them."""


def normalize_name(name: str) -> str:
    """Return a distribution's name in the form that package indexes compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def ensure_environment(name: str, say: Say = lambda line: None) -> Path:
    """Return the interpreter of an environment, which is built if it does not exist.

    Args:
        name: A recipe, or the folder of an environment that `ensure_packages` built on this machine.
        say: Reports the progress of a build.

    Raises:
        UserError: The name is unknown, or the build failed; the message names the log.
    """
    if name in RECIPES:
        return ensure_recipe(RECIPES[name], say)
    if not MADE.fullmatch(name):
        raise UserError(f"no environment named {name!r}; there are: {', '.join(sorted(RECIPES))}")
    python = cache_root() / "envs" / name / "bin" / "python"
    if not python.exists():
        raise UserError(f"the environment {name} is not built on this machine: import its pack again, which builds it")
    return python


def ensure_packages(name: str, *, pip: Sequence[str], say: Say = lambda line: None) -> Path:
    """Return the interpreter of an environment with these packages (pip's requirements), which is built if it does not exist.

    For packages that a user names, as in an import; only wheels are installed. The folder, `NAME-<hash of the request>`, is
    what a pack writes as its `python`. Raises `UserError` as `ensure_environment` does.
    """
    option = next((word for word in pip if word.startswith("-")), None)
    if option or not pip:
        raise UserError(
            f"{option or 'an empty list'} is not a package: give packages as for pip install, such as gymnasium==1.4.0"
        )
    return ensure_recipe(Recipe(name, "as large as its packages", (tuple(sorted(pip)),), (), ""), say)


def ensure_recipe(recipe: Recipe, say: Say) -> Path:
    root = cache_root() / "envs"
    home = root / recipe.key
    if not home.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with lock_file(root / f"{recipe.key}.lock"):
            if not home.is_dir():  # another process may have built it while this one waited
                build_environment(recipe, home, say)
    return home / "bin" / "python"


def build_environment(recipe: Recipe, home: Path, say: Say) -> None:
    """Build under a temporary name, probe, rename. The caller holds the lock, so leftovers are of interrupted builds."""
    log = home.parent / f"{recipe.key}.log"
    say(f"building the {recipe.name} environment ({recipe.size}); log: {log}")
    for leftover in home.parent.glob(f".{recipe.key}.*"):
        shutil.rmtree(leftover)
    draft = home.parent / f".{recipe.key}.{os.getpid()}"
    interpreter = [str(draft / "bin" / "python"), "-P"]
    # Packages that a user names are untrusted code: building one, or starting its interpreter, would run it outside the sandbox.
    wheels = [] if recipe.name in RECIPES else ["--only-binary", ":all:"]
    quiet = "--disable-pip-version-check"
    with log.open("wb") as out:
        run_step(recipe, [sys.executable, "-P", "-m", "venv", str(draft)], log, out.fileno())
        for pins in recipe.steps:
            say(f"  pip install {' '.join(pins)}")
            run_step(
                recipe, [*interpreter, "-m", "pip", "install", quiet, "--no-input", *wheels, *pins], log, out.fileno()
            )
        if recipe.without:
            run_step(recipe, [*interpreter, "-m", "pip", "uninstall", quiet, "-y", *recipe.without], log, out.fileno())
        packages = next(draft.glob("lib/python*/site-packages"))
        for stub in recipe.stubs:
            (packages / f"{stub}.py").write_text('"""Empty on purpose: imported, never used."""\n')
        if recipe.probe:
            run_step(recipe, [*interpreter, "-c", recipe.probe], log, out.fileno())
    relocate_scripts(draft / "bin", draft, home)
    draft.rename(home)
    say(f"built {home}")


def run_step(recipe: Recipe, command: list[str], log: Path, out: int) -> None:
    """Run one command into the log. Commands have -P: nothing is imported from the current folder. Variables of simia's own
    interpreter must not reach the environment's."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    os.write(out, f"$ {' '.join(command)}\n".encode())
    code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, check=False).returncode
    if code:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise UserError(f"the {recipe.name} environment could not be built: {lines[-1][:200]} (log: {log})")


def relocate_scripts(scripts: Path, old: Path, new: Path) -> None:
    """Replace the interpreter's absolute path in console scripts by the final one."""
    for script in scripts.iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        text = script.read_bytes()
        if str(old).encode() in text:
            script.write_bytes(text.replace(str(old).encode(), str(new).encode()))


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on this machine; the kernel releases the lock of a killed process."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
