"""Recipes: which stages, in which order, with which settings, and how their outputs become packs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simia.errors import UserError
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Recipe


@dataclass(frozen=True, slots=True)
class RecipeKind:
    """One recipe: its settings, and what makes it of them."""

    config: type[SynthesisConfig]
    make: Callable[[Any], Recipe]


RECIPES: dict[str, RecipeKind] = {}
"""Recipe name → its kind."""


def find_recipe(name: object) -> RecipeKind:
    """Return the recipe of that name. Raises `UserError` for an unknown one."""
    kind = RECIPES.get(str(name))
    if kind is None:
        raise UserError(f"no recipe named {str(name)!r}; there are: {', '.join(sorted(RECIPES))}")
    return kind
