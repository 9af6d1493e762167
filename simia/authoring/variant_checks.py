"""Verify variants of tasks by execution: the solution must score 1, and agents that do not ask, or do not wait, must score less.

A value that an agent can look up with reading tools is no missing parameter. To find such values, the tools are called with the values in
the user's first message (arguments of the solution and texts of the state), and then with the values that these calls return.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from simia.authoring.gate_agents import play_task
from simia.authoring.reference_checks import value_or_zero
from simia.authoring.task_variants import (
    LEAST_LENGTH,
    Candidate,
    NeededValue,
    NoVariant,
    UserKind,
    VariantFault,
    list_hidden,
    list_withheld,
    read_opening,
)
from simia.envs.environment import Environment
from simia.envs.play.baseline_agents import CANNED, Act, ReferenceAgent, make_text_message
from simia.envs.users import EpisodeView, ScriptedUser
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.world import World
from simia.statistics import SUCCESS
from simia.task import Action, ScriptTurn, Task
from simia.trajectory import Message, ToolCall

MOST_GUESSES = 4
ROUNDS, MOST_CALLS, MOST_KNOWN = 3, 120, 6  # of the search for a value through reading tools
Known = dict[str, list[Any]]
ANY_NAME = "*"  # texts of the state that the user says, which fit any text argument


class HastyAgent:
    """Makes all calls of a solution in its first turn, whatever it can see, and then repeats what the tools returned."""

    def __init__(self, calls: Sequence[Action]) -> None:
        self._calls: list[Action] | None = list(calls)

    async def act(self, view: EpisodeView) -> Act:
        calls, self._calls = self._calls, None
        if not calls:
            return repeat_results(view), None
        made = [ToolCall(id=f"call_{n}", name=each.name, arguments=each.arguments) for n, each in enumerate(calls, 1)]
        return Message(role="assistant", calls=made), None


class GuessingAgent(ReferenceAgent):
    """Plays the solution without asking. It does not know the answers: its messages repeat what the tools returned."""

    async def act(self, view: EpisodeView) -> Act:
        message, sample = await super().act(view)
        return (message if message.calls else repeat_results(view)), sample


def repeat_results(view: EpisodeView) -> Message:
    """Make an agent's message of all that the tools returned: it contains every answer that the agent could know."""
    results = [message.text for message in view.messages if message.role == "tool" and not message.error]
    return make_text_message("\n".join(results) or CANNED)


@dataclass(slots=True)
class VariedTask:
    """The variants of one task, and why others were refused. `guessed`: rewards of agents that guessed the withheld value."""

    task: str
    variants: list[Task] = field(default_factory=list)
    refused: list[NoVariant] = field(default_factory=list)
    guessed: list[float] = field(default_factory=list)
    hasty: list[float] = field(default_factory=list)


async def vary_task(environment: Environment, task: Task, *, user: UserKind) -> VariedTask:
    """Return at most one variant of each kind that holds when it is played: the first in the order of the values and tools.

    `environment` is the task's own, with an executable world.
    """
    backend = environment.backend
    assert isinstance(backend, ExecutableBackend)
    await backend.start()
    writing = {
        name for name, writes in (await backend.declared()).get("agent", {}).items() if writes.get("writes", True)
    }
    found = VariedTask(task.id)
    for candidates in (list_withheld(task), list_hidden(task, writing, user=user)):
        variant = await find_variant(environment, iter(candidates), writing, found)
        found.variants += [variant] if variant else []
    return found


async def find_variant(
    environment: Environment, candidates: Iterator[Candidate], writing: Collection[str], found: VariedTask
) -> Task | None:
    """Return the next candidate that holds when it is played; those before it are added to `found.refused` with the reason.

    `writing`: names of the tools that may change the state.
    """
    for variant, needed in candidates:
        if isinstance(variant, Task):
            if needed:
                fault = await check_withheld(environment, variant, needed, writing, found)
            else:
                fault = await check_hidden(environment, variant, found)
            if fault is None:
                return variant
            found.refused.append(fault)
        else:
            found.refused.append(variant)
    return None


async def check_withheld(
    environment: Environment, variant: Task, needed: NeededValue, writing: Collection[str], found: VariedTask
) -> NoVariant | None:
    """Play the solution, and agents that guess the value in place of asking for it."""
    if fault := await check_solution(environment, variant):
        return fault
    if await is_found_by_tools(environment, variant, needed, writing):
        return NoVariant(
            VariantFault.VALUE_FOUND_BY_TOOLS, f"{needed.argument}: tools return {needed.value} without it"
        )
    rewards = []
    for guess in list_guesses(environment.pack.tasks, needed):
        agent = GuessingAgent(make_unasked(variant, needed, guess))
        rewards.append(value_or_zero((await play_task(environment, variant, agent, ScriptedUser(variant))).reward))
    found.guessed += rewards
    if rewards and max(rewards) >= SUCCESS:
        return NoVariant(VariantFault.SOLVED_WITHOUT_ASKING, f"{needed.argument}: a guess scores 1")
    return None


