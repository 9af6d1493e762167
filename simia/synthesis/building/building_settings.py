"""Settings of the stages that build an environment."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from simia.config import Config


class BuildingSettings(Config):
    """How an environment is designed, built and tested."""

    operations: int = Field(default=18, ge=2)
    """Operations that a design has at least. A third more are asked for at the most; more than twice as many are refused, since each costs
    questions."""
    kept: int = Field(default=10, ge=1)
    """Tools that must be left after all tests; an environment with fewer is refused."""
    tests: int = Field(default=4, ge=2)
    """Most tests of one tool."""
    debug_rounds: int = Field(default=5, ge=0)
    """Rounds in which tool, test or example are repaired; then the tool is dropped (ScaleEnv §3.2)."""
    random_calls: int = Field(default=200, ge=0)
    """Random calls to the complete environment."""
    repeats: int = Field(default=10, ge=0)
    """How often the tests of tools that write are repeated after the random calls, with other new ids. Recordings that are older than this
    setting are replayed with 0 where a tool does not pass."""
    execution: bool = True
    """Whether code is executed before it is accepted. False only measures what execution finds."""

    formats: bool = True
    """Whether the format of a designed argument, `date` or `email`, becomes part of the tool's schema. Recordings that are older than this
    setting are replayed with false."""

    @model_validator(mode="after")
    def check_kept(self) -> Self:
        if self.kept > self.operations:
            raise ValueError(
                f"kept: {self.kept} tools cannot be left of {self.operations} operations: lower kept, or raise operations"
            )
        return self
