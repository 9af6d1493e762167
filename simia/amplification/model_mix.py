"""Let several models write the trajectories of one run, each for its share of the items (the paper mixes GPT-5 and o4-mini, §3.1).

The item's number alone determines its model, so a resumed run asks the same model again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field, field_validator

from simia.config import OPERATIONAL, Config
from simia.errors import UserError
from simia.jobs import Item
from simia.llm.backends import LLMSettings
from simia.llm.budget import EngineLimits
from simia.llm.types import ModelBackend

OWN = ("price", "deployment")  # what a further model does not take from `llm`
PLACE = "writer"  # of an item's spec, in runs with a mix


class MixedModel(Config):
    """An additional model that writes trajectories, besides the model of `llm`."""

    llm: LLMSettings
    """The model. If `kind` is not set, settings that are not set are taken from the run's `llm`, except `price` and `deployment`."""
    weight: float = Field(default=1.0, gt=0)
    """Number of items that it writes for each item that `llm` writes."""
    limits: EngineLimits | None = Field(default=None, json_schema_extra=OPERATIONAL)
    """Concurrency and retries for its endpoint. null: the run's `limits`. The budget is always set in the run's `limits`, for all models
    together."""

    @field_validator("limits")
    @classmethod
    def _no_budget(cls, limits: EngineLimits | None) -> EngineLimits | None:
        if limits is not None and limits.capped:
            raise ValueError(
                "max_cost, max_tokens and max_requests apply to all models together; set them in the run's limits"
            )
        return limits

    def share_limits(self, limits: EngineLimits) -> EngineLimits:
        """Return its limits with the budget of the run."""
        if self.limits is None:
            return limits
        budget = {name: getattr(limits, name) for name in ("max_cost", "max_tokens", "max_requests")}
        return self.limits.model_copy(update=budget)


@dataclass(frozen=True, slots=True)
class Writer:
    """A model of a run: the names in its replies' keys, whether its endpoint obeys a schema, and its weight in the mix."""

    model: str
    alias: str
    structured: bool
    weight: float = 1.0


def complete_mix(data: dict[str, Any]) -> list[Any]:
    """Return the `mix` of a config as given, each model without a `kind` completed from the run's `llm`."""
    base = data.get("llm")
    base = base.model_dump(mode="json") if isinstance(base, Config) else base
    if not isinstance(base, Mapping):
        return list(data["mix"])
    taken = {name: value for name, value in base.items() if name not in OWN}
    return [
        {**entry, "llm": {**taken, **entry["llm"]}}
        if isinstance(entry, Mapping) and isinstance(entry.get("llm"), Mapping) and "kind" not in entry["llm"]
        else entry
        for entry in data["mix"]
    ]


def list_writers(backends: Sequence[ModelBackend], mix: Sequence[MixedModel]) -> list[Writer]:
    """List the models of a run: that of `llm`, then those of `mix`. Raises `UserError` if two are the same."""
    weights = [1.0, *(each.weight for each in mix)]
    writers = [
        Writer(backend.model, backend.alias, backend.structured, weight)
        for backend, weight in zip(backends, weights, strict=True)
    ]
    names = [(writer.model, writer.alias) for writer in writers]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UserError(f"mix: model {name[0]} at {name[1]} is listed twice; list each model once, with its weight")
    return writers


def describe_writers(writers: Sequence[Writer]) -> dict[str, Any]:
    """Return the models as facts of a run. For a single model, they are the same as those of a run without a mix."""
    first, *others = writers
    facts: dict[str, Any] = {"model": first.model, "alias": first.alias, "structured": first.structured}
    if others:
        rows = [
            {"model": each.model, "alias": each.alias, "structured": each.structured, "weight": each.weight}
            for each in others
        ]
        facts["mix"] = rows
    return facts


def read_writers(facts: Mapping[str, Any]) -> list[Writer]:
    """Return the models of a run from its facts."""
    first = Writer(facts["model"], facts["alias"], facts["structured"])
    return [first, *(Writer(**row) for row in facts.get("mix", ()))]


def choose_writer(writers: Sequence[Writer], number: int) -> int:
    """Return the place of the model that writes the item of a number."""
    if len(writers) == 1:
        return 0
    return random.Random(f"model {number}").choices(range(len(writers)), [each.weight for each in writers])[0]


def get_writer(item: Item) -> int:
    """Return the place of the model that writes a planned item."""
    place: int = item.spec.get(PLACE, 0)
    return place
