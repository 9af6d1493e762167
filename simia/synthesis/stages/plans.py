"""Stage `plans`: persona, situation and initial state for the sampled tools of a conversation (EnvFactory §3.4, planning)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from simia.reward_spec import StrictModel
from simia.synthesis.building.example_states import describe_tables, find_state_faults
from simia.synthesis.building.state_model import fill_defaults
from simia.synthesis.conversations.chain_turns import sample_turns
from simia.synthesis.conversations.conversation import ComposedEnvironment, ConversationPlan
from simia.synthesis.conversations.conversation_settings import PlanSettings
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reasons import Reason, Refused, name_refusal
from simia.synthesis.reply_reading import dump, read_json, refuse_faults
from simia.synthesis.scenarios.scenario_prompts import list_prompt_values
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

PROMPT = "synthesis/plan.j2"
SHOWN = 6  # faults of a state that the model sees


class PlanDraft(StrictModel):
    """A plan as a model writes it."""

    persona: str
    scenario: str
    state: dict[str, Any]


class Plans:
    """Sample the tools of each conversation, and ask for its persona, situation and state. Key: `composition/number`."""

    name = "plans"

    def __init__(self, settings: PlanSettings, seed: int) -> None:
        self._settings, self._seed = settings, seed

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [
            StageInput(f"{key}/{number}", {"key": key, "number": number, "composed": composed})
            for key, composed in outputs.of("compositions").items()
            for number in range(self._settings.number)
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        composed = ComposedEnvironment.model_validate(given.value["composed"])
        rng = random.Random(f"{self._seed}/plans/{given.key}")
        sampled = sample_turns(composed.graph, given.value["number"], rng, self._settings)
        if not sampled:
            raise Refused(Reason.NO_CHAIN, "no tool of the graph has all that it needs")
        turns = [[composed.tools[name] for name in turn] for turn in sampled]
        draft = await ask_plan(context, composed.built, turns, self._settings.rows)
        context.note(
            turns=len(turns),
            tools=sum(map(len, turns)),
            environments=len({n.partition("/")[0] for t in sampled for n in t}),
        )
        plan = ConversationPlan(composition=given.value["key"], turns=turns, **draft.model_dump())
        return dump(plan)


async def ask_plan(context: StageContext, built: BuiltEnvironment, turns: list[list[str]], rows: int) -> PlanDraft:
    """Ask for a plan with a state that the schema allows. Raises `Refused`: `invalid_state`, `unreadable_reply`."""
    schema, reason = built.design.state, Reason.UNREADABLE_REPLY

    def parse(text: str) -> PlanDraft:
        nonlocal reason
        draft: PlanDraft = read_json(text, PlanDraft)
        reason = Reason.INVALID_STATE
        refuse_faults(find_state_faults(schema, draft.state), SHOWN)
        return draft.model_copy(update={"state": fill_defaults(schema, draft.state)})

    values = {
        **list_prompt_values(built, built.example),
        "tables": describe_tables(schema),
        "turns": describe_turns(built, turns),
        "rows": rows,
    }
    with name_refusal(lambda: reason):
        return await context.ask(PROMPT, values, parse, label="plan")


def describe_turns(built: BuiltEnvironment, turns: Sequence[Sequence[str]]) -> list[list[str]]:
    """The tools of each turn as JSON."""
    return [[built.tools[name].spec.write_json() for name in turn] for turn in turns]
