"""Plan the goals of a request: candidates with their calls and outcomes, of which one of those nearest to a wish is sampled."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from simia.amplification.plan_settings import DIFFICULTIES, Difficulty
from simia.amplification.seed_traits import SeedTraits
from simia.amplification.tool_counts import ToolCounts
from simia.quality.goals import NOT_DONE, GoalOutcome, PlannedGoal

CANDIDATES = 4
MOST_RETRIES = 11  # further candidates if none fulfils the wish
MOST_GOALS = 3
EASY, MEDIUM = 3, 7  # points of a plan up to which it is easy, or of medium difficulty


def rate_difficulty(calls: int, goals: int, complications: int) -> Difficulty:
    points = calls + 2 * max(0, goals - 1) + 2 * complications
    return DIFFICULTIES[0 if points <= EASY else 1 if points <= MEDIUM else 2]


def rate_goals(goals: Sequence[PlannedGoal]) -> Difficulty:
    """How much there is to do: calls, further goals and complications."""
    complications = sum(goal.outcome != "done" for goal in goals) + any(goal.together for goal in goals)
    return rate_difficulty(sum(len(goal.calls) for goal in goals), len(goals), complications)


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
    missed += 2 * bool(wish.difficulty and rate_goals(goals) != wish.difficulty)
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
    if wish.difficulty and rate_goals(goals) != wish.difficulty:
        weight *= 0.001
    return max(weight / (1 + counts.seen(calls)), 1e-30)
