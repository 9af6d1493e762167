"""Task: one thing to do in a pack's world, with what is needed to set it up, to solve it and to judge it.

A task holds where the world starts (`initial`, on top of the pack's state), what the user wants, a reference solution as
actions of agent and user, and how the result is judged (`reward`). A `script` words a whole conversation around the
reference: it is replayed to check the task and to record a seed trajectory.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

By = Literal["agent", "user"]
Match = Literal["exact", "exempt", "semantic"]
HAND_OVER, HAND_BACK = "Please go on with the next steps.", "I have done that."


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Action(Strict):
    """A call of the reference solution, by the agent or by the user's own tools."""

    by: By = "agent"
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class Turn(Strict):
    """One turn of a script: exactly one of the user's words, the agent's words, or calls that one message holds."""

    user: str | None = None
    agent: str | None = None
    calls: list[Action] | None = None

    @model_validator(mode="after")
    def one(self) -> Turn:
        if sum(x is not None for x in (self.user, self.agent, self.calls)) != 1:
            raise ValueError("a turn has exactly one of user, agent, calls")
        return self


class StateSpec(Strict):
    """The final state equals the one that the reference solution leaves (ScaleEnv §3.4).

    `policies` maps a dotted path with `*` (`returns.*.created_at`) to how its values are compared: `exact`; `exempt`, not
    at all; `semantic`, by the words' overlap. They add to the pack's. `partial`: the share of right changes, not 0 or 1.
    """

    kind: Literal["state"] = "state"
    weight: float = Field(1.0, gt=0)
    policies: dict[str, Match] = Field(default_factory=dict)
    partial: bool = False


class ChecklistSpec(Strict):
    """Functions of the pack's `checks` file, each `check(final, initial) -> bool` over JSON states; the share that holds."""

    kind: Literal["checklist"] = "checklist"
    weight: float = Field(1.0, gt=0)
    functions: list[str] = Field(default_factory=list)
    code: dict[str, str] = Field(default_factory=dict)
    """Sources of functions that the task brings itself: item → `def check(final, initial): …`."""
    calls: list[dict[str, Any]] = Field(default_factory=list)
    """Checks that the pack's world runs itself: `{"name", "by", "arguments", "expect"}` (tau2's assertions)."""
    partial: bool = False


class TraceSpec(Strict):
    """Every reference call is matched by a call of its own, in any order or in theirs (EnvFactory §3.4).

    `mask`: tool → arguments that are not compared. `extra`: what a call that matches nothing takes off (at most 0.5).
    """

    kind: Literal["trace"] = "trace"
    weight: float = Field(1.0, gt=0)
    mask: dict[str, list[str]] = Field(default_factory=dict)
    only: list[str] | None = None
    """Tools that count; None: all that the reference calls."""
    ordered: bool = False
    extra: float = Field(0.0, ge=0)
    partial: bool = False


class AnswerSpec(Strict):
    """What the agent tells the user. `contains`: each of `expect` occurs in its words; `exact`: the last words equal one of
    them; `number`: a number within `tolerance` occurs; `regex`: each expression is found (linear-time engine)."""

    kind: Literal["answer"] = "answer"
    weight: float = Field(1.0, gt=0)
    match: Literal["contains", "exact", "number", "regex"] = "contains"
    expect: list[str] = Field(min_length=1)
    tolerance: float = 1e-6
    partial: bool = False


class ValueSpec(Strict):
    """A number of the final state at the dotted `path`, scaled so that `low` is 0 and `high` is 1, and clipped (a game's points)."""

    kind: Literal["value"] = "value"
    weight: float = Field(1.0, gt=0)
    path: str = Field(min_length=1)
    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def ordered(self) -> ValueSpec:
        if self.low >= self.high:
            raise ValueError("low is less than high")
        return self


Part = StateSpec | ChecklistSpec | TraceSpec | AnswerSpec | ValueSpec
RewardPart = Annotated[Part, Field(discriminator="kind")]


class RewardSpec(Strict):
    """Parts and how they make one value: their product (all must hold), their weighted mean, or the least."""

    parts: list[RewardPart] = Field(default_factory=lambda: list[Part]([StateSpec()]), min_length=1)
    combine: Literal["product", "mean", "min"] = "product"
    unjudged: list[str] = Field(default_factory=list)
    """What the source asks for and none of the parts judges, such as a model's opinion: named, never silently passed."""


class Task(Strict):
    """One row of `tasks.jsonl`."""

    id: str
    split: str = "train"
    instruction: str = ""
    """What the user wants and knows, for whoever plays the user; without a user it is the first message."""
    opening: str | None = None
    """The user's first words, where they are given."""
    profile: str | dict[str, Any] | None = None
    initial: dict[str, Any] = Field(default_factory=dict)
    """`{"patch": …}`, a JSON merge patch over the pack's state, or `{"state": …}`; imported packs have forms of their own."""
    reference: list[Action] = Field(default_factory=list)
    script: list[Turn] = Field(default_factory=list)
    reward: RewardSpec = Field(default_factory=RewardSpec)
    tags: list[str] = Field(default_factory=list)
    seed: bool = False
    """Whether the replayed script is one of the pack's seed trajectories."""
    extra: dict[str, Any] = Field(default_factory=dict)

    @property
    def actions(self) -> list[Action]:
        """The reference solution: given, or the script's calls."""
        return self.reference or [action for turn in self.script for action in turn.calls or []]

    @property
    def solved(self) -> bool:
        """Whether a solution is known; one that is only words has no actions."""
        return bool(self.actions or self.script) or "reference" in self.model_fields_set

    def spoken(self) -> list[Turn]:
        """The script, or one made around the reference: calls one by one, a word between the agent's and the user's, and at
        the end what the reward's answers ask for."""
        if self.script:
            return self.script
        turns = [Turn(user=self.opening or self.instruction)]
        by: By = "agent"
        for action in self.reference:
            if action.by != by:
                turns.append(Turn(agent=HAND_OVER) if by == "agent" else Turn(user=HAND_BACK))
                by = action.by
            turns.append(Turn(calls=[action]))
        if by == "user":
            turns.append(Turn(user=HAND_BACK))
        answers = [part for part in self.reward.parts if isinstance(part, AnswerSpec)]
        words = [text for part in answers for text in (part.expect[:1] if part.match == "exact" else part.expect)]
        return [*turns, Turn(agent=", ".join(words) if words else "Done.")]


class Expectation(Strict):
    """What a test of a tool expects: `result`, a part of what it returns; `changes`, dotted path → new value; or an error's words."""

    outcome: Literal["success", "refusal"] = "success"
    result: Any = None
    error: str | None = None
    changes: dict[str, Any] | None = None


class ToolTest(Strict):
    """One row of `tests.jsonl`: a call in a state, and what must come of it (ScaleEnv §3.2)."""

    name: str
    initial: dict[str, Any] = Field(default_factory=dict)
    before: list[Action] = Field(default_factory=list)
    call: Action
    expect: Expectation = Field(default_factory=Expectation)
