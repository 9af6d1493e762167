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
    """Which seed trajectories are amplified."""

    packs: list[str] = Field(default_factory=lambda: ["customer_service", "office"], min_length=1)
    """Packs by name or path, or files of trajectories in any dialect that `simia.formats` reads."""
    dialect: str | None = None
    """Dialect of the files; recognised from their first rows when left out."""
    max_messages: int | None = Field(default=None, ge=2)
    """Use only seeds of at most this many messages, such as a small model can imitate."""
    limit: int | None = Field(default=None, ge=1)
    """Use at most this many seeds of each pack or file, from its start."""
    tasks: dict[str, list[str]] = Field(default_factory=dict)
    """Only these seeds of a pack, by task id and in this order: `{office: [of-116, of-103]}`. Packs without an entry, and those that have none
    of the ids, give all their seeds."""


class SamplingSettings(Config):
    """How replies are sampled. Temperature 1.0 and the token limit are the paper's (§3.1)."""

    temperature: float | None = Field(default=1.0, ge=0)
    """Sampling temperature; None leaves it to the endpoint."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling; None leaves it to the endpoint."""
    max_tokens: int | None = Field(default=60_000, ge=1)
    """Longest reply, reasoning tokens included."""
    reasoning_effort: str | None = None
    """For reasoning models that take it: low, medium, high."""
    seeded: bool = False
    """Send each item's random number as the request's `seed`, for endpoints that sample by it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request body, as the endpoint knows them (such as min_p)."""


class ReplySettings(Config):
    """The form in which a trajectory is asked for."""

    continue_cut: bool = True
    """Continue a reply that was cut at its token limit, once."""
    form: Literal["auto", "json", "tagged"] = "auto"
    """JSON where the endpoint can constrain it, else tagged text."""
    shape: Shape = "free"
    """`seed` holds a small model to its seed's sequence of roles and tools."""
    reasoning: bool = True
    """Whether assistant turns may carry a short reasoning."""


class SelectSettings(Config):
    """Which valid trajectories are refused as near-duplicates or as contaminated."""

    near: float | None = Field(default=THRESHOLD, gt=0, le=1)
    """Refuse a trajectory whose similarity to a seed or an earlier one (share of word pairs) is at least this; None: refuse exact copies only."""
    benchmarks: dict[str, list[str]] = Field(default_factory=dict)
    """Benchmarks by name, each with its files, folders or patterns. Trajectories that repeat their words or calls are refused."""
    ngram: int = Field(default=GRAM, ge=LEAST)
    """Number of consecutive words shared with a benchmark's task that counts as contamination."""


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
    """How many trajectories to accept."""
    seed: int = 0
    """Number from which every random choice derives."""
    seeds: SeedSettings = Field(default_factory=SeedSettings)
    """Which seed trajectories are amplified."""
    llm: LLMSettings = Field(default_factory=EmbeddedSettings)
    """The model that writes the trajectories."""
    mix: list[MixedModel] = Field(default_factory=list)
    """Further models that write a part of the trajectories: `[{llm: {model: gpt-5}, weight: 1}]`. Each item has one model."""
    suite: str = "auto"
    """Rules, targets and checks of a benchmark's world (tau_retail, os, officebench, …); auto: by each seed's tools; generic: none."""
    prefilter: PrefilterSettings = Field(default_factory=PrefilterSettings)
    """Rules always filter the seeds; a model judges them too if this is enabled."""
    prompt: PromptSettings = Field(default_factory=PromptSettings)
    """How prompts are made."""
    plan: PlanSettings = Field(default_factory=PlanSettings)
    """Distribution of the requested conversations, if `prompt.scenarios` is on."""
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    """How replies are sampled."""
    reply: ReplySettings = Field(default_factory=ReplySettings)
    """In which form a trajectory is asked for."""
    checks: Checks = Field(default_factory=Checks)
    """Checks that each trajectory must pass."""
    judge: AcceptanceSettings = Field(default_factory=AcceptanceSettings)
    """A model that judges each trajectory that passed the checks, if this is enabled."""
    select: SelectSettings = Field(default_factory=SelectSettings)
    """Which valid trajectories are left out."""
    limits: EngineLimits = Field(default_factory=EngineLimits, json_schema_extra=OPERATIONAL)
    """Concurrency and patience for the endpoint, and the budget."""
    engine: ClusterSettings = Field(default_factory=ClusterSettings, json_schema_extra=OPERATIONAL)
    """Where the run works: in this process, or on the nodes of a Ray cluster."""
    stop: StopSettings = Field(default_factory=StopSettings, json_schema_extra=OPERATIONAL)
    """When the run gives up."""

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
