"""Virtual environments of their own for trainers and for packs that need packages.

Trainers exclude one another (LLaMA-Factory wants transformers <= 5.6.0, verl and vLLM newer ones) and are heavy, so none is a
dependency of simia. A recipe is a list of pip steps; its hash names the environment, so a changed pin makes a new one.
`python -m simia.venvs llamafactory` builds it if it does not exist and prints the path of its interpreter.
"""

from simia.venvs.build import (
    FOR_PACKS,
    RECIPES,
    Recipe,
    Say,
    ensure_environment,
    ensure_packages,
    lock_file,
    normalize_name,
)
from simia.venvs.import_path import list_distributions, make_python_path

__all__ = [
    "FOR_PACKS",
    "RECIPES",
    "Recipe",
    "Say",
    "ensure_environment",
    "ensure_packages",
    "list_distributions",
    "lock_file",
    "make_python_path",
    "normalize_name",
]
