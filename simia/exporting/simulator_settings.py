"""Settings of `simia export --to simulator`: the form of the prompts, the length of rows, and what is held out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from simia.config import Config
from simia.envs.worlds.simulated.settings import SimulatedSettings

Share = Annotated[float, Field(ge=0, lt=1)]


class HeldOutSettings(Config):
    """What the training rows must not show. Tasks of another split than `train` are always held out."""

    packs: list[str] = Field(default_factory=list, description="Packs by name: all of their rows are held out.")
    tools: list[str] | Share = Field(
        default_factory=list,
        description="Tools by name, or a share of each pack's tools: all of their rows are held out.",
    )
    tasks: Share = Field(0.0, description="Share of each pack's training tasks whose rows are held out.")

    @field_validator("tools", mode="before")
    @classmethod
    def check_tools(cls, value: Any) -> Any:
        """Refuse what is neither a share nor a list, with both in the message."""
        if not isinstance(value, list) and not (
            isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1
        ):
            raise ValueError(f"expected a share of at least 0 and below 1, or a list of tools, got {value!r:.60}")
        return value


class SimulatorConfig(Config):
    """What configs/simulator/*.yaml hold."""

    kind: Literal["simulator"] = Field("simulator", description="Marks the config of an export for simulators.")
    world: SimulatedSettings = Field(
        default_factory=lambda: SimulatedSettings(knowledge="state"),
        description="The simulated world whose prompts the rows have, as `backend_settings`: use the trained model with the same.",
    )
    cutoff: int = Field(20_000, ge=64, description="Longest row in tokens; longer ones are refused, not cut.")
    take: int | None = Field(
        None,
        ge=1,
        description="Number of training rows, in equal parts of the classes of |Δ|, as far as there are; `largest` does not hold then.",
    )
    largest: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Without `take`: largest share of the training rows that one class of |Δ| may have; 1: all rows.",
    )
    least: int = Field(
        100,
        ge=0,
        description="Without `take`: rows that the largest class keeps whatever its share is, if it has them.",
    )
    recipe: str = Field(
        "sft",
        description="Recipe of configs/llamafactory that train.yaml copies: sft (a 7B model on 8 GPUs), sft_small (SmolLM2-135M on one).",
    )
    held_out: HeldOutSettings = Field(default_factory=HeldOutSettings, description="What is kept for measuring.")
    answerable: bool = Field(
        True, description="Refuse rows whose result has texts of the state that the prompt does not show."
    )
