"""Settings of the simulated world: what the simulator knows, and how it is asked."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from simia.config import Config

Knowledge = Literal["schema", "reference", "state", "code"]
Dialect = Literal["simia", "brief", "agentworld-mcp", "agentworld-terminal"]


class SimulatedSettings(Config):
    """Prompt and sampling settings of the model that simulates the tools."""

    knowledge: Knowledge = Field(
        "reference",
        description="What the model is shown. schema: tools and policy. reference: also the task and its solution (as in the paper). "
        "state: tools, policy and the current tables, which the simulated world keeps. code: as state, with the source "
        "code of the called tool and its helpers.",
    )
    stateful: bool = Field(
        True,
        description="With knowledge state or code: keep the tables, apply the changes that the model reports, and show the current "
        "tables. false (only with knowledge state): show the initial tables, the task and its solution.",
    )
    compute: Literal["none", "reads"] = Field(
        "none",
        description="none: the model answers all calls. reads: the pack's code answers calls of tools that only read the state, and "
        "the model answers all others.",
    )
    state_tokens: int = Field(
        6_000,
        ge=100,
        description="Maximum number of tokens of the state in a prompt. Of a larger state, the rows most related to the call are shown.",
    )
    dialect: Dialect = Field(
        "simia",
        description="Form of prompts and answers. simia: simia's own. brief: for small models that were trained on exported rows. "
        "agentworld-mcp, agentworld-terminal: that of Qwen-AgentWorld for tools, or for a shell.",
    )
    observations: bool = Field(
        True,
        description="Whether to show the recorded results of the solution's calls, and to take examples of results from training "
        "references. Not with knowledge schema.",
    )
    replay: bool = Field(
        False,
        description="Whether to return the recorded results, without a request, as long as the episode makes the same calls as the "
        "reference trajectory.",
    )
    ledger: bool = Field(
        True,
        description="Whether to remember the values that answers gave for each entity, and to refuse answers that contradict them.",
    )
    again: int = Field(
        1, ge=0, description="Maximum number of further requests after an answer that was refused or cannot be parsed."
    )
    helpful: bool = Field(
        False,
        description="Whether error messages explain what would work, in more detail than those of a real system (Fig. 8).",
    )
    examples: int = Field(
        1,
        ge=0,
        description="Number of example results of each tool in the prompt. They come from the pack's seeds, else from training references.",
    )
    context: int = Field(
        60_000,
        ge=2_000,
        description="Maximum number of tokens of a prompt. Older results are shortened, then left out, to fit.",
    )
    temperature: float | None = Field(1.0, ge=0, description="Sampling temperature. null: the endpoint's default.")
    max_tokens: int | None = Field(
        4096,
        ge=64,
        description="Maximum number of tokens of the answer to the calls of one turn. null: the endpoint's limit.",
    )
    extra: dict[str, Any] = Field(default_factory=dict, description="Additional fields of the request body.")
    shell_prompt: str = Field(
        "root@localhost:/#", description="agentworld-terminal: the shell prompt that the first screen shows."
    )
    duration: float = Field(
        5.0,
        gt=0,
        description="agentworld-terminal: seconds from a command until the screen is read, if the tool has no argument for them.",
    )

    @property
    def holds_state(self) -> bool:
        """Whether the world holds the pack's tables."""
        return self.stateful and self.knowledge in ("state", "code")

    @model_validator(mode="after")
    def check_state(self) -> Self:
        """Refuse settings that need a held state without one."""
        if self.knowledge == "code" and not self.stateful:
            raise ValueError("knowledge is code, which holds the state: leave out stateful, or set knowledge=state")
        if self.replay and self.holds_state:
            raise ValueError(
                "replay gives recorded results, whose changes are not recorded: set stateful=false, or leave out replay"
            )
        if self.compute == "reads" and not self.holds_state:
            raise ValueError(
                "compute=reads needs a world that holds the state: set knowledge=state or knowledge=code, without stateful=false"
            )
        return self

    @model_validator(mode="after")
    def check_dialect(self) -> Self:
        """Refuse `brief` without a held state, and the other dialects with one: their answers report no changes. These use no ledger."""
        if self.dialect == "simia":
            return self
        if self.dialect == "brief":
            if not self.holds_state:
                raise ValueError(
                    "dialect brief shows the held state alone: set knowledge to state or code, or dialect to simia"
                )
            return self
        if self.knowledge not in ("schema", "reference"):
            raise ValueError(
                f"dialect {self.dialect} answers with observations alone, without changes: set knowledge to schema or reference, "
                "or dialect to simia"
            )
        if self.ledger and "ledger" in self.model_fields_set:
            raise ValueError(
                f"dialect {self.dialect} answers without the changes that the ledger compares: leave out `ledger`"
            )
        self.ledger = False
        return self
