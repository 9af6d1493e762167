"""Variants of tasks that an agent solves only if it asks or waits (EnvScaler §4, BFCL's multi-turn categories).

*Missing parameter*: a value that a call of the solution needs is taken out of the user's words; the user says it when asked. *Missing
function*: a tool that the solution needs is not visible before the user's second message. Both are pure functions of a task; what they
return is verified by execution (`simia.authoring.variant_checks`) before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, get_args

from pydantic import Field, ValidationError

from simia.authoring.value_removal import count_mentions, remove_value
from simia.reward_spec import GoalPart, StrictModel
from simia.task import Goal, GoalCall, Reveal, ScriptTurn, Task, WithheldFact

UserKind = Literal["none", "scripted", "llm"]
VariantKind = Literal["missing_parameter", "missing_function"]
VARIANT_KINDS: tuple[VariantKind, ...] = get_args(VariantKind)
MISSING_PARAMETER, MISSING_FUNCTION = VARIANT_KINDS
NO_TOOL = "I have no function for this at the moment, so I cannot do it yet."
GO_ON = "There is a further function now. Please go on."
ASK_AGAIN = "If the assistant says that it lacks a function for this, ask it once to try again."
GENERIC = frozenset(("id", "ids", "number", "no", "name", "code", "key", "value", "new", "old", "the"))
SYNONYMS = {"email": "e-?mail", "postcode": "post ?code|postal|zip", "phone": "phone|mobile"}
WORDINGS = frozenset(
    (
        "query",
        "text",
        "note",
        "notes",
        "title",
        "subject",
        "body",
        "content",
        "value",
        "new",
        "old",
        "summary",
        "reason",
    )
)
LEAST_LENGTH = 4  # of a value
GOAL_KINDS = tuple(kind.__name__ for kind in get_args(get_args(GoalPart)[0]))


class VariantFault(StrEnum):
    """Why a task has no variant. Values are stable."""

    NO_VALUE = "no_value"
    VALUE_REPEATED = "value_repeated"
    VALUE_NOT_REMOVABLE = "value_not_removable"
    VALUE_FOUND_BY_TOOLS = "value_found_by_tools"
    NO_TOOL_NEEDED = "no_tool_needed"
    ALREADY_VARIED = "already_varied"
    NOT_EXPRESSIBLE = "not_expressible"
    SOLUTION_FAILS = "solution_fails"
    SOLVED_WITHOUT_ASKING = "solved_without_asking"
    SOLVED_WITHOUT_WAITING = "solved_without_waiting"
    GATE = "gate"


@dataclass(frozen=True, slots=True)
class NoVariant:
    """A task that cannot be varied in this way."""

    fault: VariantFault
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NeededValue:
    """A value that the user names at the start and a call of the solution has as an argument."""

    tool: str
    argument: str
    value: str

    @property
    def noun(self) -> str:
        """What the value is, in a word: `order` of `order_id`."""
        words = [word for word in self.argument.lower().split("_") if word not in GENERIC]
        return " ".join(words) or self.argument.replace("_", " ")

    @property
    def title(self) -> str:
        """What the value is, as one asks for it: `order number` of `order_id`."""
        return re.sub(r"_id$", "_number", self.argument).replace("_", " ")


Candidate = tuple[Task | NoVariant, NeededValue | None]
"""A variant, or why there is none, and the value that it withholds."""


class WithheldWording(StrictModel):
    """How a value is withheld: the words of the user without it, the question, and the answer."""

    opening: str = Field(max_length=4000)
    """The user's first message without the value."""
    instruction: str = Field("", max_length=8000)
    """What the user wants, without the value."""
    question: str = Field(max_length=500)
    """A question of the agent for the value."""
    fact: str = Field(max_length=1000)
    """The user's answer, which names the value."""
    asked: str = Field(max_length=500)
    """Regular expression that questions for the value match."""


def list_needed_values(task: Task) -> list[NeededValue]:
    """Identifiers, addresses and codes in the user's first message that are arguments of the solution, in the order of the calls."""
    first = read_opening(task)
    found: dict[str, NeededValue] = {}
    for action in task.actions:
        for name, given in action.arguments.items() if action.by == "agent" else ():
            if (
                isinstance(given, str)
                and name not in WORDINGS
                and is_identifying(given)
                and count_mentions(first, given)
            ):
                found.setdefault(given, NeededValue(action.name, name, given))
    return list(found.values())


