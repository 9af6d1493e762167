"""Replace the amounts of money that the tasks of a varied pack name, in their texts, checks and expected answers.

The amounts are derived from results: the solution is played in the old and in the new pack, and two numbers at the same place of both
results are (old amount, new amount). A task that names another amount is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any

from simia.authoring.gate_agents import play_task
from simia.authoring.varied_prices import derive_amount, list_amounts, pair_numbers, replace_amounts, replace_literals
from simia.envs.environment import Environment
from simia.envs.opening import open_environment
from simia.envs.play.baseline_agents import ReferenceAgent
from simia.envs.users import ScriptedUser
from simia.pack import Pack
from simia.prompts import decode_result
from simia.task import Task
from simia.trajectory import Trajectory

AT_ONCE = 8
TEXTS = ("instruction", "opening", "user", "agent", "query", "answer", "fact", "asked", "expect", "knows", "profile")


async def replace_task_amounts(
    old: Pack, new: Pack, rows: list[Any], fixed: set[float], left_out: dict[str, str], options: Mapping[str, Any]
) -> list[Any]:
    """Return the tasks' rows with the amounts that the new pack's tools return. A task with an amount that cannot be derived is left out.

    Args:
        fixed: Amounts in the code and the policy, which do not change.
        left_out: Task → why it is left out; filled here.
        options: Further arguments of `open_environment`.
    """
    places = asyncio.Semaphore(AT_ONCE)
    async with (
        await open_environment(old, user="none", **options) as before,
        await open_environment(new, user="none", **options) as after,
    ):

        async def one(row: Any, task: Task, varied: Task) -> Any | None:
            async with places:
                played = [await play_solution(before, task), await play_solution(after, varied)]
            pairs, why = pair_amounts(*played)
            pairs |= {a: b for a, b in pair_arguments(task, varied) if a != b}
            pairs |= {
                a / 100: b / 100 for a, b in pairs.items() if a % 1 == 0 and a >= 100 and a / 100 not in pairs
            }  # cents
            known = {each: each for each in fixed} | pairs
            named = list_task_amounts(row) - known.keys() - {0.0}
            pairs |= {each: new for each in named if (new := derive_amount(each, known)) is not None}
            unknown = sorted(named - pairs.keys())
            if why or unknown:
                left_out[task.id] = (
                    why
                    or f"it names the amount {unknown[0]:g}, which is neither in its results nor a sum of amounts there"
                )
                return None
            return replace_code(replace_texts(row, pairs, list_task_amounts(row)), pairs)

        found = await asyncio.gather(*map(one, rows, old.tasks, new.tasks))
    return [row for row in found if row is not None]


async def play_solution(environment: Environment, task: Task) -> Trajectory:
    return await play_task(environment, task, ReferenceAgent(task), ScriptedUser(task))


def pair_amounts(old: Trajectory, new: Trajectory) -> tuple[dict[float, float], str]:
    """Return (amount in the results of a solution → amount in the new pack's results, reason why they cannot be compared or "")."""
    results = [[message for message in each.messages if message.role == "tool"] for each in (old, new)]
    if [each.error for each in results[0]] != [each.error for each in results[1]]:
        return {}, "other calls of its solution are refused with the new values"
    pairs: dict[float, float] = {}
    for one, two in zip(*results, strict=True):
        for a, b in pair_numbers(decode_result(one.text), decode_result(two.text)):
            if pairs.setdefault(a, b) != b:
                pairs[a] = float("nan")
    return {a: b for a, b in pairs.items() if b == b}, ""


def pair_arguments(old: Task, new: Task) -> list[tuple[float, float]]:
    """Numbers of the solution's arguments, and those of the new one."""
    both = zip(old.actions, new.actions, strict=True)
    return [pair for one, two in both for pair in pair_numbers(one.arguments, two.arguments)]


def list_task_amounts(row: Any, *, inside: bool = False) -> set[float]:
    """The amounts that the texts of a task name."""
    if isinstance(row, dict):
        return set().union(
            *(
                list_task_amounts(each, inside=inside or key in TEXTS)
                for key, each in row.items()
                if key not in ("initial", "arguments")
            )
        )
    if isinstance(row, list):
        return set().union(*(list_task_amounts(each, inside=inside) for each in row))
    return list_amounts(row) if inside and isinstance(row, str) else set()


def replace_texts(row: Any, pairs: dict[float, float], bare: Collection[float], *, inside: bool = False) -> Any:
    """A task's row with the amounts in its texts replaced. `bare`: amounts that an expected answer may name without a currency."""
    if isinstance(row, dict):
        return {
            key: each
            if key in ("initial", "arguments")
            else replace_texts(each, pairs, bare, inside=inside or key in TEXTS)
            for key, each in row.items()
        }
    if isinstance(row, list):
        return [replace_texts(each, pairs, bare, inside=inside) for each in row]
    return replace_amounts(row, pairs, bare) if inside and isinstance(row, str) else row


def replace_code(row: Any, pairs: dict[float, float]) -> Any:
    """A task's row with the amounts in the code and the names of its checks replaced."""
    for part in [
        *row.get("reward", {}).get("parts", []),
        *(p for goal in row.get("goals", []) for p in goal.get("parts", [])),
    ]:
        if "code" in part:
            part["code"] = {replace_literals(k, pairs): replace_literals(v, pairs) for k, v in part["code"].items()}
    return row
