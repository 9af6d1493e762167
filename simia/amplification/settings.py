"""Settings of an amplification: what `configs/amplify/*.yaml` holds. A string under each field says what it does."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from simia.amplification.prompt import PromptSettings
from simia.amplification.reply_schema import Shape
from simia.amplification.turnwise import TurnwiseSettings
from simia.config import OPERATIONAL, Config
from simia.llm.backends import LLMSettings
from simia.llm.embedded import EmbeddedSettings
from simia.llm.engine import Limits
from simia.quality.check import Checks
from simia.quality.judging.settings import JudgeSettings
from simia.quality.selection.contamination import GRAM, LEAST
from simia.quality.selection.near_duplicates import THRESHOLD


class SeedSettings(Config):
    """Which seed trajectories are amplified."""

    packs: list[str] = Field(default_factory=lambda: ["customer_service", "office"], min_length=1)
    """Packs by name or path, or files of trajectories in any dialect that `simia.formats` reads."""
    dialect: str | None = None
    """Dialect of the files; recognised from their first rows when left out."""
    max_messages: int | None = Field(default=None, ge=2)
    """Only seeds of at most so many messages: what a small model can imitate."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first so many seeds of each pack or file."""


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
    """Send each item's own number as the request's seed, where the endpoint samples by it."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request body, as the endpoint knows them (such as min_p)."""


class ReplySettings(Config):
    """The form in which a trajectory is asked for."""

    mode: Literal["whole", "turns"] = "whole"
    """A whole trajectory in one reply (paper §2.2), or turn by turn in many small ones, for small models."""
    continue_cut: bool = True
    """Continue a reply that was cut at its token limit, once."""

    form: Literal["auto", "json", "tagged"] = "auto"
    """JSON where the endpoint can constrain it, else tagged text."""
    shape: Shape = "free"
    """`seed` holds a small model to its seed's sequence of roles and tools."""
    reasoning: bool = True
    """Whether assistant turns may carry a short reasoning."""


class SelectSettings(Config):
    """What is left out of trajectories that are sound by themselves."""

    near: float | None = Field(default=THRESHOLD, gt=0, le=1)
    """Refuse what is at least so like a seed or an earlier trajectory (share of word pairs); None: exact copies only."""
    benchmarks: dict[str, list[str]] = Field(default_factory=dict)
    """Benchmarks by name, each with its files, folders or patterns: what repeats their words or calls is refused."""
    ngram: int = Field(default=GRAM, ge=LEAST)
    """So many words in a row, the same as in a benchmark's task, are contamination."""


class StopSettings(Config):
    """When a run gives up before it has accepted n."""

    attempts: int | None = Field(default=None, ge=1)
    """Items at most; None: ten times n, and fifty."""
    min_yield: float = Field(default=0.02, ge=0, le=1)
    """Stop when less than this share of the latest `window` items was accepted: these seeds yield no more."""
    window: int = Field(default=100, ge=10)
    """How many of the latest items the yield is taken over."""
    item_tries: int = Field(default=3, ge=1)
    """How often an item is put to the endpoint again after it failed (each time with all retries)."""
    outage: int = Field(default=8, ge=1)
    """Stop after so many failures of the endpoint in a row with no reply between them."""


class AmplifyConfig(Config):
    """Everything that a run of `simia amplify` depends on."""

    n: int = Field(default=8, ge=1, json_schema_extra=OPERATIONAL)
    """How many trajectories to accept."""
    seed: int = 0
    """Number from which every random choice derives."""
    seeds: SeedSettings = Field(default_factory=SeedSettings)
    """Which seed trajectories are amplified."""
    llm: LLMSettings = Field(default_factory=EmbeddedSettings)
    """The model that writes the trajectories."""
    suite: str = "auto"
    """Rules, targets and checks of a benchmark's world (tau_retail, os, officebench, …); auto: by each seed's tools; generic: none."""
    prefilter: JudgeSettings = Field(default_factory=JudgeSettings)
    """Seeds are judged by rules always, and by a model where this is enabled."""
    prompt: PromptSettings = Field(default_factory=PromptSettings)
    """How prompts are made."""
    sampling: SamplingSettings = Field(default_factory=SamplingSettings)
    """How replies are sampled."""
    reply: ReplySettings = Field(default_factory=ReplySettings)
    """In which form a trajectory is asked for."""
    turnwise: TurnwiseSettings = Field(default_factory=TurnwiseSettings)
    """For `reply.mode: turns`."""
    checks: Checks = Field(default_factory=Checks)
    """What is checked of each trajectory."""
    select: SelectSettings = Field(default_factory=SelectSettings)
    """Which valid trajectories are left out."""
    limits: Limits = Field(default_factory=Limits, json_schema_extra=OPERATIONAL)
    """How hard the endpoint is pushed, and what may be spent."""
    checkers: int | None = Field(default=None, ge=0, le=64, json_schema_extra=OPERATIONAL)
    """Processes that read and check replies; None: one for each further core, four at most, for runs of 2,000 or more."""
    stop: StopSettings = Field(default_factory=StopSettings, json_schema_extra=OPERATIONAL)
    """When the run gives up."""
