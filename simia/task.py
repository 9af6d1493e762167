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


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Action(StrictModel):
    """A call of the reference solution, by the agent or by the user's own tools."""

    by: By = "agent"
    """Whose call it is."""
    name: str
    """The tool's name."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments."""


class ScriptTurn(StrictModel):
    """One turn of a script: exactly one of the user's words, the agent's words, or calls that one message holds."""

    user: str | None = None
    """Text of the user."""
    agent: str | None = None
    """Text of the agent."""
    calls: list[Action] | None = None
    """Calls of one assistant message."""

    @model_validator(mode="after")
    def check_one_content(self) -> ScriptTurn:
        if sum(x is not None for x in (self.user, self.agent, self.calls)) != 1:
            raise ValueError("a turn has exactly one of user, agent, calls")
        return self


class StateSpec(StrictModel):
    """The final state equals the one that the reference solution leaves (ScaleEnv §3.4).

    `policies` maps a dotted path with `*` (`returns.*.created_at`) to how its values are compared: `exact`; `exempt`, not
    at all; `semantic`, by the words' overlap. They add to the pack's. `partial`: the share of right changes, not 0 or 1.
    """

    kind: Literal["state"] = "state"
    """Compare final states."""
    weight: float = Field(1.0, gt=0)
    """Weight in a mean."""
    policies: dict[str, Match] = Field(default_factory=dict)
    """Dotted path → `exact`, `exempt` or `semantic`; added to the pack's."""
    partial: bool = False
    """Share of correct changes, in place of 0 or 1."""


class ChecklistSpec(StrictModel):
    """Functions of the pack's `checks` file, each `check(final, initial) -> bool` over JSON states; the share that holds."""

    kind: Literal["checklist"] = "checklist"
    """Run check functions."""
    weight: float = Field(1.0, gt=0)
    """Weight in a mean."""
    functions: list[str] = Field(default_factory=list)
    """Names of functions in the pack's checks file."""
    code: dict[str, str] = Field(default_factory=dict)
    """Sources of functions that the task brings itself: item → `def check(final, initial): …`."""
    calls: list[dict[str, Any]] = Field(default_factory=list)
    """Checks that the pack's world runs itself: `{"name", "by", "arguments", "expect"}` (tau2's assertions)."""
    partial: bool = False
    """Share of checks that hold, in place of 0 or 1."""


class TraceSpec(StrictModel):
    """Every reference call is matched by a call of its own, in any order or in theirs (EnvFactory §3.4).

    `mask`: tool → arguments that are not compared. `extra`: what a call that matches nothing takes off (at most 0.5).
    """

    kind: Literal["trace"] = "trace"
    """Match the reference calls."""
    weight: float = Field(1.0, gt=0)
    """Weight in a mean."""
    mask: dict[str, list[str]] = Field(default_factory=dict)
    """Tool → arguments that are not compared."""
    only: list[str] | None = None
    """Tools that count; None: all that the reference calls."""
    ordered: bool = False
    """Whether the calls must come in the reference's order."""
    extra: float = Field(0.0, ge=0)
    """Subtracted for each call that matches nothing; at most 0.5 in all."""
    partial: bool = False
    """Share of matched calls, in place of 0 or 1."""


class AnswerSpec(StrictModel):
    """What the agent tells the user. `contains`: each of `expect` occurs in its words; `exact`: the last words equal one of
    them; `number`: a number within `tolerance` occurs; `regex`: each expression is found (linear-time engine)."""

    kind: Literal["answer"] = "answer"
    """Read the agent's words."""
    weight: float = Field(1.0, gt=0)
    """Weight in a mean."""
    match: Literal["contains", "exact", "number", "regex"] = "contains"
    """How `expect` is compared with the agent's words."""
    expect: list[str] = Field(min_length=1)
    """What is expected: texts, numbers or regular expressions."""
    tolerance: float = 1e-6
    """Largest difference of a number."""
    partial: bool = False
    """Share of what was found, in place of 0 or 1."""


class ValueSpec(StrictModel):
    """A number of the final state at the dotted `path`, scaled so that `low` is 0 and `high` is 1, and clipped (a game's points)."""

    kind: Literal["value"] = "value"
    """Read a number of the final state."""
    weight: float = Field(1.0, gt=0)
    """Weight in a mean."""
    path: str = Field(min_length=1)
    """Dotted path of the number."""
    low: float = 0.0
    """The number that is worth 0."""
    high: float = 1.0
    """The number that is worth 1."""

    @model_validator(mode="after")
    def ordered(self) -> ValueSpec:
        if self.low >= self.high:
            raise ValueError("low is less than high")
        return self


