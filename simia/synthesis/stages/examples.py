"""Stage `examples`: the state that the tests of an environment run in (ScaleEnv §3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.synthesis.building.example_states import ask_state
from simia.synthesis.design import EnvironmentDesign
from simia.synthesis.stage import StageContext, StageInput, StageOutputs


class ExampleStage:
    """Asks for one state with referential integrity for each design."""

    name = "examples"

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        return [StageInput(key, design) for key, design in outputs.of("design").items()]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        state = await ask_state(context, EnvironmentDesign.model_validate(given.value))
        context.note(rows={table: len(rows) for table, rows in state.items()})
        return state
