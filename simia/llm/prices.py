"""Compute the cost of a reply. Prices are data (configs/prices.yaml, which a file in `SIMIA_PATH` replaces), never constants in code.

An unknown price is None and stays None: a run then says that it does not know its cost, which is not the same as free.
"""

from __future__ import annotations

import re

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from simia.errors import UserError
from simia.search_path import find_resource
from simia.trajectory import Usage

PER = 1_000_000
SNAPSHOT = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")


class Price(BaseModel):
    """Prices in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    input: float = Field(ge=0, description="Price of prompt tokens that were not cached.")
    cached: float = Field(ge=0, description="Price of prompt tokens that the endpoint read from its prefix cache.")
    output: float = Field(ge=0, description="Price of completion tokens, reasoning tokens included.")

    def of(self, usage: Usage) -> float:
        fresh = max(0, usage.prompt - usage.cached)
        return (fresh * self.input + usage.cached * self.cached + usage.completion * self.output) / PER


FREE = Price(input=0, cached=0, output=0)


class PriceList(BaseModel):
    """The file `configs/prices.yaml`."""

    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True, use_attribute_docstrings=True)

    checked: str
    """Date at which the prices were looked up."""
    models: dict[str, Price]
    """Model → price."""


def look_up_price(model: str) -> Price | None:
    """The price of a model, of its family for a dated snapshot (`gpt-4o-2024-11-20`), or None if it is unknown."""
    path = find_resource("configs", "prices.yaml")
    try:
        models = PriceList.model_validate(yaml.safe_load(path.read_text())).models
    except (yaml.YAMLError, ValidationError) as error:
        raise UserError(f"{path} is not a price list: {' '.join(str(error).split())}") from error
    name = model.rpartition("/")[2].lower()  # routers write openai/gpt-4o
    return models.get(name) or models.get(SNAPSHOT.sub("", name))
