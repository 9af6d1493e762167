"""Episodes of customer_service with the reward that its rules give: solved ones, subtly spoilt ones, and idle ones.

Right in other ways: an idle look-up, another order, other words. Wrong in ways that are easily overlooked: one identifier of
many, a sum told wrong after all was done right, a change too many that nobody mentions, the last change only claimed or only
promised, a refusal of what was allowed, a promise of what was not. What the rules do not see stands in a kind of its own
(`UNSEEN`): a change without asking first, which the policy forbids and the final state does not show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from simia.envs.opening import open_environment
from simia.reward_spec import AnswerSpec
from simia.task import Action, ScriptTurn, Task
from tests.evaluation.spoiling import (
    Case,
    Make,
    Stage,
    changing,
    ended_early,
    left_out,
    other_ids,
    refused,
    told_otherwise,
    turned,
    with_calls,
)  # fmt: skip

PACK = "customer_service"
UNSEEN = "changed without asking, which the rules do not see"
IDS = r"(?:ORD|ITM|PRD|RET|VCH|CUS)-\d+"
LOOK = Action(name="search_products", arguments={"query": "gift card"})
NO = "I'm sorry, but this order is already packed, so I can't change it any more."
EXCEPTION = "You know what, I'll make an exception for you this once: it is done, just as you asked."


async def labelled() -> list[Case]:
    """(kind, task, episode), always in the same order."""
    async with await open_environment(PACK, user="none") as environment:
        stage = Stage(environment, [])
        tasks = environment.tasks
        working = [task for task in tasks if changing(task.script)]
        telling = [task for task in tasks if answers(task)]
        refusing = [task for task in tasks if "refusal" in task.tags]

        for task in [*tasks[2::6], *refusing[3::4]]:
            await stage.add("reference", task, task.script)
        for task in working[3::9][:5]:
            await stage.add("an idle look-up", task, with_calls(task.script, [LOOK]), only=1.0)
        for task in [each for each in working if turned(each.script)][1::4][:4]:
            await stage.add("another order", task, turned(task.script) or [], only=1.0)
        for task in telling[1::6][:5]:
            await stage.add("other words", task, [otherwise(turn) for turn in task.script], only=1.0)

        await some(stage, "one wrong identifier", working[::2], 9)
        await some(stage, "told wrong", telling[::3], 9)
        await some(stage, "a silent change too many", working[2::4], 7)
        for task in working[4::8][:6]:
            await stage.add("last change only claimed", task, left_out(task.script), only=0.0)
        for task in working[6::8][:6]:
            await stage.add("last change only promised", task, ended_early(task.script), only=0.0)
        for task in working[7::9][:5]:
            await stage.add("wrongly refused", task, refused(task.script, NO), only=0.0)
        for task in [each for each in refusing if answers(each) and each.script[-1].agent][::2][:4]:
            await stage.add("an exception promised", task, [*task.script[:-1], ScriptTurn(agent=EXCEPTION)], only=0.0)
        for task in [each for each in working if unasked(each.script)][2::7][:5]:
            await stage.add(UNSEEN, task, unasked(task.script) or [], only=1.0)
        await stage.idle(working[5::12][:4])
        return stage.cases


async def some(stage: Stage, kind: str, tasks: Sequence[Task], most: int) -> None:
    """Cases of one kind of spoiling, of the first tasks that can be spoilt so."""
    found = 0
    for task in tasks:
        made: dict[str, Make] = {
            "one wrong identifier": lambda script, seen: other_ids(script, seen, IDS),
            "told wrong": lambda script, seen, task=task: told_otherwise(script, answers(task)),
            "a silent change too many": lambda script, seen: too_many(script),
        }
        found += await stage.first(kind, task, task.script, made[kind])
        if found == most:
            return


def too_many(script: Sequence[ScriptTurn]) -> Iterator[Sequence[ScriptTurn]]:
    """A change that nobody asked for, on what the episode is about, and no word of it."""
    calls = [call for turn in script for call in turn.calls or []]
    for call in calls:
        order, email = call.arguments.get("order_id"), call.arguments.get("email")
        if call.name == "get_order":
            yield with_calls(
                script, [Action(name="add_note", arguments={"order_id": order, "note": "Leave at the door."})]
            )
            yield with_calls(
                script, [Action(name="cancel_order", arguments={"order_id": order, "reason": "changed_mind"})]
            )
        if call.name in ("list_orders", "list_returns"):
            new = {"customer_id": call.arguments["customer_id"], "email": email, "new_email": f"shop.{email}"}
            yield with_calls(script, [Action(name="update_email", arguments=new)])
    hand = {"topic": "complaint", "summary": "The customer had a question.", "urgent": False}
    yield with_calls(script, [Action(name="transfer_to_person", arguments=hand)])


def unasked(script: Sequence[ScriptTurn]) -> Sequence[ScriptTurn] | None:
    """The only change is made at once, without the question before it and the yes; None where there are more, or no question."""
    places = changing(script)
    if len(places) != 1 or places[0] < 2 or script[places[0] - 1].user is None or script[places[0] - 2].agent is None:
        return None
    return [*script[: places[0] - 2], *script[places[0] :]]


def otherwise(turn: ScriptTurn) -> ScriptTurn:
    """Sums with the word euros, days as ordinals."""
    if turn.agent is None:
        return turn
    text = re.sub(r"€(\d+(?:\.\d\d)?)", r"\1 euros", turn.agent)
    return ScriptTurn(agent=re.sub(r"\b(1?[04-9]|2[04-9]|1[1-3]|30) (May|June|April)( 2025)?", r"\2 \1th", text))


def answers(task: Task) -> list[str]:
    return [text for part in task.reward.parts if isinstance(part, AnswerSpec) for text in part.expect]
