"""How each environment that simia builds is installed: trainers, and packs that need packages of their own.

recipes.yaml holds the recipes. The name of an environment's folder holds a hash of its recipe, the interpreter and the machine.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml


@dataclass(frozen=True)
class Recipe:
    """How a trainer is installed. `steps` are pip's arguments; `stubs` empty modules; `probe` code that must run; `without` what is
    taken out again."""

    name: str
    size: str
    steps: tuple[tuple[str, ...], ...]
    stubs: tuple[str, ...]
    probe: str
    without: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Name and hash of the recipe and of the interpreter that it is for."""
        recipe = {name: value for name, value in asdict(self).items() if name != "without" or value}
        facts = {**recipe, "python": platform.python_version_tuple()[:2], "machine": platform.machine()}
        return f"{self.name}-{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]}"


def normalize_name(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


FOR_PACKS = ("tau2", "office", "mcp", "adapters")
"""Environments that a pack may name. Those of trainers and model servers are large, and built only when a user asks for them."""


def read_recipes(file: Path) -> dict[str, Recipe]:
    """The recipes of a YAML file, by name."""
    rows = yaml.safe_load(file.read_text(encoding="utf-8"))
    return {
        name: Recipe(
            name=name,
            size=row["size"],
            steps=tuple(tuple(step.split()) for step in row["steps"]),
            stubs=tuple(row.get("stubs", ())),
            probe=row["probe"],
            without=tuple(row.get("without", ())),
        )
        for name, row in rows.items()
    }


RECIPES: dict[str, Recipe] = read_recipes(Path(__file__).with_name("recipes.yaml"))