async def check_hidden(environment: Environment, variant: Task, found: VariedTask) -> NoVariant | None:
    """Play the solution, and an agent that makes its calls before the tool is visible."""
    if fault := await check_solution(environment, variant):
        return fault
    agent = HastyAgent(variant.agent_actions)
    reward = value_or_zero((await play_task(environment, variant, agent, ScriptedUser(variant))).reward)
    found.hasty.append(reward)
    if reward >= SUCCESS:
        return NoVariant(VariantFault.SOLVED_WITHOUT_WAITING, "an agent that does not wait scores 1")
    return None


async def check_solution(environment: Environment, variant: Task) -> NoVariant | None:
    played = await play_task(environment, variant, ReferenceAgent(variant), ScriptedUser(variant))
    if value_or_zero(played.reward) >= SUCCESS:
        return None
    why = " ".join(played.reward.rationale.split())[:200] if played.reward else "no reward"
    return NoVariant(VariantFault.SOLUTION_FAILS, why)


def make_unasked(variant: Task, needed: NeededValue, guess: str | None) -> Task:
    """Return the task for an agent that does not ask: without the question, and with a guess in place of the value (None: left out)."""
    facts = {each.fact for each in variant.withheld}
    script: list[ScriptTurn] = []
    for turn in variant.make_script():
        if turn.user in facts and script and script[-1].agent is not None:
            script.pop()  # the question
            continue
        calls = [replace_argument(action, needed.value, guess) for action in turn.calls or []]
        script.append(ScriptTurn(calls=calls) if turn.calls else turn)
    return variant.model_copy(update={"script": script, "reference": [], "withheld": []})


def replace_argument(action: Action, value: str, guess: str | None) -> Action:
    arguments = {name: guess if given == value else given for name, given in action.arguments.items()}
    return action.model_copy(
        update={"arguments": {name: given for name, given in arguments.items() if given is not None}}
    )


def list_guesses(tasks: Sequence[Task], needed: NeededValue) -> list[str | None]:
    """List the likeliest guesses of an agent that knows the pack: no value (None), and this argument's values in other solutions."""
    values = dict.fromkeys(
        action.arguments[needed.argument]
        for task in tasks
        for action in task.actions
        if isinstance(action.arguments.get(needed.argument), str)
    )
    return [None, *(value for value in values if value != needed.value)][: MOST_GUESSES + 1]


async def is_found_by_tools(
    environment: Environment, variant: Task, needed: NeededValue, writing: Collection[str]
) -> bool:
    """Whether reading tools return the value to a caller who knows only what the user says at the start."""
    said = read_opening(variant)
    known: Known = {}
    for action in variant.actions:
        for name, value in action.arguments.items():
            if isinstance(value, str | int) and not isinstance(value, bool) and is_mentioned(str(value), said):
                remember(known, name, value)
    backend = environment.backend
    assert isinstance(backend, ExecutableBackend)
    world = await backend.open(variant, seed=0)
    tools = [tool for tool in environment.pack.tools if tool.name not in writing]
    made: set[bytes] = set()
    try:
        for name, value in iterate_scalars(await world.initial()):
            if isinstance(value, str) and len(value) >= LEAST_LENGTH and is_mentioned(value, said):
                remember(known, name, value)
                remember(known, ANY_NAME, value)
        for _ in range(ROUNDS):
            before = len(made)
            for name, arguments in itertools.chain.from_iterable(
                fill_calls(tool.name, tool.parameters, known) for tool in tools
            ):
                key = orjson.dumps([name, arguments], option=orjson.OPT_SORT_KEYS)
                if key in made or len(made) >= MOST_CALLS:
                    continue
                made.add(key)
                result = await call_once(world, name, arguments)
                if any(
                    isinstance(value, str) and is_mentioned(needed.value, value) for _, value in iterate_scalars(result)
                ):
                    return True
                for field_name, value in iterate_scalars(result):
                    remember(known, field_name, value)
            if len(made) == before:
                break
    finally:
        await world.close()
    return False


async def call_once(world: World, name: str, arguments: dict[str, Any]) -> Any:
    """The result of a call as JSON; None if it failed."""
    result = (await world.call([ToolCall(id="", name=name, arguments=arguments)], "agent"))[0]
    if result.error:
        return None
    return result.data if result.data is not None else result.content


def fill_calls(name: str, parameters: Mapping[str, Any], known: Known) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield calls of a tool with known values for its required arguments; none if a value is unknown."""
    properties = parameters.get("properties", {})
    required = [each for each in parameters.get("required", ()) if isinstance(each, str)]
    choices = [known.get(each) or list_choices(properties.get(each) or {}, known) for each in required]
    for values in itertools.islice(itertools.product(*choices), MOST_CALLS):
        yield name, dict(zip(required, values, strict=True))


def list_choices(schema: Mapping[str, Any], known: Known) -> list[Any]:
    """Return values for an argument whose name has no known value."""
    return (schema.get("enum") or (known.get(ANY_NAME, []) if schema.get("type") == "string" else []))[:MOST_KNOWN]


def remember(known: Known, name: str, value: Any) -> None:
    values = known.setdefault(name, [])
    if isinstance(value, str | int) and value not in values and len(values) < MOST_KNOWN:
        values.append(value)


def iterate_scalars(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name of the field, value) of each scalar of a JSON value, keys of mappings among them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield "", key
            yield from iterate_scalars(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_scalars(inner, name)
    else:
        yield name, value


def is_mentioned(value: str, text: str) -> bool:
    return bool(value) and re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text, re.IGNORECASE) is not None
