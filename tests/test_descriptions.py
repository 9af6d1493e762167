"""Every field of a public model and of a config has a description, which `help()`, JSON Schemas and `simia config` show."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from pydantic import BaseModel

import simia
from simia.config import Config
from simia.config_errors import find_models_in

PUBLIC = (
    "simia.exporting.export_records",
    "simia.exporting.data_card",
    "simia.llm.types",
    "simia.llm.prices",
    "simia.formats.dialect",
)


def find_subclasses(cls: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for each in cls.__subclasses__():
        yield each
        yield from find_subclasses(each)


def find_models() -> list[type[BaseModel]]:
    """Configs of every module, models of the core modules and of `PUBLIC`, and the models that their fields hold."""
    for module in pkgutil.walk_packages(simia.__path__, "simia."):
        try:
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        except ImportError as error:  # a trainer or a driver whose package is not installed here
            if (error.name or "").startswith("simia"):
                raise
    public = [
        model
        for model in find_subclasses(BaseModel)
        if model.__module__.startswith("simia.")
        and (issubclass(model, Config) or model.__module__.count(".") == 1 or model.__module__ in PUBLIC)
    ]
    found = dict.fromkeys(public)
    while public:
        model = public.pop()
        held = [each for field in model.model_fields.values() for each in find_models_in(field.annotation)]
        public += [each for each in held if each not in found]
        found.update(dict.fromkeys(held))
    return sorted(found, key=lambda model: (model.__module__, model.__qualname__))


MODELS = find_models()


def test_the_public_models_are_found() -> None:
    names = {model.__name__ for model in MODELS}
    assert names >= {"Trajectory", "Message", "ToolCall", "Pack", "Task", "ToolSpec", "Reward", "Issue", "Provenance"}
    assert names >= {"AmplifyConfig", "RolloutConfig", "OpenAISettings", "EngineLimits", "ExportReport"}
    assert len(MODELS) > 50


@pytest.mark.parametrize("model", MODELS, ids=lambda model: f"{model.__module__}.{model.__qualname__}")
def test_every_field_has_a_description(model: type[BaseModel]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []
