"""`simia config`: list the settings of a config with types, values and descriptions."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from simia import search_path
from simia.config import Config, find_config, load_config, read_config_file
from simia.config_listing import Setting, list_settings
from simia.errors import UserError
from simia.synthesis.recipes import find_recipe
from simia.terminal import say

# Command or trainer → the model of its config. Other trainers read config files of their own.
MODELS = {
    "amplify": ("simia.amplification.settings", "AmplifyConfig"),
    "rollout": ("simia.rollouts.settings", "RolloutConfig"),
    "eval": ("simia.evaluation.suites", "EvalConfig"),
    "synth": ("simia.synthesis.settings", "SynthesisConfig"),
    "judge": ("simia.quality.judging.settings", "QualitySettings"),
    "trl": ("simia.trainers.trl.settings", "TrlConfig"),
}


def config(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A command (amplify, rollout, eval, synth, judge, trl), or a config by name or path. Default: list all configs."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting, as a.b=c; may be repeated. The config is printed with it."),
    ] = None,
) -> None:
    """Print every setting of a config: dotted name (for --set), type, default or value, and description."""
    if name is None:
        lines = [*MODELS, *list_config_names()]
    else:
        bare = name in MODELS
        model = load_config_model(name) if bare else find_config_model(name)
        resolved = None if bare and not settings else load_config(model, None if bare else name, settings or [])
        lines = [line for each in list_settings(model, resolved) for line in format_setting(each)]
    for line in lines:
        say(line)


def format_setting(setting: Setting) -> list[str]:
    head = f"{setting.name}: {setting.type}" + (f" = {setting.value}" if setting.value is not None else "")
    return [head, f"    {setting.description}"] if setting.description else [head]


def load_config_model(name: str) -> type[Config]:
    module, cls = MODELS[name]
    model: type[Config] = getattr(import_module(module), cls)
    return model


def list_config_names() -> list[str]:
    """List the configs in the folders that `MODELS` names."""
    found = (Path(name) for name in search_path.list_names("configs") if name.endswith(".yaml"))
    return [path.with_suffix("").as_posix() for path in found if path.parts[0] in MODELS]


def find_config_model(name: str) -> type[Config]:
    """Return the model that has most settings of a config file. Raises `UserError` if no model has any."""
    data, path = read_config_file(name), find_config(name)
    if data.get("recipe"):
        return find_recipe(data["recipe"]).config
    keys = data.keys()
    if data.get("kind") == "eval" or str(data.get("extends")).startswith("eval/"):
        return load_config_model("eval")
    models = {each: load_config_model(each) for each in MODELS if each != "eval"}
    known = {each: len(keys & model.model_fields.keys()) for each, model in models.items()}
    best = max(known, key=lambda each: (known[each], each == Path(path).parent.name))
    if not known[best]:
        raise UserError(f"{path} contains no simia setting; `simia config` lists the configs")
    return models[best]
