"""The versions that each trainer needs (versions.yaml), and the interpreter of an environment that has them.

The ranges conflict (LLaMA-Factory: transformers up to 5.6.0; TRL: datasets from 4.7), so an environment rarely fits two trainers.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Mapping
from importlib.metadata import distributions
from pathlib import Path

import yaml

from simia.errors import UserError
from simia.search_path import cache_root
from simia.venvs import RECIPES, list_distributions, normalize_name

NEEDS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("versions.yaml").read_text("utf-8"))
"""Trainer → distribution → version range in pip's syntax; an empty range allows any version."""
COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
RAGEN_COMMIT = "5eb79b82cecc31db5662ba3c96b752405692410b"
RAGEN_CLONE = f"git clone https://github.com/RAGEN-AI/RAGEN && cd RAGEN && git checkout {RAGEN_COMMIT[:7]} && git submodule update --init verl"


def list_installed(python: Path | None = None) -> dict[str, str]:
    """Return the distributions of an interpreter's environment (None: of this one) with their versions."""
    if python is None or str(python) == sys.executable:
        # The first distribution on the path wins.
        found = {one.name: one.version for one in reversed(list(distributions())) if one.name}
    else:
        found = list_distributions(python)
    return {normalize_name(name): version for name, version in found.items()}


def compare_versions(trainer: str, versions: Mapping[str, str]) -> str:
    """Describe which distributions have a wrong version for the trainer, and which are missing; empty if all fit."""
    missing, parts = [], []
    for name, wanted in NEEDS[trainer].items():
        version = versions.get(normalize_name(name))
        if version is None:
            missing.append(name)
        elif not is_in_range(version, wanted):
            parts.append(f"{name} {version} ({trainer} needs {wanted})")
    clashing = [", ".join(parts)] if parts else []
    return "; ".join([*clashing, *([f"not installed: {', '.join(missing)}"] if missing else [])])


def interpreter(trainer: str, python: Path | None) -> Path:
    """Return the interpreter to train with: the named one, else this one if it fits, else that of the trainer's own environment.

    Raises `UserError` that names the conflicts and the command that builds a clean environment.
    """
    problem = compare_versions(trainer, list_installed(python))
    if not problem:
        return python or Path(sys.executable)
    own = find_own_interpreter(trainer)
    if python is None and own is not None:
        return own
    build = format_build_command(trainer)
    raise UserError(f"{python or sys.executable} cannot run {trainer}: {problem}; a clean environment: {build}")


def find_own_interpreter(trainer: str) -> Path | None:
    """Return the interpreter of the trainer's own environment, if that is built."""
    # RAGEN's recipe is for tests of its environments, not for training.
    recipe = RECIPES.get(trainer) if trainer != "ragen" else None
    python = cache_root() / "envs" / recipe.key / "bin" / "python" if recipe else None
    return python if python is not None and python.exists() else None


def format_build_command(trainer: str) -> str:
    """Return the command that builds a clean environment for the trainer."""
    if trainer == "ragen":  # on a machine with GPUs, by RAGEN's own script: its package on the index is another one
        return f"{RAGEN_CLONE} && bash scripts/setup_ragen.sh"
    return f"{sys.executable} -P -m simia.venvs {trainer}"


def is_in_range(version: str, wanted: str) -> bool:
    """Whether the release numbers are in the range; suffixes (`+cpu`, `.post1`, `rc1`) are ignored."""
    bounds = re.findall(r"([<>=!]=|[<>])([^,]+)", wanted)
    return all(COMPARE[sign](parse_release(version), parse_release(bound)) for sign, bound in bounds)


def parse_release(version: str) -> tuple[int, ...]:
    """Parse `5.6.0+cpu` to (5, 6): zeros at the end do not count."""
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
