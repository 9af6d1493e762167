"""Task: one thing to do in a pack's world, with its initial state, its reference solution and its reward.

A task says where the world starts (`initial`, applied to the pack's state), what the user wants, which actions of agent and
user solve it, and how the result is judged (`reward`). A `script` is a whole conversation that contains the reference
actions; it is replayed to check the task and to record a seed trajectory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field, model_validator

from simia.reward_spec import AnswerSpec, GoalPart, GoalsSpec, RewardSpec, StateSpec, StrictModel

By = Literal["agent", "user"]
HAND_OVER, HAND_BACK = "Please go on with the next steps.", "I have done that."


class Action(StrictModel):
    """A call of the reference solution, by the agent or by the user's own tools."""

    by: By = "agent"
    """Whose call it is."""
    name: str
    """The tool's name."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """The arguments."""


class ScriptTurn(StrictModel):
    """One turn of a script: exactly one of a text of the user, a text of the agent, or the calls of one message."""

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


class GoalCall(Action):
    """An essential call of a goal."""

    mask: list[str] = Field(default_factory=list)
    """Arguments that are not compared."""


class Goal(StrictModel):
    """What the user wants in one turn, and the conditions that must hold at its end (EnvFactory §3.3)."""

    query: str
    """The user's words in this turn."""
    calls: list[GoalCall] = Field(default_factory=list)
    """Essential calls: the reference solution of this turn."""
    answer: str = "Done."
    """The agent's words at the end of the turn in the reference."""
    parts: list[GoalPart] = Field(default_factory=lambda: list[GoalPart]([StateSpec()]), min_length=1)
    """Parts of the reward that are judged after this turn, on its messages and the resulting state; all must hold."""


class Reveal(StrictModel):
    """Tools that become visible during the episode (missing-function tasks of BFCL)."""

    turn: int = Field(ge=2)
    """The message of the user, counted from 1, with which they become visible."""
    tools: list[str] = Field(min_length=1)
    """Names of the tools."""
    runs: bool = False
    """Whether calls before that turn are run, although the tools are not listed yet (BFCL)."""


class WithheldFact(StrictModel):
    """A fact that the user discloses only when asked (missing-parameter tasks of BFCL)."""

    fact: str
    """The user's words that disclose it."""
    asked: str
    """Regular expression (linear-time engine, case ignored) that the agent's question matches; for a user without a model."""


class CallLimits(StrictModel):
    """Limits of an episode that belong to a task or a pack. If the environment has a limit too, the lower one applies."""

    turns: int | None = Field(None, ge=1)
    """Maximum number of messages of the agent. More truncate the episode. null: no limit."""
    calls: int | None = Field(None, ge=1)
    """Maximum number of calls of the agent. More truncate the episode. null: no limit."""
    calls_per_turn: int | None = Field(None, ge=1)
    """Maximum number of calls of the agent between two messages of the user. Further calls are refused. null: no limit."""
    calls_per_message: int | None = Field(None, ge=1)
    """Maximum number of calls in one message of the agent. Further calls are refused and not counted. null: no limit. CodeGym uses 1 (B.4)."""


class Measurement(StrictModel):
    """How hard a task is for one agent, as `simia pack difficulty` measured it."""

    n: int = Field(ge=1)
    """Number of scored episodes."""
    solved: int = Field(ge=0)
    """Number of episodes with reward 1."""

    @property
    def rate(self) -> float:
        """Share of solved episodes."""
        return self.solved / self.n


