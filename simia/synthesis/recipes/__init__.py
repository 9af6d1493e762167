"""Recipes: which stages, in which order, with which settings, and how their outputs become packs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simia.envs.rewards.reward_function import import_file
from simia.errors import UserError
from simia.synthesis.recipes.codegym import CodeGymConfig, CodeGymRecipe
from simia.synthesis.recipes.envfactory import EnvFactoryConfig, EnvFactoryRecipe
from simia.synthesis.recipes.envscaler import EnvScalerConfig, EnvScalerRecipe
from simia.synthesis.recipes.scaleenv import ScaleEnvConfig, ScaleEnvRecipe
from simia.synthesis.recipes.vary import VaryConfig, VaryRecipe
from simia.synthesis.settings import SynthesisConfig
from simia.synthesis.stage import Recipe
from simia.synthesis.stage_errors import describe_failure


@dataclass(frozen=True, slots=True)
class RecipeKind:
    """One recipe: the class of its settings, and the function that makes the recipe from them."""

    config: type[SynthesisConfig]
    make: Callable[[Any], Recipe]


RECIPES: dict[str, RecipeKind] = {
    "codegym": RecipeKind(CodeGymConfig, CodeGymRecipe),
    "envfactory": RecipeKind(EnvFactoryConfig, EnvFactoryRecipe),
    "envscaler": RecipeKind(EnvScalerConfig, EnvScalerRecipe),
    "scaleenv": RecipeKind(ScaleEnvConfig, ScaleEnvRecipe),
    "vary": RecipeKind(VaryConfig, VaryRecipe),
}
"""Recipe name → its kind."""


def find_recipe(name: object) -> RecipeKind:
    """Return the recipe of that name, or the `RECIPE` of a Python file, which is the user's own code. Raises `UserError`."""
    if str(name).endswith(".py"):
        return import_recipe(Path(str(name)).expanduser())
    kind = RECIPES.get(str(name))
    if kind is None:
        known = ", ".join(sorted(RECIPES)) or "none"
        raise UserError(f"no recipe named {str(name)!r}; there are: {known}; a recipe of your own is a file: ./NAME.py")
    return kind


def import_recipe(file: Path) -> RecipeKind:
    """Import a recipe from a file. Raises `UserError` in one line."""
    if not file.is_file():
        raise UserError(f"recipe {file} does not exist: name the Python file that defines RECIPE")
    try:
        kind = getattr(import_file(file), "RECIPE", None)
    except (Exception, SystemExit) as error:
        raise UserError(f"recipe {file} cannot be imported: {describe_failure(error)}") from None
    if not isinstance(kind, RecipeKind):
        raise UserError(f"recipe {file} defines no RECIPE: write RECIPE = RecipeKind(CONFIG CLASS, FUNCTION)")
    return kind
