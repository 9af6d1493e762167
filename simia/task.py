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


class PartSpec(StrictModel):
    """A part of a reward."""

    weight: float = Field(1.0, gt=0)
    """Weight in a mean."""


class StateSpec(PartSpec):
    """The final state equals the one that the reference solution leaves (ScaleEnv §3.4).

    `policies` maps a dotted path with `*` (`returns.*.created_at`) to how its values are compared: `exact`; `exempt`, not
    at all; `semantic`, by the words' overlap. They add to the pack's. `partial`: the share of right changes, not 0 or 1.
    """

    kind: Literal["state"] = "state"
    """Compare final states."""
    policies: dict[str, Match] = Field(default_factory=dict)
    """Dotted path → `exact`, `exempt` or `semantic`; added to the pack's."""
    partial: bool = False
    """Share of correct changes, in place of 0 or 1."""


class ChecklistSpec(PartSpec):
    """Functions of the pack's `checks` file, each `check(final, initial) -> bool` over JSON states; the share that holds."""

    kind: Literal["checklist"] = "checklist"
    """Run check functions."""
    functions: list[str] = Field(default_factory=list)
    """Names of functions in the pack's checks file."""
    code: dict[str, str] = Field(default_factory=dict)
    """Sources of functions that the task brings itself: item → `def check(final, initial): …`."""
    calls: list[dict[str, Any]] = Field(default_factory=list)
    """Checks that the pack's world runs itself: `{"name", "by", "arguments", "expect"}` (tau2's assertions)."""
    partial: bool = False
    """Share of checks that hold, in place of 0 or 1."""


class TraceSpec(PartSpec):
    """Every reference call is matched by a call of its own, in any order or in theirs (EnvFactory §3.4)."""

    kind: Literal["trace"] = "trace"
    """Match the reference calls."""
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


class AnswerSpec(PartSpec):
    """What the agent tells the user. `contains`: each of `expect` occurs in its words; `exact`: the last words equal one of
    them; `number`: a number within `tolerance` occurs; `regex`: each expression is found (linear-time engine)."""

    kind: Literal["answer"] = "answer"
    """Read the agent's words."""
    match: Literal["contains", "exact", "number", "regex"] = "contains"
    """How `expect` is compared with the agent's words."""
    expect: list[str] = Field(min_length=1)
    """What is expected: texts, numbers or regular expressions."""
    tolerance: float = 1e-6
    """Largest difference of a number."""
    partial: bool = False
    """Share of what was found, in place of 0 or 1."""


class ValueSpec(PartSpec):
    """A number of the final state at the dotted `path`, scaled so that `low` is 0 and `high` is 1, and clipped (a game's points)."""

    kind: Literal["value"] = "value"
    """Read a number of the final state."""
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


class ResultsSpec(PartSpec):
    """A call of the agent, in this turn or before, returned each text that the goal's calls return, and one was made in this turn (BFCL)."""

    kind: Literal["results"] = "results"
    """Compare what calls return: part of a goal."""


class GoalsSpec(PartSpec):
    """Every goal of the task is reached in its turn: the product of the goals' values (EnvFactory §3.3, BFCL multi-turn)."""

    kind: Literal["goals"] = "goals"
    """Judge each goal of the task after its turn."""
    partial: bool = False
    """Mean over the goals, in place of the product."""


Part = StateSpec | ChecklistSpec | TraceSpec | AnswerSpec | ValueSpec | GoalsSpec | ResultsSpec
RewardPart = Annotated[Part, Field(discriminator="kind")]


class PenaltySpec(StrictModel):
    """What lowers the reward: `each` for every call beyond the first `free` ones, `most` at the most."""

    kind: Literal["calls", "errors"] = "calls"
    """`calls`: calls of the agent; `errors`: its calls that failed."""
    tools: list[str] | None = None
    """Tools whose calls count; None: all."""
    free: int = Field(0, ge=0)
    """Calls that cost nothing."""
    each: float = Field(0.1, gt=0)
    """Subtracted for each further call."""
    most: float = Field(1.0, gt=0)
    """Largest sum that is subtracted."""