Part = StateSpec | ChecklistSpec | TraceSpec | AnswerSpec | ValueSpec
RewardPart = Annotated[Part, Field(discriminator="kind")]


class RewardSpec(StrictModel):
    """Parts and how they make one value: their product (all must hold), their weighted mean, or the least."""

    parts: list[RewardPart] = Field(default_factory=lambda: list[Part]([StateSpec()]), min_length=1)
    """What is judged."""
    combine: Literal["product", "mean", "min"] = "product"
    """How the parts make one value: product, weighted mean, or minimum."""
    unjudged: list[str] = Field(default_factory=list)
    """What the source asks for and none of the parts judges, such as a model's opinion: named, never silently passed."""


class Task(StrictModel):
    """One thing to do in a pack's environment, with what sets it up, solves it and judges it: a row of `tasks.jsonl`."""

    id: str
    """Unique in the pack."""
    split: str = "train"
    """Split, such as `train` or `test`."""
    instruction: str = ""
    """What the user wants and knows, for the user simulator; without one it is the first message."""
    opening: str | None = None
    """The user's first words, where they are given."""
    profile: str | dict[str, Any] | None = None
    """Who the user is, for the user simulator."""
    initial: dict[str, Any] = Field(default_factory=dict)
    """`{"patch": …}`, a JSON merge patch over the pack's state, or `{"state": …}`; imported packs have forms of their own."""
    reference: list[Action] = Field(default_factory=list)
    """The reference solution: calls in order."""
    script: list[ScriptTurn] = Field(default_factory=list)
    """A whole conversation around the reference; empty: one is made."""
    reward: RewardSpec = Field(default_factory=RewardSpec)
    """How an episode is judged."""
    tags: list[str] = Field(default_factory=list)
    """Free labels."""
    seed: bool = False
    """Whether the replayed script is one of the pack's seed trajectories."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields of an imported benchmark that have no field here."""

    @property
    def actions(self) -> list[Action]:
        """The reference solution: given, or the script's calls."""
        return self.reference or [action for turn in self.script for action in turn.calls or []]

    @property
    def solved(self) -> bool:
        """Whether a solution is known; one that is only words has no actions."""
        return bool(self.actions or self.script) or "reference" in self.model_fields_set

    def make_script(self) -> list[ScriptTurn]:
        """The script, or one made around the reference: calls one by one, a word between the agent's and the user's, and at
        the end what the reward's answers ask for."""
        if self.script:
            return self.script
        turns = [ScriptTurn(user=self.opening or self.instruction)]
        by: By = "agent"
        for action in self.reference:
            if action.by != by:
                turns.append(ScriptTurn(agent=HAND_OVER) if by == "agent" else ScriptTurn(user=HAND_BACK))
                by = action.by
            turns.append(ScriptTurn(calls=[action]))
        if by == "user":
            turns.append(ScriptTurn(user=HAND_BACK))
        answers = [part for part in self.reward.parts if isinstance(part, AnswerSpec)]
        words = [text for part in answers for text in (part.expect[:1] if part.match == "exact" else part.expect)]
        return [*turns, ScriptTurn(agent=", ".join(words) if words else "Done.")]


class Expectation(StrictModel):
    """What a test of a tool expects: `result`, a part of what it returns; `changes`, dotted path → new value; or an error's words."""

    outcome: Literal["success", "refusal"] = "success"
    """Whether the call succeeds."""
    result: Any = None
    """Part of the returned value; None: not compared."""
    error: str | None = None
    """Words of the error message; None: not compared."""
    changes: dict[str, Any] | None = None
    """Dotted path of the state → its new value; None: not compared."""


class ToolTest(StrictModel):
    """One row of `tests.jsonl`: a call in a state, and what must come of it (ScaleEnv §3.2)."""

    name: str
    """Unique in the pack."""
    initial: dict[str, Any] = Field(default_factory=dict)
    """The state, in the form of a task's `initial`."""
    before: list[Action] = Field(default_factory=list)
    """Calls that are made first."""
    call: Action
    """The call under test."""
    expect: Expectation = Field(default_factory=Expectation)
    """What it must do."""
