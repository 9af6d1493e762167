"""Plan the request of one item: goals with their calls and outcomes, length, values, persona, an unexpected event, language, target.

One plan holds all parts of a request, so that they cannot contradict each other. `plan_request` is pure: it depends on the seed, the
settings, the item's number and counts that are taken at fixed places, so a resumed run makes the same plans.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from simia.amplification.plan_lines import PERSONAS, TWISTS, PlanLine, list_fitting
from simia.amplification.plan_settings import DIFFICULTIES, MOST_CALLS, Difficulty, PlanSettings
from simia.amplification.seed_traits import SeedTraits
from simia.amplification.tool_counts import ToolCounts
from simia.quality.goals import NOT_DONE, GoalOutcome, PlannedGoal
from simia.trajectory import Trajectory

CANDIDATES = 4
MOST_RETRIES = 11  # further candidates if none fulfils the wish
MOST_GOALS = 3
MOST_WISHES = 12  # tries to get the wanted difficulty
PLAIN_SHARE = 1 / 3  # share of the items without a twist
EASY, MEDIUM = 3, 7  # points of a plan up to which it is easy, or of medium difficulty
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
        complications = sum(goal.outcome != "done" for goal in self.goals) + self.is_parallel
        return rate_difficulty(len(self.calls), len(self.goals), complications)

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


def rate_difficulty(calls: int, goals: int, complications: int) -> Difficulty:
    points = calls + 2 * max(0, goals - 1) + 2 * complications
    return DIFFICULTIES[0 if points <= EASY else 1 if points <= MEDIUM else 2]


@dataclass(frozen=True, slots=True)
class Wish:
    """The properties that a plan should have, sampled from the settings before its calls are known.

    `exact_goals`, `exact_calls`: whether the number is required; otherwise it is a preference, which yields to requirements.
    """

    goals: int
    calls: int
    outcomes: tuple[GoalOutcome, ...]
    parallel: bool
    difficulty: str = ""
    exact_goals: bool = True
    exact_calls: bool = False

    @property
    def level(self) -> Difficulty:
        """The difficulty of a plan that has these properties."""
        return rate_difficulty(self.calls, self.goals, len(self.outcomes) + self.parallel)


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


def plan_targeted_goals(wish: Wish, traits: SeedTraits) -> list[PlannedGoal]:
    """Plan for a suite with targets of its own: the target names the subject, and the plan only says whether a call fails on the way."""
    return [PlannedGoal("", "recovered" if "recovered" in wish.outcomes and traits.failing else "done")]


def plan_goals(
    rng: random.Random, wish: Wish, counts: ToolCounts, traits: SeedTraits, seed_share: float = 0
) -> list[PlannedGoal]:
    """Make candidates (more if none fulfils the wish) and sample one of those nearest to the wish; rare calls make a candidate likelier.

    `seed_share`: share of the plans with several goals that follow a seed.
    """
    if wish.goals > 1 and seed_share and rng.random() < seed_share and (goals := follow_seed(rng, wish, traits)):
        return goals
    cores = [name for name in traits.tools if name in traits.graph.tools]
    if not cores:
        return []
    if not traits.dialogue:
        cores = [name for name in cores if traits.graph.is_own_wish(name)] or cores
    known = counts.tools
    mean = sum(known[name] for name in cores) / len(cores)
    rarity = [1 / (1 + known[name] / (1 + mean)) for name in cores]
    changes = [at for at, name in enumerate(cores) if traits.graph.effects[name] == "change"]
    if set(wish.outcomes).isdisjoint(NOT_DONE):  # only a change is refused or withdrawn
        changes = []
    pairs = [name for pair in sorted(traits.graph.together) for name in pair if name in traits.tools]
    weighted: dict[int, list[float]] = {}
    most = wish.calls + len(wish.outcomes) if wish.exact_calls else MOST_GOALS
    found: list[tuple[list[PlannedGoal], int]] = []
    for i in range(CANDIDATES + MOST_RETRIES):
        retried = i >= CANDIDATES
        if retried and any(not misses for _, misses in found):
            break
        size = wish.goals if wish.exact_goals or not retried else 1 + i % min(MOST_GOALS, most)
        weights = rarity
        if retried and wish.exact_calls:
            if size not in weighted:
                fits = (0.2 ** traits.graph.measure_gap(name, wish.calls / size) for name in cores)
                weighted[size] = [max(a * b, 1e-30) for a, b in zip(rarity, fits, strict=True)]
            weights = weighted[size]
        chosen = rng.choices(cores, weights, k=size)
        if retried and size > 1 and len(set(chosen)) < size <= len(cores):
            chosen = rng.sample(cores, size)
        if changes and all(traits.graph.effects[name] != "change" for name in chosen):
            chosen[0] = cores[rng.choices(changes, [weights[at] for at in changes])[0]]
        elif retried and wish.parallel and i % 2 and pairs:
            chosen[-1] = rng.choice(pairs)
        if goals := make_candidate(rng, chosen, wish, traits):
            found.append((goals, count_misses(goals, wish)))
    if not found:
        return []
    least = min(misses for _, misses in found)
    nearest = [goals for goals, misses in found if misses == least]
    return rng.choices(nearest, [rate_candidate(goals, wish, counts) for goals in nearest])[0]


def follow_seed(rng: random.Random, wish: Wish, traits: SeedTraits) -> list[PlannedGoal]:
    """Take the goals of one of the seeds with the wished number of changes; empty if there is no such seed."""
    shown = [goals for goals in traits.graph.several if len(goals) == wish.goals]
    if not shown:
        return []
    goals = [PlannedGoal(tool, "done", before) for before, tool in rng.choice(shown)]
    place_complications(rng, goals, wish, traits)
    return goals


def count_misses(goals: list[PlannedGoal], wish: Wish) -> int:
    """Count how far a candidate is from the wish: 2 for each missing property or goal too many or too few, 1 for each such call."""
    missed = 2 * len(set(wish.outcomes) - {goal.outcome for goal in goals})
    missed += 2 * (wish.parallel and not any(goal.together for goal in goals))
    missed += 2 * bool(wish.difficulty and RequestPlan(tuple(goals)).difficulty != wish.difficulty)
    missed += 2 * abs(len(goals) - wish.goals) * wish.exact_goals
    return missed + abs(sum(len(goal.calls) for goal in goals) - wish.calls) * wish.exact_calls


def make_candidate(rng: random.Random, cores: list[str], wish: Wish, traits: SeedTraits) -> list[PlannedGoal]:
    """Make goals about these tools, each after the calls that must come before it."""
    graph = traits.graph
    cores = sorted(cores, key=graph.final.__contains__)  # what ends a conversation comes last
    done: dict[str, None] = {}
    goals: list[PlannedGoal] = []
    for at, core in enumerate(cores):
        repeated = any(goal.tool == core for goal in goals)
        if (core in done and not (repeated and graph.uses[core].again)) or (goals and goals[-1].tool in graph.final):
            continue
        if not graph.instead.get(core, frozenset()).isdisjoint(done):
            continue  # such as a second way to identify the user
        share = max(1, (wish.calls - len(done)) // (len(cores) - at))
        way = graph.sample_way(rng, core, share)
        if goals and graph.instead:
            way = tuple(name for name in way if graph.instead.get(name, frozenset()).isdisjoint(done))
        # The object of a further change is looked up too; the user is identified once.
        own = way[-1:] if goals and len(way) > 1 and graph.effects[core] == "change" else ()
        before = tuple(name for name in way if name not in done or name in own)
        goals.append(PlannedGoal(core, "done", before))
        done.update(dict.fromkeys((*before, core)))
    place_complications(rng, goals, wish, traits)
    return goals if any(goal.calls for goal in goals) else []


def place_complications(rng: random.Random, goals: list[PlannedGoal], wish: Wish, traits: SeedTraits) -> None:
    """Give the wished outcomes and parallel look-ups to goals that can have them."""
    for outcome in wish.outcomes:
        place_outcome(rng, goals, outcome, traits)
    if wish.parallel:
        place_parallel(rng, goals, traits)


def place_outcome(rng: random.Random, goals: list[PlannedGoal], outcome: GoalOutcome, traits: SeedTraits) -> None:
    """Give the outcome to one of the goals that can have it, if there is one."""
    graph = traits.graph
    tools = [goal.tool for goal in goals]

    def is_possible(goal: PlannedGoal) -> bool:
        if goal.outcome != "done" or goal.tool in graph.final:
            return False
        if outcome in NOT_DONE:  # its call is not made, so no other goal may need it
            needed = any(goal.tool in other.before for other in goals)
            change = graph.effects[goal.tool] == "change" and tools.count(goal.tool) == 1 and not needed
            others = any(other is not goal and other.calls for other in goals)
            asks = outcome == "refused" or goal.tool in graph.confirmed or traits.confirms
            return change and asks and (bool(goal.before) or others)
        return any(has_required(traits, name) for name in goal.calls)

    possible = [i for i, goal in enumerate(goals) if is_possible(goal)]
    if not possible:
        return
    at = rng.choice(possible)
    goal = goals[at]
    fails = ""
    if outcome == "recovered":
        fails = rng.choice([name for name in goal.calls if has_required(traits, name)])
    goals[at] = PlannedGoal(goal.tool, outcome, goal.before, fails, goal.together)


def has_required(traits: SeedTraits, tool: str) -> bool:
    return bool(traits.graph.tools[tool].parameters.get("required"))


def place_parallel(rng: random.Random, goals: list[PlannedGoal], traits: SeedTraits) -> None:
    """Put two look-ups of a goal into one turn, as a seed has them: two consecutive ones, or one look-up for two things."""
    together = traits.graph.together
    possible: list[tuple[int, tuple[str, str]]] = []
    for i, goal in enumerate(goals):
        if goal.outcome != "recovered":
            calls = goal.calls
            possible += [(i, pair) for pair in pairwise(calls) if pair in together or pair[::-1] in together]
            possible += [(i, (name, name)) for name in calls if (name, name) in together]
    if not possible:
        add_parallel(rng, goals, traits)
    else:
        at, pair = rng.choice(possible)
        goal = goals[at]
        goals[at] = PlannedGoal(goal.tool, goal.outcome, goal.before, goal.fails, pair)


def add_parallel(rng: random.Random, goals: list[PlannedGoal], traits: SeedTraits) -> None:
    """Add a look-up beside a planned one, if a seed makes both in one turn and the added one needs no further calls before it."""
    graph = traits.graph
    together = sorted({pair for one in graph.together for pair in (one, one[::-1]) if set(pair) <= set(traits.tools)})
    planned = {name for goal in goals for name in (*goal.before, goal.tool)}
    done: set[str] = set()
    possible: list[tuple[int, int, str]] = []
    for i, goal in enumerate(goals):
        names = goal.before if goal.outcome in NOT_DONE else (*goal.before, goal.tool)
        for at, name in enumerate(names):
            if goal.outcome != "recovered":
                possible += [
                    (i, at, added)
                    for added, known in together
                    if known == name
                    and added not in planned
                    and graph.instead.get(added, frozenset()).isdisjoint(planned)
                    and any(done.issuperset(way) for way in graph.list_ways(added))
                ]
            done.add(name)
    if possible:
        i, at, added = rng.choice(possible)
        goal = goals[i]
        name = (*goal.before, goal.tool)[at]
        before = (*goal.before[:at], added, *goal.before[at:])
        goals[i] = PlannedGoal(goal.tool, goal.outcome, before, goal.fails, (added, name))


def rate_candidate(goals: list[PlannedGoal], wish: Wish, counts: ToolCounts) -> float:
    """Return the weight of a candidate."""
    calls = [name for goal in goals for name in goal.calls]
    weight = float(0.4 ** abs(len(calls) - wish.calls) * 0.1 ** abs(len(goals) - wish.goals))
    if wish.outcomes:
        weight *= 0.02 ** len(set(wish.outcomes) - {goal.outcome for goal in goals})
    if wish.parallel and not any(goal.together for goal in goals):
        weight *= 0.02
    if wish.difficulty and RequestPlan(tuple(goals)).difficulty != wish.difficulty:
        weight *= 0.001
    return max(weight / (1 + counts.seen(calls)), 1e-30)


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
