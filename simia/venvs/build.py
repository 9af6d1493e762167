"""Build a recipe's virtual environment in the cache, once.

It is built under a temporary name and renamed when its probe has passed: a killed build never counts.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from simia.errors import UserError
from simia.search_path import cache_root
from simia.venvs.requirements import RECIPES, Recipe

Say = Callable[[str], None]
MADE = re.compile(r"[a-z][a-z0-9_]*-[0-9a-f]{12}")


def ensure_environment(name: str, say: Say = lambda line: None) -> Path:
    """The interpreter of that trainer's environment, which is built when it is not there yet.

    A name that `ensure_packages` gave is found where it was built on this machine; to build it again is for who knows the
    packages. Raises `UserError` with one line that names the log when it cannot be built.
    """
    recipe = RECIPES.get(name)
    if recipe is not None:
        return ensure_recipe(recipe, say)
    if MADE.fullmatch(name):
        python = cache_root() / "envs" / name / "bin" / "python"
        if python.exists():
            return python
        raise UserError(f"the environment {name} is not built on this machine: import its pack again, which builds it")
    raise UserError(f"no environment named {name!r}; there are: {', '.join(sorted(RECIPES))}")


def ensure_packages(name: str, *, pip: Sequence[str], probe: str = "", say: Say = lambda line: None) -> Path:
    """The interpreter of an environment with these packages (pip's requirements), built when it is not there yet.

    It is for what a user names, as an importer does; only wheels are installed. The folder, `NAME-<hash of the request>`, is
    what a pack writes as its `python`. Raises `UserError` as `ensure` does.
    """
    option = next((word for word in pip if word.startswith("-")), None)
    if option or not pip:
        raise UserError(f"{option or 'nothing'} is no package: give names as pip does, such as gymnasium==1.4.0")
    return ensure_recipe(Recipe(name, "as large as its packages", (tuple(sorted(pip)),), (), probe), say)


def ensure_recipe(recipe: Recipe, say: Say = lambda line: None) -> Path:
    root = cache_root() / "envs"
    home = root / recipe.key
    if not home.is_dir():
        root.mkdir(parents=True, exist_ok=True)
        with lock_file(root / f"{recipe.key}.lock"):
            if not home.is_dir():  # another process may have built it while this one waited
                build_environment(recipe, home, say)
    return home / "bin" / "python"


def build_environment(recipe: Recipe, home: Path, say: Say) -> None:
    """Build under a temporary name, probe, rename. The caller holds the lock, so leftovers here are of killed builds."""
    log = home.parent / f"{recipe.key}.log"
    say(f"building the {recipe.name} environment ({recipe.size}); log: {log}")
    for leftover in home.parent.glob(f".{recipe.key}.*"):
        shutil.rmtree(leftover)
    draft = home.parent / f".{recipe.key}.{os.getpid()}"
    python = draft / "bin" / "python"
    # What a user names is code of others: to build it, or to start its interpreter, would run it outside of the sandbox.
    wheels = () if recipe.name in RECIPES else ("--only-binary", ":all:")
    with log.open("wb") as out:
        run_step(recipe, [sys.executable, "-P", "-m", "venv", str(draft)], log, out.fileno())
        for pins in recipe.steps:
            say(f"  pip install {' '.join(pins)}")
            pip = [
                str(python),
                "-P",
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
                *wheels,
                *pins,
            ]
            run_step(recipe, pip, log, out.fileno())
        if recipe.without:
            pip = [str(python), "-P", "-m", "pip", "uninstall", "--disable-pip-version-check", "-y", *recipe.without]
            run_step(recipe, pip, log, out.fileno())
        packages = next(draft.glob("lib/python*/site-packages"))
        for stub in recipe.stubs:
            (packages / f"{stub}.py").write_text('"""Empty on purpose: imported, never used."""\n')
        if recipe.probe:
            run_step(recipe, [str(python), "-P", "-c", recipe.probe], log, out.fileno())
    relocate_scripts(draft / "bin", draft, home)
    draft.rename(home)
    say(f"built {home}")


def run_step(recipe: Recipe, command: list[str], log: Path, out: int) -> None:
    """Run one command into the log. Commands have -P: nothing is imported from the current folder. The environment of simia's own interpreter must not leak into the trainer's."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    os.write(out, f"$ {' '.join(command)}\n".encode())
    code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, check=False).returncode
    if code:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise UserError(f"the {recipe.name} environment could not be built: {lines[-1][:200]} (log: {log})")


def relocate_scripts(scripts: Path, old: Path, new: Path) -> None:
    """Console scripts carry the absolute path of their interpreter: let them name the final one."""
    for script in scripts.iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        text = script.read_bytes()
        if str(old).encode() in text:
            script.write_bytes(text.replace(str(old).encode(), str(new).encode()))


@contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """One builder at a time on this machine; the kernel lets go of the lock when a builder is killed."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
