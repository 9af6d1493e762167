"""Settings of a synthesis run: the recipe with its own settings, the models, and the limits of spending."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from simia.config import OPERATIONAL, Config
from simia.errors import UserError
from simia.jobs.coordinator import StopSettings
from simia.jobs.nodes.settings import ClusterSettings
from simia.llm.backends import LLMSettings
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import EngineLimits

EMBEDDINGS = "embeddings"  # the role whose model embeds texts; without it no other role's model is used


class SamplingSettings(Config):
    """Sampling settings of the replies."""

    temperature: float | None = Field(default=0.7, ge=0)
    """Sampling temperature. null: the endpoint's default."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling (top-p). null: the endpoint's default."""
    max_tokens: int | None = Field(default=8192, ge=1)
    """Maximum number of tokens of a reply, reasoning tokens included. null: the endpoint's limit."""
    reasoning_effort: str | None = None
    """Effort of a reasoning model: low, medium or high. null: the endpoint's default."""
    tries: int = Field(default=3, ge=1)
    """Maximum number of requests for one question, if its reply cannot be parsed. Each further request states what was wrong with the last
    reply."""

    def request_fields(self) -> dict[str, Any]:
        """The fields of a request."""
        return self.model_dump(exclude={"tries"})


class SynthesisConfig(Config):
    """Everything that a run of `simia synth` depends on. Recipes add their own settings in subclasses."""

    kind: Literal["synthesis"] = Field("synthesis", description="Marks the config as that of a synthesis.")
    recipe: str = ""
    """Name of the recipe, or a Python file that defines `RECIPE`."""
    source: str = ""
    """Input of the recipe: a domain in words, or a file."""
    seed: int = 0
    """Random seed: every random choice derives from it."""
    llm: LLMSettings = Field(default_factory=EmbeddedSettings)
    """The default model. All roles without a model of their own use it."""
    roles: dict[str, LLMSettings] = Field(default_factory=dict)
    """Models of single roles, such as `checker`. The role `embeddings` computes embeddings of texts; without it, texts are compared by their
    words."""
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    """Sampling settings of the replies."""
    limits: EngineLimits = Field(default_factory=EngineLimits, json_schema_extra=OPERATIONAL)
    """Concurrency, retries and budget of the requests."""
    engine: ClusterSettings = Field(default_factory=ClusterSettings, json_schema_extra=OPERATIONAL)
    """Where the run executes: in this process, or on the nodes of a Ray cluster."""
    stop: StopSettings = Field(default_factory=lambda: StopSettings(min_yield=0), json_schema_extra=OPERATIONAL)
    """When the run stops before it is complete."""
    executions: int = Field(default=4, ge=1, json_schema_extra=OPERATIONAL)
    """Maximum number of concurrent sandboxes that run generated code."""

    def require_role(self, setting: str, name: str | None) -> None:
        """Raise `UserError` if a setting names a role that has no model."""
        if name is not None and name not in self.roles:
            raise UserError(f"{setting}: no role is named {name!r}: give its model under roles.{name}")

    @field_validator("roles")
    @classmethod
    def check_embeddings(cls, roles: dict[str, LLMSettings]) -> dict[str, LLMSettings]:
        """Refuse a back end without an address for embeddings."""
        found = roles.get(EMBEDDINGS)
        local = isinstance(found, EmbeddedSettings) and found.embeddings
        if found is not None and not local and found.kind not in ("openai", "pool", "replay"):
            raise UserError(
                f"roles.{EMBEDDINGS}.kind is {found.kind}: only openai, pool and replay embed texts, and embedded with embeddings: true"
            )
        return roles
