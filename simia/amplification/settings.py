"""Settings of an amplification, as in `configs/amplify/*.yaml`."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from simia.amplification.model_mix import MixedModel, complete_mix
from simia.amplification.plan_settings import PlanSettings
from simia.amplification.prompt import PromptSettings
from simia.amplification.reply_schema import Shape
from simia.config import OPERATIONAL, Config
from simia.errors import UserError
from simia.jobs.coordinator import StopSettings
from simia.jobs.nodes.settings import ClusterSettings
from simia.llm.backends import LLMSettings
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import EngineLimits
from simia.quality.check import Checks
from simia.quality.judging.settings import AcceptanceSettings, PrefilterSettings
from simia.quality.selection.contamination import GRAM, LEAST
from simia.quality.selection.near_duplicates import THRESHOLD


class SeedSettings(Config):
    """Which seed trajectories to amplify."""

    packs: list[str] = Field(default_factory=lambda: ["customer_service", "office"], min_length=1)
    """Packs by name or path, or files of trajectories in any dialect that `simia.formats` reads."""
    dialect: str | None = None
    """Dialect of the files. null: detected from their first rows."""
    max_messages: int | None = Field(default=None, ge=2)
    """Use only seeds with at most this many messages, for example those that a small model can imitate. null: no limit."""
    limit: int | None = Field(default=None, ge=1)
    """Use only the first seeds of each pack or file, at most this many. null: no limit."""
    tasks: dict[str, list[str]] = Field(default_factory=dict)
    """Use only these seeds of a pack, by task id and in this order: `{office: [of-116, of-103]}`. Packs that are not listed, and packs that
    have none of the listed ids, use all their seeds."""


class SamplingSettings(Config):
    """Sampling settings of the replies. The default temperature and token limit are the paper's (§3.1)."""

    temperature: float | None = Field(default=1.0, ge=0)
    """Sampling temperature. null: the endpoint's default."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling (top-p). null: the endpoint's default."""
    max_tokens: int | None = Field(default=60_000, ge=1)
    """Maximum number of tokens of a reply, reasoning tokens included. null: the endpoint's limit."""
    reasoning_effort: str | None = None
    """Effort of a reasoning model: low, medium or high. null: the endpoint's default."""
    seeded: bool = False
    """Whether to send each item's random number as `seed` in the request, for endpoints that support it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Additional fields of the request body, such as min_p."""


class ReplySettings(Config):
    """The form in which the model writes a trajectory."""

    continue_cut: bool = True
    """Whether to ask the model once to continue a reply that was cut at its token limit."""
    form: Literal["auto", "json", "tagged"] = "auto"
    """json: JSON. tagged: text with tags. auto: JSON if the endpoint supports a JSON Schema, else text with tags."""
    shape: Shape = "free"
    """free: any sequence of messages. seed: the same sequence of roles and tools as in the seed, which helps small models."""
    reasoning: bool = True
    """Whether assistant messages may contain a short reasoning."""


class SelectSettings(Config):
    """Which valid trajectories to reject as near-duplicates or as contaminated."""

    near: float | None = Field(default=THRESHOLD, gt=0, le=1)
    """Reject a trajectory if its similarity to a seed or to an earlier trajectory (share of common word pairs, 0 to 1) is at least this. null:
    reject only exact copies."""
    benchmarks: dict[str, list[str]] = Field(default_factory=dict)
    """Benchmarks by name, each with a list of files, folders or patterns. Trajectories that repeat the words or calls of a benchmark are
    rejected."""
    ngram: int = Field(default=GRAM, ge=LEAST)
    """Number of consecutive words in common with a benchmark's task that counts as contamination."""