class Task(StrictModel):
    """One thing to do in a pack's environment, with its initial state, reference solution and reward: a row of `tasks.jsonl`."""

    id: str
    """Unique in the pack."""
    split: str = "train"
    """Split, such as `train` or `test`."""
    instruction: str = ""
    """What the user wants and knows, for the user simulator. Without a simulator, it is the first message."""
    opening: str | None = None
    """The user's first message. null: it is not fixed."""
    conversation: bool = True
    """Whether a user model takes part in the conversation. false: the task is one message, and the agent's answer ends the episode."""
    profile: str | dict[str, Any] | None = None
    """Who the user is, for the user simulator."""
    initial: dict[str, Any] = Field(default_factory=dict)
    """The initial state: `{"patch": …}`, a JSON merge patch of the pack's state, or `{"state": …}`. Imported packs have their own forms."""
    reference: list[Action] = Field(default_factory=list)
    """The reference solution: calls in order."""
    script: list[ScriptTurn] = Field(default_factory=list)
    """A whole conversation that contains the reference; empty: `make_script` builds one."""
    goals: list[Goal] = Field(default_factory=list)
    """What the user wants turn by turn. Goals replace `reference` and `script`; the default `reward` is then a `goals` part."""
    tools: list[str] | None = None
    """Names of the agent's tools that are visible from the start. null: all but those of `reveals`."""
    reveals: list[Reveal] = Field(default_factory=list)
    """Tools that become visible later. The user's message of that turn lists them."""
    knows: list[str] = Field(default_factory=list)
    """Facts that the user may disclose at any time, for a user that is a model."""
    withheld: list[WithheldFact] = Field(default_factory=list)
    """Facts that the user discloses only when asked."""
    limits: CallLimits = Field(default_factory=CallLimits)
    """Limits of this task's episodes."""
    reward: RewardSpec = Field(default_factory=RewardSpec)
    """How an episode is judged."""
    measured: dict[str, Measurement] = Field(default_factory=dict)
    """Measured difficulty by agent. It is not part of the task's identity."""
    tags: list[str] = Field(default_factory=list)
    """Labels of any kind."""
    scenario: str | None = None
    """What the task has in common with others of its pack, such as one situation in several modes: agents solve such tasks together or not at
    all, so intervals and tests of differences count them as one. A variant (`extra.variant_of`) and its original share one without this
    field. It is not part of the task's identity."""
    seed: bool = False
    """Whether the replayed script is one of the pack's seed trajectories."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields of an imported benchmark that have no field here."""

    @model_validator(mode="after")
    def check_goals(self) -> Task:
        """Refuse goals together with a script or reference, refuse inconsistent parts and tools, and set the default reward of goals."""
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
    def agent_actions(self) -> list[Action]:
        """The agent's calls of the reference solution, in order."""
        return [action for action in self.actions if action.by == "agent"]

    @property
    def identity(self) -> dict[str, Any]:
        """The task as JSON for hashes, without `measured`, `scenario` and unused fields of format 2, so that tasks of format 1 keep
        their hashes."""
        row = self.model_dump(mode="json", exclude={"measured", "scenario"})
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
        """Whether a solution is known. A solution that consists of messages alone has no actions."""
        return bool(self.actions or self.script) or "reference" in self.model_fields_set

    def make_script(self) -> list[ScriptTurn]:
        """Return the script, or build one from the reference: the calls one by one, a message wherever agent and user take turns,
        and a last message with the answers that the reward expects."""
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


def name_scenarios(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks of a pack with `scenario` set for variants and their originals: the original's scenario, or its id."""
    by_id = {task.id: task for task in tasks}
    named: dict[str, str] = {}
    for task in tasks:
        if task.scenario is None and (path := trace_origins(task, by_id)):
            original = by_id.get(path[-1])
            named |= dict.fromkeys([task.id, *path], (original and original.scenario) or path[-1])
    return [
        task.model_copy(update={"scenario": named[task.id]}) if task.scenario is None and task.id in named else task
        for task in tasks
    ]


def trace_origins(task: Task, by_id: Mapping[str, Task]) -> list[str]:
    """Return the ids of the task that this one is a variant of, of the task that that one is a variant of, and so on. Empty for an original."""
    path: list[str] = []
    above = task.extra.get("variant_of")
    while isinstance(above, str) and above not in (task.id, *path):
        path.append(above)
        above = by_id[above].extra.get("variant_of") if above in by_id else None
    return path
