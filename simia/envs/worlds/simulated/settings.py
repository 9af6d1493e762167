"""Settings of the simulated world: what the simulator knows, and how it is asked."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from simia.config import Config

Knowledge = Literal["schema", "reference", "state"]


class SimulatedSettings(Config):
    """Prompting and sampling of the model that plays the tools."""

    knowledge: Knowledge = Field(
        "reference",
        description="schema: tools and policy only; reference: the task and its solution too (the paper's); state: the pack's tables too.",
    )
    observations: bool = Field(
        True,
        description="With the solution, show the recorded results of its calls; training references give examples of results too.",
    )
    replay: bool = Field(
        False,
        description="Give the recorded result, without asking the model, as long as an episode's calls are those of the reference trajectory.",
    )
    ledger: bool = Field(True, description="Keep the values of each entity, and refuse answers that contradict them.")
    again: int = Field(1, ge=0, description="Further attempts after an answer that contradicts or cannot be parsed.")
    helpful: bool = Field(False, description="Errors explain what would work, more than a real system's do (Fig. 8).")
    examples: int = Field(
        1,
        ge=0,
        description="Results of each tool that show the format: from the pack's seeds, else from training references.",
    )
    context: int = Field(60_000, ge=2_000, description="Tokens of a prompt; older results are left out beyond it.")
    temperature: float | None = Field(1.0, ge=0, description="Sampling temperature; None leaves it to the endpoint.")
    max_tokens: int | None = Field(4096, ge=64, description="Longest answer to the calls of one turn.")
    extra: dict[str, Any] = Field(default_factory=dict, description="Further fields of the request body.")
