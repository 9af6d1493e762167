"""Tasks of a scenario: one for each mode, with the checklist as a fractional reward."""

from __future__ import annotations

from collections.abc import Sequence

from simia.synthesis.scenarios.check_functions import GUARD
from simia.synthesis.scenarios.scenario import Mode, Scenario, ScenarioState, ScenarioUser
from simia.task import Action, ChecklistSpec, RewardSpec, ScriptTurn, Task, WithheldFact

DONE = "Done."
DETAILS = "Could you give me the details?"


def make_tasks(key: str, scenario: Scenario, start: ScenarioState, modes: Sequence[Mode]) -> dict[str, Task]:
    """Make the tasks of a scenario: key of the task → task.

    Args:
        key: key of the scenario, `environment/state/number`.
        scenario: the scenario.
        start: its initial state.
        modes: which tasks it makes. A conversation needs the scenario's user.
    """
    name = key.split("/", 1)[1].replace("/", "-")
    checks = {each.item: each.code for each in scenario.checklist}
    if scenario.guard is not None:
        checks[GUARD] = scenario.guard
    common = Task(
        id=name,
        instruction=scenario.task,
        initial={"state": start.state},
        reference=scenario.solution,
        reward=RewardSpec(parts=[ChecklistSpec(code=checks, partial=True)]),
        seed=True,
    )
    found: dict[str, Task] = {}
    for mode in modes:
        suffix = "plain" if mode == "non_conversation" else "talk"
        fields = {"id": f"{name}-{suffix}", "tags": [mode]}
        task = common.model_copy(update={**fields, "conversation": False})
        if mode == "conversation":
            if scenario.user is None:
                continue
            task = add_user(common.model_copy(update=fields), scenario.solution, scenario.user)
        found[f"{key}/{mode}"] = task
    return found


def add_user(task: Task, solution: Sequence[Action], user: ScenarioUser) -> Task:
    """The task with a user, and with a script in which the user tells all facts, and the agent asks for those that are withheld."""
    turns = [ScriptTurn(user=user.opening)]
    if user.knows:
        turns += [ScriptTurn(agent=DETAILS), ScriptTurn(user=" ".join(user.knows))]
    if user.withheld:
        turns.append(ScriptTurn(agent=" ".join(each.question for each in user.withheld)))
        turns += [ScriptTurn(user=each.fact) for each in user.withheld]
    turns += [ScriptTurn(calls=[call]) for call in solution]
    return task.model_copy(
        update={
            "instruction": user.instruction,
            "opening": user.opening,
            "profile": user.profile,
            "knows": user.knows,
            "withheld": [WithheldFact(fact=each.fact, asked=each.asked) for each in user.withheld],
            "reference": [],
            "script": [*turns, ScriptTurn(agent=DONE)],
        }
    )
