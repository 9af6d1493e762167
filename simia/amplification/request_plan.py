"""Plan the request of one item: goals with their calls and outcomes, length, values, persona, an unexpected event, language, target.

One plan holds all parts of a request, so that they cannot contradict each other. `plan_request` is pure: it depends on the seed, the
settings, the item's number and counts that are taken at fixed places, so a resumed run makes the same plans.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from simia.amplification.goal_planning import Wish, plan_goals, plan_targeted_goals, rate_goals
from simia.amplification.plan_lines import PERSONAS, TWISTS, PlanLine, list_fitting
from simia.amplification.plan_settings import MOST_CALLS, Difficulty, PlanSettings
from simia.amplification.seed_traits import SeedTraits
from simia.amplification.tool_counts import ToolCounts
from simia.quality.goals import NOT_DONE, GoalOutcome, PlannedGoal
from simia.trajectory import Trajectory

MOST_WISHES = 12  # tries to get the wanted difficulty
PLAIN_SHARE = 1 / 3  # share of the items without a twist
SEARCH = re.compile(r"search|find|list|query|browse|搜索|检索|列出|検索|一覧", re.I)
K = TypeVar("K")
ChooseValues = Callable[[Collection[str], str], dict[str, Any]]
"""(the tools that are called, language) → values for their arguments."""


@dataclass(frozen=True, slots=True)
class RequestPlan:
    """The plan of a request. `messages`: number of messages; 0 if the task decides it. `target`: a line with the suite's subject."""

    goals: tuple[PlannedGoal, ...] = ()
    persona: str = ""
    twist: str = ""
    messages: int = 0
    values: dict[str, Any] = field(default_factory=dict)
    language: str = ""
    target: str = ""

    @property
    def calls(self) -> tuple[str, ...]:
        """The planned calls in order."""
        return tuple(name for goal in self.goals for name in goal.calls)

    @property
    def outcomes(self) -> set[str]:
        return {goal.outcome for goal in self.goals}

    @property
    def is_parallel(self) -> bool:
        return any(goal.together for goal in self.goals)

    @property
    def difficulty(self) -> Difficulty:
        """How much there is to do: calls, further goals and complications."""
        return rate_goals(self.goals)

    def to_spec(self) -> dict[str, Any]:
        """Return the plan as JSON, as an item's spec stores it."""
        spec: dict[str, Any] = {"goals": [goal.to_spec() for goal in self.goals], "messages": self.messages}
        rest = {name: getattr(self, name) for name in ("persona", "twist", "values", "language", "target")}
        return spec | {name: value for name, value in rest.items() if value}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> RequestPlan:
        """Read a stored plan; fields of a newer version are ignored."""
        goals = tuple(PlannedGoal.from_spec(goal) for goal in spec.get("goals", ()))
        known = ("persona", "twist", "messages", "values", "language", "target")
        return cls(goals=goals, **{name: spec[name] for name in known if name in spec})


def plan_request(
    seed: Trajectory,
    counts: ToolCounts,
    number: int,
    traits: SeedTraits,
    settings: PlanSettings,
    *,
    target: str = "",
    choose_values: ChooseValues | None = None,
) -> RequestPlan:
    """Plan the item of this number.

    Args:
        seed: The item's exemplar.
        counts: How often each tool was planned and accepted before, at a fixed place.
        number: The item's random number.
        traits: Traits of the seed, with the call graph of all seeds that have its tools.
        settings: The distribution of plans.
        target: The suite's subject for the item; empty if the suite has none.
        choose_values: Gives fresh values for the arguments of tools; None: no values.
    """
    rng = random.Random(f"plan {number}")
    wish = sample_wish(rng, traits, settings)
    if settings.difficulty:
        level = sample_weighted(rng, settings.difficulty)
        wishes = (sample_wish(rng, traits, settings) for _ in range(MOST_WISHES))
        wish = replace(next((each for each in wishes if each.level == level), wish), difficulty=level)
    goals = plan_targeted_goals(wish, traits) if target else plan_goals(rng, wish, counts, traits, settings.seed_goals)
    called = list(dict.fromkeys(name for goal in goals for name in goal.calls))
    values = choose_values(called, traits.language) if choose_values and called else {}
    features = traits.list_features() | list_goal_features(goals, traits, values)
    persona = sample_line(rng, PERSONAS, features) if "fixed" not in features else PlanLine("")
    must_fail = bool(target) and "error" in features
    twist = (
        PlanLine("") if rng.random() < PLAIN_SHARE and not must_fail else sample_line(rng, TWISTS, features, must_fail)
    )
    length = 0 if target else estimate_messages(goals, traits) + persona.adds + twist.adds
    if not traits.tools:
        length = len(seed.messages)
    return RequestPlan(tuple(goals), persona.text, twist.text, length, values, traits.language, target)


