"""Let a model write a user's goal from the user's messages (Simia-RL trains on tasks; seeds hold conversations).

The model sees no message of the assistant and no result, so it cannot put into the goal what the user did not know. A value in its
reply that no message holds is an invention: the model is asked once more, then the goal keeps the user's own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from simia.authoring.user_goals import GAP, GAP_MEANING, UserGoal, is_value, list_tokens
from simia.config import OPERATIONAL, Config
from simia.errors import UserError
from simia.formats.reply.reply_json import RepairError, load_json, strip_reasoning
from simia.jobs import Store
from simia.llm.backends import LLMSettings, find_price, open_backend
from simia.llm.engine import BudgetReached, Engine, EngineLimits
from simia.llm.types import LLMFault, Request, make_reply_key
from simia.prompts import read_prompt
from simia.quality.mentions import Mentions
from simia.terminal import say_error
from simia.trajectory import digest

PROMPT = "user/goal.md"
AGAIN = "That cannot be used: {why}. Write the object once more, in the form described."
MOST_FACTS, LONGEST = 40, 8_000


class GoalSettings(Config):
    """The model that writes users' goals, and how it is asked."""

    llm: LLMSettings | None = Field(
        None, description="The model that writes the goals. null: the goal is the text of the user's messages."
    )
    temperature: float | None = Field(0.0, ge=0, description="Sampling temperature. null: the endpoint's default.")
    max_tokens: int | None = Field(
        2048,
        ge=64,
        description="Maximum number of tokens of a reply, reasoning tokens included. null: the endpoint's limit.",
    )
    again: int = Field(1, ge=0, description="Maximum number of further requests after a reply that cannot be used.")
    limits: EngineLimits = Field(
        default_factory=EngineLimits,
        json_schema_extra=OPERATIONAL,
        description="Concurrency, retries and budget of the requests.",
    )


async def rewrite_goals(
    goals: Sequence[UserGoal], settings: GoalSettings, store: Path
) -> list[tuple[str, list[str]] | None]:
    """Return instruction and known facts for each goal; None if no reply could be used.

    Replies are kept in `store` before they are used, so that the same call after a crash asks for the missing ones only. Raises
    `UserError` if the budget ends or the model does not answer.
    """
    assert settings.llm is not None
    model = open_backend(settings.llm, say=say_error)
    journal = Store.open(store)
    try:
        async with Engine(model, journal, settings.limits, find_price(settings.llm)) as engine:
            return list(await asyncio.gather(*(rewrite_goal(goal, settings, engine) for goal in goals)))
    except BudgetReached as reached:
        raise UserError(f"{reached} (limits.{reached.cap}); replies are kept in {store}: raise it and repeat") from None
    except LLMFault as fault:
        why = fault.detail or fault.code.meaning
        raise UserError(f"llm: the goals cannot be written: {why}; replies are kept in {store}") from None
    finally:
        journal.close()


async def rewrite_goal(goal: UserGoal, settings: GoalSettings, engine: Engine) -> tuple[str, list[str]] | None:
    """Ask for one goal, and again after a reply that cannot be used."""
    later = [f"{number}. {text}" for number, text in enumerate(goal.later, start=2)]
    text = "\n".join(["# The user's messages", f"1. {goal.opening}", *later])
    first = [{"role": "system", "content": read_prompt(PROMPT)[0]}, {"role": "user", "content": text}]
    draw, said = digest([goal.opening, goal.later]), list[dict[str, str]]()
    backend, known = engine.backend, Mentions()
    for message in (goal.opening, *goal.later):
        known.add(message, by_user=True)
    for attempt in range(1 + settings.again):
        request = Request(messages=[*first, *said], temperature=settings.temperature, max_tokens=settings.max_tokens)
        name = f"goal/{draw}/{attempt}"
        key = make_reply_key(backend.alias, backend.model, request, name)
        reply = await engine.ask(request, item=f"goal/{draw}", draw=name, key=key)
        found = read_goal(reply.text, known)
        if not isinstance(found, str):
            return found
        said = [
            {"role": "assistant", "content": reply.text[:LONGEST] or "(nothing)"},
            {"role": "user", "content": AGAIN.format(why=found)},
        ]
    return None


def read_goal(text: str, known: Mentions) -> tuple[str, list[str]] | str:
    """Return the goal and the facts of a reply, or why it cannot be used."""
    try:
        value, _ = load_json(strip_reasoning(text))
    except RepairError as error:
        return f"it is no JSON object ({error})"
    goal = value.get("goal") if isinstance(value, dict) else None
    facts = value.get("knows", []) if isinstance(value, dict) else None
    if not isinstance(goal, str) or not goal.strip() or len(goal) > LONGEST:
        return '"goal" is missing'
    if not isinstance(facts, list) or not all(isinstance(fact, str) for fact in facts) or len(facts) > MOST_FACTS:
        return '"knows" is no list of texts'
    for each in (goal, *facts):
        invented = [
            token.text for token, _ in list_tokens(each) if is_value(token.text) and not known.contains(token.text)
        ]
        if invented:
            return f"no message of the user holds {invented[0]!r}"
    kept = [fact.strip() for fact in facts if fact.strip() and GAP not in fact]
    return f"{goal.strip()}\n{GAP_MEANING}" if GAP in goal else goal.strip(), kept
