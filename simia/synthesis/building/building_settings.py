"""Settings of the stages that build an environment."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from simia.config import Config


class BuildingSettings(Config):
    """How an environment is designed, built and tested."""

    operations: int = Field(default=18, ge=2)
    """Minimum number of operations (tools) of a design. The prompt asks for at most a third more. A design with more than twice as many is
    refused, because each operation costs requests."""
    kept: int = Field(default=10, ge=1)
    """Minimum number of tools that are left after all tests. An environment with fewer is refused. A later assessment by a check agent
    may drop further tools."""
    tests: int = Field(default=4, ge=2)
    """Maximum number of tests of one tool."""
    debug_rounds: int = Field(default=5, ge=0)
    """Maximum number of rounds that repair a tool, its tests or the example state. A tool that still fails is dropped (ScaleEnv §3.2)."""
    random_calls: int = Field(default=200, ge=0)
    """Number of random calls to the complete environment."""
    repeats: int = Field(default=10, ge=0)
    """Number of times that the tests of writing tools are repeated after the random calls, so that the tools create other new ids. To replay a
    recording that is older than this setting, set 0 if a tool does not pass."""
    execution: bool = True
    """Whether code is executed and tested before it is accepted. false: accept code without executing it, to measure the effect of execution."""

    formats: bool = True
    """Whether the format of a designed argument (`date` or `email`) becomes part of the tool's schema. To replay a recording that is older than
    this setting, set false."""

    @model_validator(mode="after")
    def check_kept(self) -> Self:
        if self.kept > self.operations:
            raise ValueError(
                f"kept is {self.kept}, more than operations ({self.operations}): lower kept, or raise operations"
            )
        return self
