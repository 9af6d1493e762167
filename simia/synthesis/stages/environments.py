"""Stage `environments`: assemble the tools of an environment; run all tests and random calls (EnvScaler §2: assembly)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simia.synthesis.building.building_settings import BuildingSettings
from simia.synthesis.building.debug_loop import ToolDebugger, ToolDraft
from simia.synthesis.building.method_lint import CheckedMethod
from simia.synthesis.building.random_calls import make_random_calls, repeat_tests
from simia.synthesis.building.state_model import write_state_model
from simia.synthesis.building.tool_runs import LoadFault, open_sandbox, run_tool_tests
from simia.synthesis.design import BuiltEnvironment, BuiltTool, DroppedTool, EnvironmentDesign
from simia.synthesis.reasons import Reason, Refused
from simia.synthesis.reply_reading import dump
from simia.synthesis.stage import StageContext, StageInput, StageOutputs
from simia.tool_test import ToolTest

Faults = dict[str, tuple[Reason, str]]


class EnvironmentStage:
    """Assembles the tools of each environment, and drops those that fail together with the others."""

    name = "environments"

    def __init__(self, settings: BuildingSettings) -> None:
        self._settings = settings

    def list_inputs(self, outputs: StageOutputs) -> Sequence[StageInput]:
        designs, made, refused = outputs.of("design"), outputs.of("tools"), outputs.refused.get("tools", {})
        found = []
        for key, example in outputs.of("examples").items():
            names = [tool["name"] for tool in designs[key]["tools"]]
            dropped = {
                name: {"reason": str(refusal.reason), "detail": refusal.detail}
                for name in names
                if (refusal := refused.get(f"{key}/{name}"))
            }
            tools = {name: made[f"{key}/{name}"] for name in names if f"{key}/{name}" in made}
            value = {"design": designs[key], "example": example, "tools": tools, "dropped": dropped}
            found.append(StageInput(key, value))
        return found

    async def make(self, given: StageInput, context: StageContext) -> Any:
        design = EnvironmentDesign.model_validate(given.value["design"])
        parts: dict[str, Any] = given.value["tools"]
        built = BuiltEnvironment(
            design=design,
            state_model=write_state_model(design.state),
            example=given.value["example"],
            tools={name: BuiltTool.model_validate(part["tool"]) for name, part in parts.items()},
            dropped={name: DroppedTool.model_validate(each) for name, each in given.value["dropped"].items()},
            tests=[ToolTest.model_validate(test) for part in parts.values() for test in part["tests"]],
        )
        if self._settings.execution:
            await self._settle(built, context)
        if len(built.tools) < self._settings.kept:
            raise Refused(
                Reason.TOO_FEW_TOOLS,
                f"{len(built.tools)} of {len(design.tools)} tools, {self._settings.kept} are needed",
            )
        return dump(built)

    async def _settle(self, built: BuiltEnvironment, context: StageContext) -> None:
        """Check, and repair each faulty tool once; drop a tool at its second fault. Repeat until no tool has a fault."""
        repaired: set[str] = set()
        dropped: dict[str, str] = {}
        succeeded = 0
        while built.tools:
            faults, succeeded = await check_environment(
                built, context, self._settings.random_calls, self._settings.repeats
            )
            if not faults:
                break
            for name, (reason, detail) in faults.items():
                if name in repaired or not await self._repair(built, name, detail, context):
                    drop_tool(built, name, reason, detail)
                    dropped[name] = str(reason)
                repaired.add(name)
        context.note(repaired=sorted(repaired), random_calls=self._settings.random_calls, random_successes=succeeded)
        if dropped:
            context.note(dropped=dropped)

    async def _repair(self, built: BuiltEnvironment, name: str, detail: str, context: StageContext) -> bool:
        """Ask once for a repaired method; False if no reply can be used."""
        tool = next(each for each in built.design.tools if each.name == name)
        debugger = ToolDebugger(context, built.design, tool, built.example, formats=self._settings.formats)
        old = built.tools[name]
        draft = ToolDraft(CheckedMethod(old.source, old.spec), [])
        try:
            draft, _ = await debugger.ask_repair(draft, [detail], label=f"repair-{name}", tests=False)
        except Refused:
            return False
        changed = {"source": draft.method.source, "spec": draft.method.spec, "repairs": old.repairs + 1}
        built.tools[name] = old.model_copy(update=changed)
        return True


async def check_environment(
    built: BuiltEnvironment, context: StageContext, calls: int, repeats: int = 0
) -> tuple[Faults, int]:
    """Run all tests; if they pass, make random calls, and run the tests of writing tools again with other new ids.

    Returns tool → its first fault, and how many random calls succeeded.
    """
    try:
        async with open_sandbox(context, built) as backend:
            faults: Faults = {}
            for run in await run_tool_tests(backend, built.design, built.tests):
                if run.reason is not None:
                    faults.setdefault(run.test.call.name, (run.reason, f"{run.test.name}: {run.detail}"))
            if faults:
                return faults, 0
            faults, succeeded = await make_random_calls(backend, built, calls)
            return faults or await repeat_tests(backend, built, repeats), succeeded
    except LoadFault as fault:
        return dict.fromkeys(built.tools, (Reason.UNEXPECTED_FAILURE, str(fault))), 0


def drop_tool(built: BuiltEnvironment, name: str, reason: Reason, detail: str) -> None:
    """Remove a tool and its tests from an environment, with the reason."""
    del built.tools[name]
    built.tests = [test for test in built.tests if test.call.name != name]
    order = [tool.name for tool in built.design.tools]
    built.dropped[name] = DroppedTool(reason=reason, detail=detail[:500])
    built.dropped = {each: built.dropped[each] for each in order if each in built.dropped}
