"""Each trainer in a virtual environment of its own, built once from a pinned recipe and kept in the cache.

Trainers exclude one another (LLaMA-Factory wants transformers <= 5.6.0, verl and vLLM newer ones) and are heavy, so
none is a dependency of simia. A recipe is a list of pip steps; its hash names the environment, so a changed pin makes a
new one. It is built under a temporary name and renamed when its probe has passed: a killed build never counts.
`python -m simia.trainers.environments llamafactory` prints the path of the interpreter.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from simia.errors import UserError
from simia.resources import cache_root
from simia.trainers.recipes import RECIPES, Recipe

Say = Callable[[str], None]
MADE = re.compile(r"[a-z][a-z0-9_]*-[0-9a-f]{12}")


def ensure(name: str, say: Say = lambda line: None) -> Path:
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
    raise UserError(f"no trainer environment named {name!r}; there are: {', '.join(sorted(RECIPES))}")


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
        with locked(root / f"{recipe.key}.lock"):
            if not home.is_dir():  # another process may have built it while this one waited
                build(recipe, home, say)
    return home / "bin" / "python"


def build(recipe: Recipe, home: Path, say: Say) -> None:
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
        step(recipe, [sys.executable, "-m", "venv", str(draft)], log, out.fileno())
        for pins in recipe.steps:
            say(f"  pip install {' '.join(pins)}")
            pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", *wheels, *pins]
            step(recipe, pip, log, out.fileno())
        if recipe.without:
            pip = [str(python), "-m", "pip", "uninstall", "--disable-pip-version-check", "-y", *recipe.without]
            step(recipe, pip, log, out.fileno())
        packages = next(draft.glob("lib/python*/site-packages"))
        for stub in recipe.stubs:
            (packages / f"{stub}.py").write_text('"""Empty on purpose: imported, never used."""\n')
        if recipe.probe:
            step(recipe, [str(python), "-c", recipe.probe], log, out.fileno())
    relocate(draft / "bin", draft, home)
    draft.rename(home)
    say(f"built {home}")


def step(recipe: Recipe, command: list[str], log: Path, out: int) -> None:
    """Run one command into the log. The environment of simia's own interpreter must not leak into the trainer's."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    os.write(out, f"$ {' '.join(command)}\n".encode())
    code = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, check=False).returncode
    if code:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise UserError(f"the {recipe.name} environment could not be built: {lines[-1][:200]} (log: {log})")


def relocate(scripts: Path, old: Path, new: Path) -> None:
    """Console scripts carry the absolute path of their interpreter: let them name the final one."""
    for script in scripts.iterdir():
        if script.is_symlink() or not script.is_file():
            continue
        text = script.read_bytes()
        if str(old).encode() in text:
            script.write_bytes(text.replace(str(old).encode(), str(new).encode()))


def python_path(python: Path, say: Say = lambda line: None) -> str:
    """What PYTHONPATH must be for a trainer's interpreter to import simia: the package alone, and the wheels it lacks."""
    return os.pathsep.join([str(simia_path()), str(beside(python, say))])


def simia_path() -> Path:
    """A folder with nothing but a link to the simia package: on a trainer's path it brings no other package of ours along."""
    package = Path(__file__).resolve().parents[1]
    folder = cache_root() / "paths" / hashlib.sha256(str(package).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_suffix(".lock")):
        link = folder / "simia"
        if not link.is_dir():
            link.unlink(missing_ok=True)  # of a package that has gone
            link.symlink_to(package, target_is_directory=True)
    return folder


def beside(python: Path, say: Say = lambda line: None) -> Path:
    """A folder with what simia imports and that interpreter's environment lacks, in the versions that run here; made once.

    Nothing in it is a dependency of the trainer and nothing of the trainer's is replaced, so it does no harm there. Raises
    `UserError` with pip's last line.
    """
    script = "import importlib.metadata as m, json; print(json.dumps([d.name for d in m.distributions()]))"
    try:
        asked = subprocess.run([str(python), "-I", "-c", script], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise UserError(f"{python} is no Python interpreter that runs") from None
    has = {plain(name) for name in json.loads(asked.stdout)}
    pins = [f"{name}=={version}" for name, version in sorted(needed().items()) if name not in has]
    key = hashlib.sha256(json.dumps([str(python), *pins]).encode()).hexdigest()[:12]
    folder = cache_root() / "envs" / f"beside-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock"):
        if not folder.is_dir():
            draft = folder.parent / f".{folder.name}.{os.getpid()}"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            if pins:
                say(f"beside {python}: {' '.join(pins)}")
                pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-deps"]
                pip += ["--only-binary", ":all:", "--target", str(draft), *pins]
                done = subprocess.run(pip, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
                if done.returncode:
                    last = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
                    raise UserError(f"what simia needs could not be laid beside {python}: {last[:200]}")
            draft.rename(folder)
    return folder


def needed() -> dict[str, str]:
    """Every distribution that simia needs, dependencies of dependencies too, with the version that is installed here."""
    found: dict[str, str] = {}
    waiting = ["simia"]
    while waiting:
        try:
            one = distribution(waiting.pop())
        except PackageNotFoundError:  # its marker names another platform or Python: what is not here is not needed here
            continue
        if plain(one.name) not in found:
            found[plain(one.name)] = one.version
            wanted = [line for line in one.requires or () if "extra ==" not in line]
            waiting += [re.match(r"[\w.-]+", line).group() for line in wanted]  # type: ignore[union-attr]
    if found.pop("simia", None) is None:
        raise UserError("simia is on the path but not installed here, so what it needs is unknown: pip install simia")
    return found


def plain(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One builder at a time on this machine; the kernel lets go of the lock when a builder is killed."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(f"usage: python -m simia.trainers.environments {{{'|'.join(RECIPES)}}}", file=sys.stderr)
        return 2
    try:
        print(ensure(arguments[0], say=lambda line: print(line, file=sys.stderr)))
    except UserError as error:
        print(f"simia: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
