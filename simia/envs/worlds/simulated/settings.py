"""Settings of the simulated world: what the simulator knows, and how it is asked."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from simia.config import Config

Knowledge = Literal["schema", "reference", "state", "code"]
Dialect = Literal["simia", "brief", "agentworld-mcp", "agentworld-terminal"]


class SimulatedSettings(Config):
    """Prompting and sampling of the model that plays the tools."""

    knowledge: Knowledge = Field(
        "reference",
        description="schema: tools and policy only; reference: the task and its solution too (the paper's); state: the pack's tables, which "
        "the world holds; code: the source of the called tool and its helpers too.",
    )
    stateful: bool = Field(
        True,
        description="With knowledge state or code: hold the tables, take the changes that the model names, and show the state as it is now. "
        "False, with state: show the tables as they were at the start, with the task and its solution.",
    )
    compute: Literal["none", "reads"] = Field(
        "none",
        description="reads: the pack's code answers tools that only read, on the held state; the model is asked for the others.",
    )
    state_tokens: int = Field(
        6_000,
        ge=100,
        description="Tokens of the held state in a prompt; of a larger one the rows nearest to the call are shown.",
    )
    dialect: Dialect = Field(
        "simia",
        description="Form of prompts and answers: simia; brief, for small models trained on exported rows; or that of Qwen-AgentWorld for tools (agentworld-mcp) or for a shell (agentworld-terminal).",
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
    shell_prompt: str = Field(
        "root@localhost:/#", description="agentworld-terminal: what the first screen shows, the prompt of the shell."
    )
    duration: float = Field(
        5.0,
        gt=0,
        description="agentworld-terminal: seconds of a command until its screen is read, where the tool has no argument for it.",
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
            raise ValueError("compute is reads, and the world holds no state: set knowledge=state or knowledge=code")
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
            raise ValueError(f"dialect {self.dialect} names no changes for the ledger to compare: leave out `ledger`")
        self.ledger = False
        return self
