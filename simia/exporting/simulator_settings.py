"""Settings of `simia export --to simulator`: the form of the prompts, the length of rows, and what is held out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from simia.config import Config
from simia.envs.worlds.simulated.settings import SimulatedSettings

Share = Annotated[float, Field(ge=0, lt=1)]


class HeldOutSettings(Config):
    """Rows that are kept out of the training data. Tasks of splits other than `train` are always held out."""

    packs: list[str] = Field(default_factory=list, description="Names of packs of which all rows are held out.")
    tools: list[str] | Share = Field(
        default_factory=list,
        description="Names of tools of which all rows are held out, or a share of each pack's tools (0 to 1).",
    )
    tasks: Share = Field(
        0.0, description="Share of each pack's training tasks of which all rows are held out (0 to 1)."
    )

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
    """Settings of `simia export --to simulator`, as in configs/simulator/*.yaml."""

    kind: Literal["simulator"] = Field("simulator", description="Marks the config as that of an export for simulators.")
    world: SimulatedSettings = Field(
        default_factory=lambda: SimulatedSettings(knowledge="state"),
        description="Settings of the simulated world whose prompts the rows contain. Use the trained model with the same `backend_settings`.",
    )
    cutoff: int = Field(
        20_000, ge=64, description="Maximum number of tokens of a row. Longer rows are refused, not cut."
    )
    take: int | None = Field(
        None,
        ge=1,
        description="Number of training rows, divided equally among the classes (refused calls, and the others by |Δ|) where there are "
        "enough; then `largest` has no effect. null: see `largest`.",
    )
    largest: float = Field(
        0.5,
        gt=0,
        le=1,
        description="Without `take`: maximum share of one class in the training rows (0 to 1). 1: all rows.",
    )
    least: int = Field(
        100,
        ge=0,
        description="Without `take`: number of rows that the largest class keeps even if its share is larger than `largest`.",
    )
    recipe: str = Field(
        "sft",
        description="Recipe in configs/llamafactory that train.yaml copies: sft (a 7B model on 8 GPUs) or sft_small (SmolLM2-135M on "
        "one GPU).",
    )
    held_out: HeldOutSettings = Field(default_factory=HeldOutSettings, description="Rows that are kept for evaluation.")
    answerable: bool = Field(
        True,
        description="Whether to refuse rows whose result contains texts of the state that the prompt does not show.",
    )