def is_identifying(value: str) -> bool:
    """Whether a user must state a value exactly (it is no choice and no wording): it has a digit or is a mail address."""
    return LEAST_LENGTH <= len(value) <= 80 and bool(re.search(r"\d|@", value))


def read_opening(task: Task) -> str:
    """The user's first words."""
    return next((turn.user for turn in task.make_script() if turn.user is not None), "")


def withhold_value(task: Task, needed: NeededValue, wording: WithheldWording | None = None) -> Task | NoVariant:
    """Return the task with a value withheld until the agent asks for it.

    Args:
        task: a task without goals, whose solution is known.
        needed: the value, one of `list_needed_values`.
        wording: the words without it, as a model wrote them; None: they are made by rule.
    """
    if task.goals or not task.solved:
        return NoVariant(VariantFault.NOT_EXPRESSIBLE, "it has goals" if task.goals else "it has no solution")
    if task.withheld or task.reveals:
        return NoVariant(VariantFault.ALREADY_VARIED)
    script, value = task.make_script(), needed.value
    place = next((n for n, turn in enumerate(script) if turn.user is not None), None)
    if place is None or not count_mentions(script[place].user or "", value):
        return NoVariant(VariantFault.NO_VALUE, f"the first message does not name {value}")
    if any(value in (turn.user or "") for turn in script[place + 1 :]) or value in str(task.profile or ""):
        return NoVariant(VariantFault.VALUE_REPEATED, f"the user names {value} again")
    words = wording or word_by_rule(script[place].user or "", task.instruction, needed)
    if words is None:
        return NoVariant(VariantFault.VALUE_NOT_REMOVABLE, f"{value} cannot be taken out of the user's words")
    if fault := find_wording_fault(words, value):
        return NoVariant(VariantFault.VALUE_NOT_REMOVABLE, fault)
    asking = [ScriptTurn(user=words.opening), ScriptTurn(agent=words.question), ScriptTurn(user=words.fact)]
    return make_variant(
        task,
        f"ask-{needed.argument}",
        MISSING_PARAMETER,
        instruction=words.instruction if task.instruction else "",
        opening=words.opening if task.opening is not None else None,
        script=[*script[:place], *asking, *script[place + 1 :]],
        reference=[],
        knows=[fact for fact in task.knows if value not in fact],
        withheld=[WithheldFact(fact=words.fact, asked=words.asked)],
    )


def word_by_rule(opening: str, instruction: str, needed: NeededValue) -> WithheldWording | None:
    """The wording by rule; None if the value cannot be taken out."""
    without = remove_value(opening, needed.value, needed.noun)
    wanted = remove_value(instruction, needed.value, needed.noun) if needed.value in instruction else instruction
    if without is None or wanted is None:
        return None
    return WithheldWording(
        opening=without,
        instruction=wanted,
        question=f"Could you tell me the {needed.title}, please?",
        fact=f"The {needed.title} is {needed.value}.",
        asked=make_question_pattern(needed),
    )


def make_question_pattern(needed: NeededValue) -> str:
    """A regular expression for requests that name what is missing."""
    words = needed.noun.split()
    key = "|".join(SYNONYMS.get(word, re.escape(word)) for word in words[-1:])
    request = r"tell|give|provide|share|send|need|know|confirm|which|what|could|can|may|please|missing"
    return rf"\b({request})\b[^.!?]*({key})|({key})[^.!?]*\?"


def find_wording_fault(words: WithheldWording, value: str) -> str:
    """What is wrong with a wording; empty for one that can be used."""
    for name in ("opening", "instruction", "question"):
        if value.casefold() in getattr(words, name).casefold():
            return f"the {name} names {value}"
    if not words.opening.strip() or value not in words.fact:
        return "the opening is empty" if not words.opening.strip() else f"the fact does not name {value}"
    return ""


def list_needed_tools(task: Task, writing: Collection[str] = ()) -> list[str]:
    """List the solution's tools: first the one of the last write, then the other writing ones, then the reading ones."""
    names = list(dict.fromkeys(action.name for action in reversed(task.agent_actions)))
    return sorted(names, key=lambda name: name not in writing)