def sample_wish(rng: random.Random, traits: SeedTraits, settings: PlanSettings) -> Wish:
    """Sample the wish for a plan. All random numbers are drawn in any case, so that one setting does not change the samples of the others."""
    goals = sample_weighted(rng, settings.goals)
    calls = sample_weighted(rng, settings.calls or traits.graph.lengths or {1: 1.0})
    shares: dict[GoalOutcome, float] = {
        "refused": settings.refusals,
        "recovered": settings.errors,
        "missing": settings.missing,
        "withdrawn": settings.withdrawals,
    }
    outcomes = [outcome for outcome, share in shares.items() if rng.random() < share]
    parallel = rng.random() < settings.parallel
    rng.shuffle(outcomes)
    if not traits.dialogue:
        goals = min(goals, traits.graph.most_changes)  # one message asks for as much as a seed's does
        outcomes = [outcome for outcome in outcomes if outcome == "recovered"]
    if not traits.has_policy:
        outcomes = [outcome for outcome in outcomes if outcome != "refused"]
    parallel = parallel and not traits.one_call and bool(traits.graph.together)
    wishes_given = settings.calls or settings.difficulty
    exact_goals = not wishes_given or settings.goals != PlanSettings().goals or not traits.dialogue
    calls, exact_calls = min(calls, MOST_CALLS), bool(settings.calls)
    return Wish(goals, calls, tuple(outcomes), parallel, exact_goals=exact_goals, exact_calls=exact_calls)


def list_goal_features(goals: list[PlannedGoal], traits: SeedTraits, values: Mapping[str, Any]) -> set[str]:
    """List the conditions of plan lines that hold because of the goals."""
    calls = [name for goal in goals for name in goal.calls]
    planned = [name for goal in goals for name in (*goal.before, goal.tool) if name in calls]
    outcomes = {goal.outcome for goal in goals}
    effects = traits.graph.effects
    found: set[str] = {"error" if outcome == "recovered" else outcome for outcome in outcomes - {"done"}}
    tests = {
        "done": outcomes <= {"done"},
        "change": any(effects.get(name) == "change" for name in calls),
        "no_change": bool(calls) and all(effects.get(name) == "look_up" for name in calls),
        "look_up": any(effects.get(name) == "look_up" for name in calls),
        "confirmed": any(effects.get(goal.tool) == "change" and asks_user(goal, traits) for goal in goals),
        "goals": len(goals) > 1,
        "calls": len(calls) > 1,
        "steps": len(set(calls)) > 2,
        "parallel": any(goal.together for goal in goals),
        "repeated": len(planned) > len(set(planned)) or any(len(set(goal.together)) == 1 for goal in goals),
        "search": any(SEARCH.search(name) for name in calls),
        "values": bool(values),
        "codes": any(any(char.isdigit() for char in str(value)) for value in values.values()),
    }
    return found | {name for name, holds in tests.items() if holds}


def asks_user(goal: PlannedGoal, traits: SeedTraits) -> bool:
    """Return whether the assistant names the goal's change and waits for a yes."""
    if not goal.tool or goal.outcome in NOT_DONE:
        return False
    change = traits.graph.effects[goal.tool] == "change"
    return goal.tool in traits.graph.confirmed or (traits.confirms and change)


def estimate_messages(goals: list[PlannedGoal], traits: SeedTraits) -> int:
    """Return the number of messages that follows from the calls, the questions and the number of goals."""
    length = 2 + 2 * traits.graph.asks_first + 2 * max(0, len(goals) - 1)
    for goal in goals:
        length += 2 * len(goal.calls) - bool(goal.together)
        length += 2 * (asks_user(goal, traits) or goal.outcome == "withdrawn") + 2 * (goal.outcome == "missing")
    return length


def sample_line(rng: random.Random, name: str, features: set[str], must_fail: bool = False) -> PlanLine:
    """Sample a line that fits. `must_fail`: one that tells of an error."""
    lines = list_fitting(name, frozenset(features))
    told = [line for line in lines if "error" in line.needs] if must_fail else []
    return rng.choice(told or lines or (PlanLine(""),))


def sample_weighted(rng: random.Random, weights: Mapping[K, float]) -> K:
    return rng.choices(list(weights), list(weights.values()))[0]


def render_scenario(spec: Sequence[object]) -> str:
    """Write the hint of an item of a run before 0.3, whose spec holds `[persona, tools, twist]` and no plan."""
    persona, tools, twist = spec
    parts = [f"The user {persona}."]
    if isinstance(tools, list) and tools:
        parts.append(f"Calls, in whatever order fits: {', '.join(tools)}.")
    return " ".join([*parts, str(twist)]).strip()