class RewardSpec(StrictModel):
    """Parts and how they make one value: their product (all must hold), their weighted mean, or the least."""

    parts: list[RewardPart] = Field(default_factory=lambda: list[Part]([StateSpec()]), min_length=1)
    """What is judged."""
    combine: Literal["product", "mean", "min"] = "product"
    """How the parts make one value: product, weighted mean, or minimum."""
    penalties: list[PenaltySpec] = Field(default_factory=list)
    """What is subtracted after the parts were combined; the result is at least 0."""
    unjudged: list[str] = Field(default_factory=list)
    """What the source asks for and none of the parts judges, such as a model's opinion: named, never silently passed."""

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


class GoalCall(Action):
    """An essential call of a goal."""

    mask: list[str] = Field(default_factory=list)
    """Arguments that are not compared."""


class Goal(StrictModel):
    """What the user wants in one turn, and what must have been done at the end of it (EnvFactory §3.3)."""

    query: str
    """The user's words in this turn."""
    calls: list[GoalCall] = Field(default_factory=list)
    """Essential calls: the reference solution of this turn."""
    answer: str = "Done."
    """The agent's words at the end of the turn in the reference."""
    parts: list[GoalPart] = Field(default_factory=lambda: list[GoalPart]([StateSpec()]), min_length=1)
    """What is judged after this turn, over its messages and the state that it leaves; all must hold."""


class Reveal(StrictModel):
    """Tools that become visible during the episode (missing-function tasks of BFCL)."""

    turn: int = Field(ge=2)
    """The message of the user, counted from 1, with which they become visible."""
    tools: list[str] = Field(min_length=1)
    """Names of the tools."""
    runs: bool = False
    """Whether a call before that turn is run: the tools are only not listed (BFCL)."""


class WithheldFact(StrictModel):
    """What the user discloses only when asked (missing-parameter tasks of BFCL)."""

    fact: str
    """The user's words that disclose it."""
    asked: str
    """Regular expression (linear-time engine, case ignored) that the agent's question matches; for a user without a model."""


class CallLimits(StrictModel):
    """Limits of an episode that belong to a task or a pack. They add to those of the environment: the lower one holds."""

    turns: int | None = Field(None, ge=1)
    """Messages of the agent; more truncate the episode."""
    calls: int | None = Field(None, ge=1)
    """Calls of the agent; more truncate the episode."""
    calls_per_turn: int | None = Field(None, ge=1)
    """Calls of the agent between two messages of the user; further ones are refused."""
    calls_per_message: int | None = Field(None, ge=1)
    """Calls in one message of the agent; further ones are refused and not counted. CodeGym has 1 (B.4)."""


