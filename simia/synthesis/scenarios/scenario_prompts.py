"""Prompts of scenarios: the values that they show of an environment, the requirements on a task, and parsers of replies."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from pydantic import Field

from simia.envs.users.scripted import matches_question
from simia.json_values import iterate_plain_values
from simia.reward_spec import StrictModel
from simia.synthesis.building.example_states import CLOCK, describe_tables
from simia.synthesis.design import BuiltEnvironment, EnvironmentDesign
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.scenarios.scenario import ScenarioUser
from simia.task import Action

MOST_ITEMS = 8
SHORTEST = 3  # the user's part is searched for texts with at least this many characters
DEMANDS = (
    "It takes 2 changes. One of them concerns a row that the user describes and that has to be found first.",
    "It takes 3 changes. A condition on what the state holds decides between two things to do.",
    "It takes 4 changes in at least two tables. A value of one change has to be looked up or computed from another row.",
    "It takes 3 or 4 changes. What the user asks for first is refused by a rule in this state, and the task says what to do then.",
    "It takes 5 or 6 changes. One part concerns every row that satisfies a condition, two to four rows.",
)


class TaskDraft(StrictModel):
    """A task with its checklist, as a model writes it."""

    task: str = Field(min_length=20)
    checklist: list[str] = Field(min_length=1, max_length=MOST_ITEMS)


def list_prompt_values(built: BuiltEnvironment, state: Mapping[str, Any]) -> dict[str, Any]:
    """The values that every prompt of a scenario names."""
    tools = [tool.spec.write_json() for tool in built.tools.values()]
    return {**describe_domain(built.design), "tools": tools, "state": format_state(state)}


def describe_domain(design: EnvironmentDesign) -> dict[str, Any]:
    """Description, rules and tables of an environment."""
    return {
        "description": f"{design.title}. {design.description} The time is {CLOCK}.",
        "rules": design.rules,
        "tables": describe_tables(design.state),
    }


def format_state(state: Mapping[str, Any]) -> str:
    """A state as JSON with a line for each row."""
    tables = []
    for name, rows in state.items():
        if isinstance(rows, dict) and rows:
            lines = ",\n".join(f"  {json.dumps(key)}: {orjson.dumps(row).decode()}" for key, row in rows.items())
            tables.append(f" {json.dumps(name)}: {{\n{lines}\n }}")
        else:
            tables.append(f" {json.dumps(name)}: {orjson.dumps(rows).decode()}")
    return "{\n" + ",\n".join(tables) + "\n}"


def write_demand(built: BuiltEnvironment, seed: int, key: str, number: int) -> str:
    """Write the requirements on a task: its number decides its difficulty, the seed decides which operations it needs."""
    writing = [name for name, tool in built.tools.items() if tool.writes]
    chosen = random.Random(f"{seed}/{key}").sample(writing, min(2, len(writing)))
    return f"{DEMANDS[number % len(DEMANDS)]} Among the operations that it needs: {', '.join(sorted(chosen))}."


def read_draft(text: str) -> TaskDraft:
    """Return the task of a reply. Raises `Unreadable`."""
    draft: TaskDraft = read_json(text, TaskDraft)
    items = [" ".join(item.split()) for item in draft.checklist]
    if not all(items) or len(set(items)) < len(items):
        raise Unreadable("the checklist has an item that is empty or occurs twice")
    return TaskDraft(task=draft.task.strip(), checklist=items)


def read_user(text: str, task: str, solution: Sequence[Action]) -> ScenarioUser:
    """Return the user of a reply. Raises `Unreadable` for a withheld fact that no question can reach, and for values of the task that the
    user's part lacks."""
    user: ScenarioUser = read_json(text, ScenarioUser)
    free = check_withheld_facts(user)
    needed = [value for value in list_values([call.arguments for call in solution]) if value in task.casefold()]
    for each in user.withheld:
        held = [value for value in needed if value in each.fact.casefold()]
        if held and all(value in free.casefold() for value in held):
            raise Unreadable(
                f"the withheld fact {each.fact!r} can be told from another part: {held[0]} stands there too"
            )
    told = "\n".join([free, *(each.fact for each in user.withheld)]).casefold()
    if lost := [value for value in dict.fromkeys(needed) if value not in told]:
        raise Unreadable(f"the assistant needs {lost[0]!r} of the task, and the user's part does not hold it")
    return user


def check_withheld_facts(user: ScenarioUser) -> str:
    """Return the words that a user does not withhold. Raises `Unreadable` for a withheld fact that no question can reach, or that these words
    already contain."""
    free = "\n".join([user.opening, user.instruction, *user.knows])
    for each in user.withheld:
        if not matches_question(each.asked, each.question):
            raise Unreadable(f"asked: {each.asked!r} does not match the question {each.question!r}")
        if matches_question(each.asked, ""):
            raise Unreadable(f"asked: {each.asked!r} matches every message")
        if each.fact.casefold() in free.casefold():
            raise Unreadable(f"the withheld fact {each.fact!r} stands in another part too")
    return free


def list_values(value: Any) -> list[str]:
    """Texts of at least three characters and numbers of at least two digits in a JSON value, in lower case."""
    known = (each for each in iterate_plain_values(value) if not isinstance(each, bool) and each is not None)
    return [text for each in known if len(text := str(each).casefold()) >= (SHORTEST if isinstance(each, str) else 2)]
