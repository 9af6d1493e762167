"""Which versions each trainer needs (versions.yaml), how an environment compares, and where a trainer is to run.

The ranges exclude one another (LLaMA-Factory: transformers up to 5.6.0; TRL: datasets from 4.7), so hardly any environment holds two trainers.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

import yaml

from simia.errors import UserError
from simia.search_path import cache_root
from simia.venvs import RECIPES, list_distributions, normalize_name

NEEDS: dict[str, dict[str, str]] = yaml.safe_load(Path(__file__).with_name("versions.yaml").read_text("utf-8"))
"""Trainer → distribution → range, as pip writes ranges; an empty one: any version."""
RAGEN_COMMIT = "5eb79b82cecc31db5662ba3c96b752405692410b"
RAGEN_CLONE = f"git clone https://github.com/RAGEN-AI/RAGEN && cd RAGEN && git checkout {RAGEN_COMMIT[:7]} && git submodule update --init verl"


@dataclass(frozen=True)
class VersionFit:
    """How an environment compares with what a trainer needs: what is not there, and what is in a version that it does not bear."""

    missing: tuple[str, ...]
    clashing: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not self.missing and not self.clashing

    def __str__(self) -> str:
        parts = [f"{', '.join(self.clashing)}"] if self.clashing else []
        parts += [f"not installed: {', '.join(self.missing)}"] if self.missing else []
        return "; ".join(parts) or "fits"


def list_installed(python: Path | None = None) -> dict[str, str]:
    """Distributions with their versions, of that interpreter's environment (None: of this one)."""
    if python is None or str(python) == sys.executable:
        # The first on the path counts.
        found = {one.name: one.version for one in reversed(list(distributions())) if one.name}
    else:
        found = list_distributions(python)
    return {normalize_name(name): version for name, version in found.items()}


def compare_versions(trainer: str, versions: Mapping[str, str]) -> VersionFit:
    missing, clashing = [], []
    for name, wanted in NEEDS[trainer].items():
        version = versions.get(normalize_name(name))
        if version is None:
            missing.append(name)
        elif not is_in_range(version, wanted):
            clashing.append(f"{name} {version} ({trainer} needs {wanted})")
    return VersionFit(tuple(missing), tuple(clashing))


def interpreter(trainer: str, python: Path | None) -> Path:
    """Where that trainer runs: the interpreter that was named, else this one if it fits, else that of its own environment.

    Raises `UserError` with one line that says what clashes there and which command makes a clean environment.
    """
    fit = compare_versions(trainer, list_installed(python))
    if fit.fits:
        return python or Path(sys.executable)
    own = find_own_interpreter(trainer)
    if python is None and own is not None:
        return own
    raise UserError(
        f"{python or sys.executable} cannot run {trainer}: {fit}; a clean environment: {format_build_command(trainer)}"
    )


def find_own_interpreter(trainer: str) -> Path | None:
    """The interpreter of the trainer's own environment, if that is built."""
    # That recipe is for its environments alone, not to train.
    recipe = RECIPES.get(trainer) if trainer != "ragen" else None
    python = cache_root() / "envs" / recipe.key / "bin" / "python" if recipe else None
    return python if python is not None and python.exists() else None


def format_build_command(trainer: str) -> str:
    """The command that makes a clean environment for that trainer."""
    if trainer == "ragen":  # on a machine with GPUs, by RAGEN's own script: its package on the index is another one
        return f"{RAGEN_CLONE} && bash scripts/setup_ragen.sh"
    return f"{sys.executable} -P -m simia.venvs {trainer}"


def is_in_range(version: str, wanted: str) -> bool:
    """Whether the release numbers lie in the range; what follows them (`+cpu`, `.post1`, `rc1`) is not looked at."""
    have = parse_release(version)
    for part in filter(None, wanted.split(",")):
        sign, number = re.match(r"([<>=!]=|[<>])(.+)", part).groups()  # type: ignore[union-attr] # NEEDS is ours
        bound = parse_release(number)
        order = (have > bound) - (have < bound)
        if not {"==": order == 0, "!=": order != 0, ">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0}[
            sign
        ]:
            return False
    return True


def parse_release(version: str) -> tuple[int, ...]:
    """`5.6.0+cpu` → (5, 6): zeros at the end say nothing."""
    found = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(n) for n in found.group().split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
