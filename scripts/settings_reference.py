"""Write docs/reference/settings.md: every setting of configs and of `--set`, from the models that read them.

python -m scripts.settings_reference            (writes the page; a test compares it)
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel

from scripts.api_reference import describe_field, write_docstring, write_table
from simia.cli.config import MODELS
from simia.config_errors import find_models_in
from simia.config_listing import describe_type
from simia.synthesis.recipes import RECIPES

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"
HEAD = """\
# Settings

Every setting of config files and of `--set`, in one section for each model that reads them. A setting's dotted name joins the fields on the
way: `llm.base_url` is `base_url` of the section that `llm` names. `simia config NAME` prints the dotted names with the values of a config.
Written by `python -m scripts.settings_reference`; do not edit it.
"""
TRAINERS = {
    "simia train verl (section `simia`)": ("simia.trainers.verl.settings", "VerlSettings"),
    "simia train ragen (`custom_envs.TAG.env_config`)": ("simia.trainers.ragen.settings", "SimiaEnvConfig"),
    "simia train llamafactory (`llamafactory/runs.yaml`)": ("simia.trainers.llamafactory", "NamedRun"),
}
BACKENDS = {
    "backend_settings of executable environments": ("simia.envs.worlds.executable_settings", "ExecutableSettings"),
    "backend_settings of simulated environments": ("simia.envs.worlds.simulated.settings", "SimulatedSettings"),
}
NAMES = {"judge": "simia judge", "trl": "simia train trl"}


def list_roots() -> dict[str, type[BaseModel]]:
    """Where settings are given → the model that reads them. Recipes of others, which may be registered, are left out."""
    places = {NAMES.get(name, f"simia {name}"): place for name, place in MODELS.items()} | TRAINERS | BACKENDS
    roots: dict[str, type[BaseModel]] = {name: getattr(import_module(m), cls) for name, (m, cls) in places.items()}
    return roots | {
        f"simia synth {name}": kind.config
        for name, kind in RECIPES.items()
        if kind.config.__module__.startswith("simia.")
    }


def walk(model: type[BaseModel], seen: dict[type[BaseModel], str]) -> Iterator[type[BaseModel]]:
    """Yield a model and the models of its fields that were not seen before, and remember the name of each one's section."""
    if model in seen:
        return
    taken = set(seen.values())
    package = model.__module__.split(".")[-1].replace("_", " ").title().replace(" ", "")
    seen[model] = model.__name__ if model.__name__ not in taken else f"{package}{model.__name__}"
    yield model
    for field in model.model_fields.values():
        for inner in find_models_in(field.annotation):
            yield from walk(inner, seen)


def write_page() -> str:
    """The whole page."""
    roots, seen = list_roots(), dict[type[BaseModel], str]()
    models = [model for root in roots.values() for model in walk(root, seen)]
    parts = [HEAD, write_table(("settings of", "section"), [(name, link(seen[each])) for name, each in roots.items()])]
    for model in models:
        parts += [f"## {seen[model]}\n", write_docstring(model)]
        parts.append(write_table(("setting", "type", "default", "description"), list_rows(model, seen)))
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def list_rows(model: type[BaseModel], seen: dict[type[BaseModel], str]) -> list[tuple[str, str, str, str | None]]:
    rows = []
    for name, field in model.model_fields.items():
        sections = ", ".join(link(seen[each]) for each in find_models_in(field.annotation))
        kind = describe_type(field.annotation)
        written = f"`{kind}`" + (f": {sections}" if sections else "")
        rows.append((f"`{field.alias or name}`", written, *describe_field(field)))
    return rows


def link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


if __name__ == "__main__":
    PAGE.write_text(write_page(), encoding="utf-8")
