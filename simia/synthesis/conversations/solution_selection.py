"""Ask which solver did what the user asks for in a turn, and what was essential to it (EnvFactory §3.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from simia.json_values import iterate_keys
from simia.reward_spec import StrictModel
from simia.synthesis.conversations.turn_playing import SolverTurn
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.stage import StageContext

PROMPT = "synthesis/select_solution.j2"


class Selection(StrictModel):
    """The selector's reply. Solutions and calls are counted from 1."""

    right: list[int] = Field(default_factory=list)
    """Solutions that do what the user asks for."""
    best: int | None = None
    """The best of them; None: there is none."""
    essential: list[int] = Field(default_factory=list)
    """Calls of the best solution that the turn needs."""
    free: dict[int, list[str]] = Field(default_factory=dict)
    """Call → arguments whose value is left to the agent."""
    why: str = ""
    """The reason, in a line."""


async def ask_selection(
    context: StageContext,
    built: BuiltEnvironment,
    solutions: Sequence[SolverTurn],
    values: Mapping[str, Any],
    label: str,
) -> Selection:
    """Ask for the best of several different solutions. `values`: environment, user and turn for the prompt. Raises `Refused`."""

    def parse(text: str) -> Selection:
        found: Selection = read_json(text, Selection)
        check_selection(found, solutions, built, values["initial"])
        return found

    asked = {**values, "solutions": [each.describe() for each in solutions]}
    return await context.ask(PROMPT, asked, parse, label=label, role="selector")


def check_selection(
    found: Selection, solutions: Sequence[SolverTurn], built: BuiltEnvironment, state: Mapping[str, Any]
) -> None:
    """Raise `Unreadable` for a selection that contradicts itself or the solutions."""
    if unknown := [number for number in found.right if not 0 < number <= len(solutions)]:
        raise Unreadable(f"right: there is no solution {unknown[0]}")
    if found.best is None:
        if found.right:
            raise Unreadable("best is null, and there are right solutions: choose one of them")
        return
    if found.best not in found.right:
        raise Unreadable(f"best: solution {found.best} is not among the right ones")
    calls = solutions[found.best - 1].calls
    for number in [*found.essential, *found.free]:
        if not 0 < number <= len(calls):
            raise Unreadable(f"solution {found.best} has no call {number}")
        if not calls[number - 1].succeeded:
            raise Unreadable(f"call {number} failed, so it is not essential")
    keys = set(iterate_keys(state))
    for number, names in found.free.items():
        call = calls[number - 1].call
        properties = built.tools[call.name].spec.parameters.get("properties", {})
        for name in names:
            value = (call.arguments or {}).get(name)
            if name not in (call.arguments or {}):
                raise Unreadable(f"free: call {number} has no argument {name!r}")
            if built.tools[call.name].writes and (
                not isinstance(value, str) or value in keys or "enum" in properties.get(name, {})
            ):
                raise Unreadable(
                    f"free: {name} of call {number} is an id, a number or a choice, which the user decides"
                )