def hide_tool(task: Task, tool: str, *, user: UserKind = "scripted") -> Task | NoVariant:
    """Return the task with a tool that becomes visible with the user's second message.

    Args:
        task: a task whose solution calls the tool.
        tool: name of the tool.
        user: which user plays. Without one, the task gets goals, since otherwise there is no second message.
    """
    if task.withheld or task.reveals:
        return NoVariant(VariantFault.ALREADY_VARIED)
    if tool not in {action.name for action in task.agent_actions}:
        return NoVariant(VariantFault.NO_TOOL_NEEDED, f"the solution does not call {tool}")
    changes: dict[str, Any] = {"reveals": [Reveal(turn=2, tools=[tool])]}
    if task.tools is not None:
        changes["tools"] = [name for name in task.tools if name != tool]
    if task.goals:
        first = task.goals[0]
        waiting = Goal(query=first.query, answer=NO_TOOL)
        changes["goals"] = [waiting, first.model_copy(update={"query": GO_ON}), *task.goals[1:]]
    elif user == "none":
        goals = make_goals(task)
        if isinstance(goals, NoVariant):
            return goals
        changes |= {"goals": goals, "script": [], "reference": []}
        return make_variant(task, f"wait-{tool}", MISSING_FUNCTION, drop=("reward",), **changes)
    else:
        script = task.make_script()
        place = next((n for n, turn in enumerate(script) if turn.user is not None), None)
        if place is None:
            return NoVariant(VariantFault.NOT_EXPRESSIBLE, "the user says nothing in the script")
        waiting_turns = [ScriptTurn(agent=NO_TOOL), ScriptTurn(user=GO_ON)]
        changes |= {"script": [*script[: place + 1], *waiting_turns, *script[place + 1 :]], "reference": []}
        if user == "llm":
            changes["instruction"] = f"{task.instruction} {ASK_AGAIN}".strip()
    return make_variant(task, f"wait-{tool}", MISSING_FUNCTION, **changes)


def make_goals(task: Task) -> list[Goal] | NoVariant:
    """The task as two goals: nothing is done in the first turn, and all in the second one."""
    script, reward = task.make_script(), task.reward
    users = [turn.user for turn in script if turn.user is not None]
    plain = reward.combine == "product" and not reward.penalties and not reward.unjudged
    if len(users) != 1 or not plain or any(type(part).__name__ not in GOAL_KINDS for part in reward.parts):
        return NoVariant(
            VariantFault.NOT_EXPRESSIBLE, "without a user it needs one message and parts that goals can have"
        )
    if any(action.by == "user" for action in task.actions):
        return NoVariant(VariantFault.NOT_EXPRESSIBLE, "the user makes calls of its own")
    answer = next((turn.agent for turn in reversed(script) if turn.agent is not None), "Done.")
    calls = [GoalCall(name=action.name, arguments=action.arguments) for action in task.actions]
    words = task.instruction or task.opening or users[0]
    return [
        Goal(query=words, answer=NO_TOOL),
        Goal.model_validate({"query": GO_ON, "calls": calls, "answer": answer, "parts": [p.model_dump() for p in reward.parts]}),
    ]  # fmt: skip


def make_variant(task: Task, suffix: str, tag: str, *, drop: tuple[str, ...] = (), **changes: Any) -> Task | NoVariant:
    """Copy the task with changes, a new id and its origin, without its seed and its measured difficulty."""
    row = {name: getattr(task, name) for name in Task.model_fields if name not in ("measured", "seed", *drop)}
    row |= {"id": f"{task.id}-{suffix}", "tags": [*task.tags, tag], "extra": {**task.extra, "variant_of": task.id}}
    dumped = {name: dump_value(value) for name, value in (row | changes).items()}
    try:
        return Task.model_validate(dumped)
    except ValidationError as error:
        return NoVariant(VariantFault.NOT_EXPRESSIBLE, error.errors()[0]["msg"])


def dump_value(value: Any) -> Any:
    """Models as JSON values, also in lists."""
    if isinstance(value, list):
        return [dump_value(each) for each in value]
    return value.model_dump(mode="json", exclude_none=True) if isinstance(value, StrictModel) else value


def list_withheld(task: Task) -> list[Candidate]:
    """A missing-parameter variant by rule for each value that the solution needs, or why there is none."""
    values = list_needed_values(task)
    none = NoVariant(VariantFault.NO_VALUE, "the first message names no argument of the solution")
    return [(withhold_value(task, needed), needed) for needed in values] or [(none, None)]


def list_hidden(task: Task, writing: Collection[str] = (), *, user: UserKind = "scripted") -> list[Candidate]:
    """A missing-function variant for each tool that the solution needs, or why there is none."""
    tools = list_needed_tools(task, writing)
    none = NoVariant(VariantFault.NO_TOOL_NEEDED, "the solution calls no tool")
    return [(hide_tool(task, tool, user=user), None) for tool in tools] or [(none, None)]
