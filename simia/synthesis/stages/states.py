"""Stage `states`: initial states of every built environment (EnvScaler §3.3, ScenGenerator)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.synthesis.building.example_states import ask_state
from simia.synthesis.design import BuiltEnvironment
from simia.synthesis.reply_reading import dump
from simia.synthesis.scenarios.scenario import ScenarioState
from simia.synthesis.stage import StageContext, StageInput, StageOutputs

PURPOSE = (
    "Tasks for an assistant start in this state. About {rows} rows in each table that is in use from day to day, fewer in others. Rows "
    "that resemble each other, so that one has to look which is meant; statuses of every kind; values at and near the limits of the "
    "rules; chains of references over several tables. {focus}"
)
FOCUS = (
    "Ordinary data of an ordinary day.",
    "A busy day: scarce resources, and several rows that compete for them.",
    "Things went wrong: rows that are overdue, incomplete, blocked or doubly used, which a task can put right.",
    "A long history: many finished rows among few open ones.",
)


class States:
    """Ask for initial states. If the schema refuses a state, the model sees its faults and is asked again."""

    name = "states"

    def __init__(self, number: int, rows: int) -> None:
        """`number`: states of each environment. `rows`: about how many rows a table gets."""
        self._number, self._rows = number, rows

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [
            StageInput(f"{key}/{number}", {"environment": key, "number": number, "built": built})
            for key, built in list_environments(outputs).items()
            for number in range(self._number)
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        value = given.value
        built = BuiltEnvironment.model_validate(value["built"])
        purpose = PURPOSE.format(rows=self._rows, focus=FOCUS[value["number"] % len(FOCUS)])
        state = await ask_state(context, built.design, purpose=purpose)
        context.note(rows=sum(len(rows) for rows in state.values() if isinstance(rows, dict | list)))
        return dump(ScenarioState(environment=value["environment"], state=state))


def list_environments(outputs: StageOutputs) -> dict[str, Any]:
    """Return the built environments by key; after the assessment, if the recipe has one."""
    assessed = "assessment" in outputs.made or "assessment" in outputs.refused
    return outputs.of("assessment" if assessed else "environments")
