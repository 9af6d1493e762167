"""The settings of a reward: its parts, how they are combined, and deductions. A task holds them as `reward`; `simia.envs.rewards` computes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Match = Literal["exact", "exempt", "semantic"]


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class PartSpec(StrictModel):
    """A part of a reward. Its `kind` is written also where only fields that were set are: without it a part cannot be read."""

    weight: float = Field(1.0, gt=0)
    """Weight in a mean."""

    def model_post_init(self, context: Any, /) -> None:
        """Mark `kind` as set."""
        self.model_fields_set.add("kind")


class StateSpec(PartSpec):
    """The final state equals the one that the reference solution leaves (ScaleEnv §3.4).

    `policies` maps a dotted path with `*` (`returns.*.created_at`) to how its values are compared: `exact`; `exempt` (not at
    all); `semantic` (by overlap of words). They are added to the pack's. `partial`: share of correct changes, in place of 0 or 1.
    """

    kind: Literal["state"] = "state"
    """Compare final states."""
    policies: dict[str, Match] = Field(default_factory=dict)
    """Dotted path → `exact`, `exempt` or `semantic`; added to the pack's."""
    partial: bool = False
    """Whether the value is the share of correct changes instead of 0 or 1."""


class ChecklistSpec(PartSpec):
    """Functions `check(final, initial) -> bool` over JSON states, from the pack's `checks` file or from the task, and checks by the world."""

    kind: Literal["checklist"] = "checklist"
    """Run check functions."""
    functions: list[str] = Field(default_factory=list)
    """Names of functions in the pack's checks file."""
    code: dict[str, str] = Field(default_factory=dict)
    """Source code of the task's own check functions: item → `def check(final, initial): …`."""
    calls: list[dict[str, Any]] = Field(default_factory=list)
    """Checks that the pack's world runs itself: `{"name", "by", "arguments", "expect"}` (tau2's assertions)."""
    partial: bool = False
    """Whether the value is the share of checks that hold instead of 0 or 1."""


class TraceSpec(PartSpec):
    """Each reference call is matched by a different call of the agent, in any order or in the reference's order (EnvFactory §3.4)."""

    kind: Literal["trace"] = "trace"
    """Match the reference calls."""
    mask: dict[str, list[str]] = Field(default_factory=dict)
    """Tool → arguments that are not compared."""
    only: list[str] | None = None
    """Tools that count. null: all that the reference calls."""
    ordered: bool = False
    """Whether the calls must come in the reference's order."""
    extra: float = Field(0.0, ge=0)
    """Deduction for each call that matches no reference call, at most 0.5 in total."""
    partial: bool = False
    """Whether the value is the share of matched calls instead of 0 or 1."""


class AnswerSpec(PartSpec):
    """What the agent tells the user. `contains`: each of `expect` occurs in its messages; `exact`: its last message equals one of
    them; `number`: each number occurs, within `tolerance`; `regex`: each expression is found (linear-time engine)."""

    kind: Literal["answer"] = "answer"
    """Read the agent's words."""
    match: Literal["contains", "exact", "number", "regex"] = "contains"
    """How `expect` is compared with the agent's words."""
    expect: list[str] = Field(min_length=1)
    """The expected texts, numbers or regular expressions."""
    tolerance: float = 1e-6
    """Maximum difference of a number."""
    partial: bool = False
    """Whether the value is the share of the expected items that were found instead of 0 or 1."""


class ValueSpec(PartSpec):
    """A number of the final state at the dotted `path`, scaled so that `low` is 0 and `high` is 1, and clipped (a game's points)."""

    kind: Literal["value"] = "value"
    """Read a number of the final state."""
    path: str = Field(min_length=1)
    """Dotted path of the number."""
    low: float = 0.0
    """The number for which the reward is 0."""
    high: float = 1.0
    """The number for which the reward is 1."""

    @model_validator(mode="after")
    def ordered(self) -> ValueSpec:
        if self.low >= self.high:
            raise ValueError("low is less than high")
        return self


class ResultsSpec(PartSpec):
    """Each text that the goal's calls return was returned to the agent, in this turn or before, and the agent made a call in this turn (BFCL)."""

    kind: Literal["results"] = "results"
    """Compare the results of calls. Only for parts of a goal."""


class GoalsSpec(PartSpec):
    """Every goal of the task is reached in its turn: the product of the goals' values (EnvFactory §3.3, BFCL multi-turn)."""

    kind: Literal["goals"] = "goals"
    """Judge each goal of the task after its turn."""
    partial: bool = False
    """Whether the value is the mean over the goals instead of the product."""


Part = StateSpec | ChecklistSpec | TraceSpec | AnswerSpec | ValueSpec | GoalsSpec | ResultsSpec
RewardPart = Annotated[Part, Field(discriminator="kind")]


class PenaltySpec(StrictModel):
    """A deduction from the reward: `each` for every call beyond the first `free` ones, up to `most` in total."""

    kind: Literal["calls", "errors"] = "calls"
    """`calls`: calls of the agent; `errors`: its calls that failed."""
    tools: list[str] | None = None
    """Tools whose calls count. null: all."""
    free: int = Field(0, ge=0)
    """Number of calls without a deduction."""
    each: float = Field(0.1, gt=0)
    """Deduction for each further call."""
    most: float = Field(1.0, gt=0)
    """Maximum total deduction."""


class RewardSpec(StrictModel):
    """The parts of a reward and how they are combined: product (all must hold), weighted mean, or minimum."""

    parts: list[RewardPart] = Field(default_factory=lambda: list[Part]([StateSpec()]), min_length=1)
    """The parts that are judged."""
    combine: Literal["product", "mean", "min"] = "product"
    """How the parts make one value: product, weighted mean, or minimum."""
    penalties: list[PenaltySpec] = Field(default_factory=list)
    """Deductions after the parts were combined; the result is at least 0."""
    unjudged: list[str] = Field(default_factory=list)
    """Criteria of the source that no part judges, such as a model's opinion. They are listed here so that nobody takes them for fulfilled."""

    @model_validator(mode="before")
    @classmethod
    def refuse_function(cls, data: Any) -> Any:
        """Refuse a reward function in a pack: it is the user's own code, and runs outside of the sandbox."""
        parts = data.get("parts") if isinstance(data, dict) else None
        kinds = [part.get("kind") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
        if "function" in kinds or (isinstance(data, dict) and not {"function", "reward_function"}.isdisjoint(data)):
            raise ValueError(
                "a pack cannot name a reward function, which runs outside of the sandbox: name it in your config, as reward_function"
            )
        return data


GoalPart = Annotated[StateSpec | ChecklistSpec | TraceSpec | AnswerSpec | ResultsSpec, Field(discriminator="kind")]
