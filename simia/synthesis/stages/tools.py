"""Stage `tools`: ask for one method per question, test it by execution and repair it (EnvScaler §2: one method at a time; ScaleEnv §3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.debug_loop import DebugRecord, ToolDebugger, ToolDraft
from simia.synthesis.building.draft_tests import read_tests
from simia.synthesis.building.example_states import (
    CLOCK,
    describe_tables,
    list_own_tables,
    write_tool_data,
    write_tool_design,
)
from simia.synthesis.building.method_lint import CheckedMethod, MethodReader
from simia.synthesis.building.state_model import write_state_model
from simia.synthesis.design import BuiltTool, EnvironmentDesign, ToolDesign
from simia.synthesis.reasons import Reason, name_refusal
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.tool_test import ToolTest


class ToolStage:
    """Writes each designed operation as a method, asks for its tests, runs them, and repairs what fails.

    The key of an input is `environment/tool`. The output is `{"tool": BuiltTool, "tests": [ToolTest]}`.
    """

    name = "tools"

    def __init__(self, settings: BuildingSettings) -> None:
        self._settings = settings

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        designs = outputs.of("design")
        return [
            StageInput(f"{key}/{tool['name']}", {"design": designs[key], "tool": tool["name"], "example": example})
            for key, example in outputs.of("examples").items()
            for tool in designs[key]["tools"]
        ]

    async def make(self, given: StageInput, context: StageContext) -> Any:
        design = EnvironmentDesign.model_validate(given.value["design"])
        tool = next(each for each in design.tools if each.name == given.value["tool"])
        example = given.value["example"]
        debugger = ToolDebugger(context, design, tool, example, formats=self._settings.formats)
        with name_refusal(lambda: debugger.reader.reason):
            method = await ask_method(context, design, tool, debugger.reader)
        tests = await self._ask_tests(context, design, tool, method, example)
        draft, record = ToolDraft(method, tests), DebugRecord()
        if self._settings.execution:
            try:
                draft = await debugger.repair(draft, self._settings.debug_rounds, record)
            finally:
                context.note(rounds=record.rounds, repaired=dict(record.repaired), outcomes=dict(record.outcomes))
        made = BuiltTool(source=draft.method.source, spec=draft.method.spec, writes=tool.writes, repairs=record.rounds)
        return {"tool": dump(made), "tests": [dump(test) for test in draft.tests]}

    async def _ask_tests(
        self,
        context: StageContext,
        design: EnvironmentDesign,
        tool: ToolDesign,
        method: CheckedMethod,
        example: dict[str, Any],
    ) -> list[ToolTest]:
        """Ask for the tests, from the design and the example alone."""
        most = self._settings.tests
        values = {
            "count": f"{most - 1} to {most}" if most > 2 else most,
            "clock": CLOCK,
            "rules": design.rules,
            "tables": describe_tables(design.state, list_own_tables(design, tool)),
            "example": write_tool_data(design, tool, example),
            "tool": write_tool_design(tool),
        }
        with name_refusal(Reason.INVALID_TESTS):
            return await context.ask(
                "synthesis/tests.j2",
                values,
                lambda text: read_tests(text, design, tool, method.spec, example, most),
                label="tests",
            )


async def ask_method(
    context: StageContext, design: EnvironmentDesign, tool: ToolDesign, reader: MethodReader
) -> CheckedMethod:
    """Ask for the method of one tool."""
    values = {
        "title": design.title,
        "rules": design.rules,
        "state_model": write_state_model(design.state),
        "tool": write_tool_design(tool),
    }
    return await context.ask("synthesis/method.j2", values, reader.read, label="method")
