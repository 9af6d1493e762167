"""Make tasks from chains: one message, a conversation, or several turns. The goal state is the state after the chain's calls."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from simia.reward_spec import GoalsSpec, Match, RewardSpec, StateSpec
from simia.synthesis.chains.chain import ChainTask
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.scenarios.scenario_tasks import add_user
from simia.task import Action, Goal, Task

CONVERSATION, PLAIN, GOALS = "conversation", "non_conversation", "goals"


def make_chain_task(key: str, made: ChainTask) -> Task:
    """Make the task of a chain. `key`: `environment/number`."""
    name = "chain-" + key.split("/", 1)[-1].replace("/", "-")
    chain, state = made.chain, StateSpec(policies=made.policies)
    task = Task(
        id=name,
        instruction=made.task,
        initial={"state": chain.state},
        tools=made.visible,
        reward=RewardSpec(parts=[state]),
        tags=[PLAIN],
        seed=True,
    )
    if made.goals:
        goals = [
            goal.model_copy(update={"parts": [with_policies(part, made.policies) for part in goal.parts]})
            for goal in made.goals
        ]
        changed = {"goals": goals, "reward": RewardSpec(parts=[GoalsSpec()]), "tags": [GOALS], "instruction": ""}
        return task.model_copy(update=changed)
    task = task.model_copy(update={"reference": chain.calls})
    if made.user is None:
        return task.model_copy(update={"conversation": False})
    return add_user(task.model_copy(update={"tags": [CONVERSATION]}), chain.calls, made.user)


def with_policies(part: object, policies: Mapping[str, Match]) -> object:
    """Return a part of a goal's reward; if it judges the state, add the task's match policies."""
    return part.model_copy(update={"policies": {**policies, **part.policies}}) if isinstance(part, StateSpec) else part


def split_turns(built: BuiltEnvironment, calls: Sequence[Action], most: int) -> list[list[Action]]:
    """Divide the calls of a chain into at most `most` turns with about equally many writing calls; look-ups at the end join the last turn."""
    writes = [place for place, call in enumerate(calls) if built.tools[call.name].writes]
    turns = min(most, len(writes))
    if turns < 2:
        return [list(calls)]
    ends = [writes[len(writes) * turn // turns - 1] + 1 for turn in range(1, turns)]
    bounds = [0, *ends, len(calls)]
    return [list(calls[start:end]) for start, end in itertools.pairwise(bounds)]


def make_chain_goals(turns: Sequence[Sequence[Action]], queries: Sequence[str]) -> list[Goal]:
    """The goals of a task over several turns: the user's words of each turn with its calls."""
    return [
        Goal.model_validate({"query": query, "calls": [call.model_dump() for call in calls]})
        for query, calls in zip(queries, turns, strict=True)
    ]