class Measurement(StrictModel):
    """How hard a task is for one agent, as `simia pack difficulty` measured it."""

    n: int = Field(ge=1)
    """Scored episodes."""
    solved: int = Field(ge=0)
    """Episodes with reward 1."""

    @property
    def rate(self) -> float:
        """Share of solved episodes."""
        return self.solved / self.n


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
    conversation: bool = True
    """Whether a user model converses. False: the task is one message, and the answer of the agent ends the episode."""
    profile: str | dict[str, Any] | None = None
    """Who the user is, for the user simulator."""
    initial: dict[str, Any] = Field(default_factory=dict)
    """`{"patch": …}`, a JSON merge patch over the pack's state, or `{"state": …}`; imported packs have forms of their own."""
    reference: list[Action] = Field(default_factory=list)
    """The reference solution: calls in order."""
    script: list[ScriptTurn] = Field(default_factory=list)
    """A whole conversation around the reference; empty: one is made."""
    goals: list[Goal] = Field(default_factory=list)
    """What the user wants turn by turn. They stand in place of `reference` and `script`, and `reward` is by default a `goals` part."""
    tools: list[str] | None = None
    """Names of the agent's tools that are visible from the start; None: all but those of `reveals`."""
    reveals: list[Reveal] = Field(default_factory=list)
    """Tools that become visible later. The user's message with which they do then lists them."""
    knows: list[str] = Field(default_factory=list)
    """Facts that the user may disclose at any time, for a user that is a model."""
    withheld: list[WithheldFact] = Field(default_factory=list)
    """Facts that the user discloses only when asked."""
    limits: CallLimits = Field(default_factory=CallLimits)
    """Limits of this task's episodes."""
    reward: RewardSpec = Field(default_factory=RewardSpec)
    """How an episode is judged."""
    measured: dict[str, Measurement] = Field(default_factory=dict)
    """Agent → measured difficulty. It is no part of the task's identity."""
    tags: list[str] = Field(default_factory=list)
    """Free labels."""
    seed: bool = False
    """Whether the replayed script is one of the pack's seed trajectories."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields of an imported benchmark that have no field here."""

    @model_validator(mode="after")
    def check_goals(self) -> Task:
        """Refuse goals beside another solution; judge them by default."""
        parts = [part.kind for part in self.reward.parts]
        if self.goals:
            if self.script or self.reference:
                raise ValueError("a task with goals has no script and no reference: write the calls into the goals")
            if "reward" not in self.model_fields_set:
                self.reward = RewardSpec(parts=[GoalsSpec()])
        elif "goals" in parts:
            raise ValueError("a reward part of kind goals needs goals")
        if "results" in parts:
            raise ValueError("a part of kind results belongs to a goal: move it to goals[].parts")
        later = [name for reveal in self.reveals for name in reveal.tools]
        if both := sorted(set(later) & set(self.tools or [])):
            raise ValueError(f"tool {both[0]!r} is visible from the start and revealed later: name it once")
        return self

    @property
    def actions(self) -> list[Action]:
        """The reference solution: given, or the calls of the goals or of the script."""
        if self.goals:
            return [action for goal in self.goals for action in goal.calls]
        return self.reference or [action for turn in self.script for action in turn.calls or []]

    @property
    def identity(self) -> dict[str, Any]:
        """The task as JSON for hashes: without what was measured, and without fields of format 2 that are not used, so that
        tasks of format 1 keep their hashes."""
        row = self.model_dump(mode="json", exclude={"measured"})
        row["reveals"] = [{k: v for k, v in each.items() if k != "runs" or v} for each in row["reveals"]]
        for name in [each for each in ("goals", "tools", "reveals", "knows", "withheld") if not row[each]]:
            del row[name]
        if self.limits == CallLimits():
            del row["limits"]
        if self.conversation:
            del row["conversation"]
        if not self.reward.penalties:
            del row["reward"]["penalties"]
        return row

    def shows_tool(self, name: str, turn: int) -> bool:
        """Whether the agent sees a tool after `turn` messages of the user."""
        for reveal in self.reveals:
            if name in reveal.tools:
                return reveal.turn <= turn
        return self.tools is None or name in self.tools

    def runs_tool(self, name: str, turn: int) -> bool:
        """Whether a call of a tool is run after `turn` messages of the user."""
        return self.shows_tool(name, turn) or any(each.runs and name in each.tools for each in self.reveals)

    @property
    def needs_user(self) -> bool:
        """Whether the user must answer before it can be done: several goals, tools that are revealed later, withheld facts."""
        return len(self.goals) > 1 or bool(self.reveals or self.withheld)

    @property
    def solved(self) -> bool:
        """Whether a solution is known; one that is only words has no actions."""
        return bool(self.actions or self.script) or "reference" in self.model_fields_set

    def make_script(self) -> list[ScriptTurn]:
        """The script, or one made around the reference: calls one by one, a word between the agent's and the user's, and at
        the end what the reward's answers ask for."""
        if self.script:
            return self.script
        if self.goals:
            return [turn for goal in self.goals for turn in make_goal_script(goal)]
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


def make_goal_script(goal: Goal) -> list[ScriptTurn]:
    """The turns of a goal's reference: the query, its calls, the answer."""
    calls = [Action(**call.model_dump(exclude={"mask"})) for call in goal.calls]
    return [ScriptTurn(user=goal.query), *(ScriptTurn(calls=[call]) for call in calls), ScriptTurn(agent=goal.answer)]
