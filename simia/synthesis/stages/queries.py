"""Stage `queries`: write the user's message of each turn: subgoals → query → the four calibrated refinements (EnvFactory §3.4).

All turns of a conversation are written in one reply and refined in another: two questions, or one if no refinement is on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from simia.synthesis.conversations.conversation import (
    ComposedEnvironment,
    ConversationPlan,
    ConversationQueries,
    UserTurn,
)
from simia.synthesis.conversations.conversation_settings import QuerySettings
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason, Unreadable, name_refusal
from simia.synthesis.reply_reading import dump, read_json
from simia.synthesis.scenarios.scenario_prompts import list_prompt_values
from simia.synthesis.scenarios.solution_runs import MOST_CALLS
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.synthesis.stages.plans import describe_turns
from simia.tool import ToolSpec
from simia.trajectory import write_compact_json

PROMPT, REFINE_PROMPT = "synthesis/queries.j2", "synthesis/refine_queries.j2"


class Queries:
    """Ask for the queries of each plan. Key: that of the plan."""

    name = "queries"

    def __init__(self, settings: QuerySettings) -> None:
        self._settings = settings

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        compositions = outputs.of("compositions")
        return [
            StageInput(key, {"plan": plan, "composed": compositions[plan["composition"]]})
            for key, plan in outputs.of("plans").items()
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        plan = ConversationPlan.model_validate(given.value["plan"])
        built = ComposedEnvironment.model_validate(given.value["composed"]).built
        values = {
            **list_prompt_values(built, plan.state),
            "persona": plan.persona,
            "scenario": plan.scenario,
            "turns": describe_turns(built, plan.turns),
        }

        def parse(text: str) -> list[UserTurn]:
            return read_turns(text, len(plan.turns), built)

        with name_refusal(Reason.QUERY_UNUSABLE):
            drafts = await context.ask(PROMPT, values, parse, label="queries")
            turns = drafts
            if self._settings.refinements:
                rows = ",\n".join(f"  {write_compact_json(each.model_dump())}" for each in drafts)
                asked = {
                    **values,
                    "tools": [name_tool(each.spec) for each in built.tools.values()],
                    "refinements": self._settings.refinements,
                    "drafts": f"[\n{rows}\n]",
                }
                turns = await context.ask(REFINE_PROMPT, asked, parse, label="refined")
        words = [sum(len(each.query.split()) for each in own) for own in (drafts, turns)]
        context.note(words_before=words[0], words_after=words[1])
        return dump(ConversationQueries(drafts=drafts, turns=turns))


def name_tool(tool: ToolSpec) -> str:
    """A tool in a line: `book(member, day): Book a day`."""
    return f"{tool.name}({', '.join(tool.parameters.get('properties', {}))}): {tool.description}"


def read_turns(text: str, count: int, built: BuiltEnvironment) -> list[UserTurn]:
    """Return the turns of a reply. Raises `Unreadable` for another number of turns, empty words, and queries that name tools."""
    turns: list[UserTurn] = read_json(text, list[UserTurn])
    if len(turns) != count:
        raise Unreadable(f"there must be {count} turns, not {len(turns)}")
    for number, turn in enumerate(turns, start=1):
        query = " ".join(turn.query.split())
        if not query or not all(each.strip() for each in turn.subgoals) or len(turn.subgoals) > MOST_CALLS:
            raise Unreadable(
                f"turn {number}: the query or a subgoal is empty, or there are more than {MOST_CALLS} subgoals"
            )
        named = [name for name in built.tools if "_" in name and re.search(rf"\b{re.escape(name)}\b", query)]
        if named:
            raise Unreadable(f"turn {number}: the query names the tool {named[0]}: say it in the user's words")
    return turns
