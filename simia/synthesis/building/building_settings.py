"""Settings of the stages that build an environment."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from simia.config import Config


class BuildingSettings(Config):
    """How an environment is designed, built and tested."""

    operations: int = Field(default=18, ge=2)
    """Fewest operations of a design. The prompt asks for at most a third more; a design with more than twice as many is refused, since each
    operation costs questions."""
    kept: int = Field(default=10, ge=1)
    """Tools that must be left after all tests; an environment with fewer is refused."""
    tests: int = Field(default=4, ge=2)
    """Most tests of one tool."""
    debug_rounds: int = Field(default=5, ge=0)
    """Rounds in which tool, test or example are repaired; then the tool is dropped (ScaleEnv §3.2)."""
    random_calls: int = Field(default=200, ge=0)
    """Random calls to the complete environment."""
    repeats: int = Field(default=10, ge=0)
    """How often the tests of writing tools are repeated after the random calls, so that tools make other new ids. To replay a recording
    that is older than this setting, set 0 if a tool does not pass."""
    execution: bool = True
    """Whether code is executed before it is accepted. False only measures what execution finds."""

    formats: bool = True
    """Whether the format of a designed argument, `date` or `email`, becomes part of the tool's schema. To replay a recording that is older
    than this setting, set false."""

    @model_validator(mode="after")
    def check_kept(self) -> Self:
        if self.kept > self.operations:
            raise ValueError(
                f"kept: {self.kept} tools cannot be left of {self.operations} operations: lower kept, or raise operations"
            )
        return self