# Retired settings of 0.1.0 with their defaults, as runs of 0.1.0 hold them.
TURNWISE = {
    "user": "turnwise/user.md", "assistant": "turnwise/assistant.j2", "tool": "turnwise/tool.j2", "shape": "seed", "offer": "seed",
    "max_turns": 24, "max_parallel": 3, "max_rounds": 4, "user_tokens": 200, "assistant_tokens": 400, "tool_tokens": 800,
}  # fmt: skip
RETIRED: dict[str, Any] = {"turnwise": TURNWISE, "checkers": None}


class AmplifyConfig(Config):
    """Everything that a run of `simia amplify` depends on."""

    retired: ClassVar[tuple[str, ...]] = (*RETIRED, "reply.mode")
    """Settings that no longer exist; the identities of older runs hold them."""

    n: int = Field(default=8, ge=1, json_schema_extra=OPERATIONAL)
    """Number of trajectories to accept."""
    seed: int = 0
    """Random seed: every random choice derives from it."""
    seeds: SeedSettings = Field(default_factory=SeedSettings)
    """Which seed trajectories to amplify."""
    llm: LLMSettings = Field(default_factory=EmbeddedSettings)
    """The model that writes the trajectories."""
    mix: list[MixedModel] = Field(default_factory=list)
    """Additional models that write a part of the trajectories: `[{llm: {model: gpt-5}, weight: 1}]`. Each item is written by one model."""
    suite: str = "auto"
    """Benchmark whose rules, targets and checks apply (tau_retail, os, officebench, …). auto: detected from each seed's tools. generic: no
    benchmark."""
    prefilter: PrefilterSettings = Field(default_factory=PrefilterSettings)
    """Filter of the seeds. Rules always apply; a model also judges the seeds if `prefilter.enabled` is true."""
    prompt: PromptSettings = Field(default_factory=PromptSettings)
    """How prompts are written."""
    plan: PlanSettings = Field(default_factory=PlanSettings)
    """Distribution of the requested conversations. Only used if `prompt.scenarios` is true."""
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    """Sampling settings of the replies."""
    reply: ReplySettings = Field(default_factory=ReplySettings)
    """The form in which the model writes a trajectory."""
    checks: Checks = Field(default_factory=Checks)
    """Checks that each trajectory must pass."""
    judge: AcceptanceSettings = Field(default_factory=AcceptanceSettings)
    """A model that judges each trajectory that passed the checks. Only used if `judge.enabled` is true."""
    select: SelectSettings = Field(default_factory=SelectSettings)
    """Which valid trajectories to reject as near-duplicates or as contaminated."""
    limits: EngineLimits = Field(default_factory=EngineLimits, json_schema_extra=OPERATIONAL)
    """Concurrency, retries and budget of the requests."""
    engine: ClusterSettings = Field(default_factory=ClusterSettings, json_schema_extra=OPERATIONAL)
    """Where the run executes: in this process, or on the nodes of a Ray cluster."""
    stop: StopSettings = Field(default_factory=StopSettings, json_schema_extra=OPERATIONAL)
    """When the run stops before it is complete."""

    @model_validator(mode="before")
    @classmethod
    def drop_retired(cls, data: Any) -> Any:
        """Drop retired settings of 0.1.0, with a warning for a value other than the default. Raises `UserError` for turn-by-turn replies."""
        if not isinstance(data, dict):
            return data
        kept = {name: value for name, value in data.items() if name not in RETIRED}
        if isinstance(kept.get("mix"), list):
            kept["mix"] = complete_mix(kept)
        for name in RETIRED.keys() & data.keys():
            if data[name] != RETIRED[name]:
                warnings.warn(f"{name} was removed in simia 0.2.0 and is ignored; remove it", FutureWarning, 2)
        reply = data.get("reply")
        if isinstance(reply, dict) and "mode" in reply:
            if reply["mode"] != "whole":
                raise UserError(
                    "reply.mode: turn-by-turn replies were removed in simia 0.2.0; leave it out, or see amplify/quickstart for a small model"
                )
            kept["reply"] = {name: value for name, value in reply.items() if name != "mode"}
        return kept
