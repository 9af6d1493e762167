"""Tasks of a scenario: one for each mode, with the checklist as a fractional reward."""

from __future__ import annotations

import re
from collections.abc import Sequence

from simia.reward_spec import ChecklistSpec, RewardSpec
from simia.synthesis.scenarios.check_functions import GUARD
from simia.synthesis.scenarios.scenario import Mode, Scenario, ScenarioState, ScenarioUser
from simia.task import Action, ScriptTurn, Task, WithheldFact

DONE = "Done."
DETAILS = "Could you give me the details?"
OBJECT = (
    r"(?:to|for|from|with|of|by|at|about|gives?|gave|tells?|told|shows?|sends?|asks?|helps?|lets?|owes?|reach|call) "
)
FIRST_PERSON = (
    (r"\byourself\b", "myself"), (r"\byours\b", "mine"), (r"\byour\b", "my"), (r"\byou are\b", "I am"), (r"\byou're\b", "I'm"),
    (r"\byou were\b", "I was"), (r"\bare you\b", "am I"), (rf"\b({OBJECT})you\b", r"\1me"), (r"\byou\b", "I"),
)  # fmt: skip
"""Patterns of words to the user → the user's own words, in the order in which they are applied."""


def make_tasks(key: str, scenario: Scenario, start: ScenarioState, modes: Sequence[Mode]) -> dict[str, Task]:
    """Make the tasks of a scenario: key of the task → task.

    Args:
        key: key of the scenario, `environment/state/number`.
        scenario: the scenario.
        start: its initial state.
        modes: the kinds of tasks to make. A conversation needs the scenario's user.
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
        scenario=name,
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
    """Add a user to a task, and a script in which the user tells everything and the agent asks for the withheld facts."""
    details = " ".join([change_to_first_person(user.instruction), *user.knows])
    turns = [ScriptTurn(user=user.opening), ScriptTurn(agent=DETAILS), ScriptTurn(user=details)]
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


def change_to_first_person(text: str) -> str:
    """Change an instruction to the user, "You want …", to the user's own words, "I want …"."""
    for pattern, words in FIRST_PERSON:

        def replace(match: re.Match[str], words: str = words) -> str:
            found = match.expand(words)
            return found[0].upper() + found[1:] if match[0][0].isupper() else found

        text = re.sub(pattern, replace, text, flags=re.IGNORECASE)
    return text
