"""Execute the tests of tools in the sandbox, with three outcomes: success, expected refusal, unexpected failure (ScaleEnv §3.2)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from simia.authoring.findings import Fault
from simia.authoring.tool_tests import BROKEN, PlayedTest, judge_test, play_test
from simia.envs.worlds.executable import ExecutableBackend
from simia.errors import Aborted, Code, UserError
from simia.pack import Pack
from simia.sandbox.limits import MB, WorkerLimits
from simia.state import Change, diff_states
from simia.synthesis.building.pack_writing import write_environment
from simia.synthesis.design import BuiltEnvironment, EnvironmentDesign, ToolDesign
from simia.synthesis.reasons import Reason
from simia.synthesis.stage import StageContext
from simia.task import Task
from simia.tool_test import ToolTest

LIMITS = WorkerLimits(memory=256 * MB)
ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
LIMIT_CODES = {Code.TOOL_TIMEOUT, Code.RESOURCE_LIMIT}
NOT_ROUND = "written out and read again, is another state: keep plain JSON values of the column's type in it"
Outcome = Literal["success", "refusal", "failure"]


@dataclass(frozen=True, slots=True)
class ToolRun:
    """The outcome of one test of a tool."""

    test: ToolTest
    outcome: Outcome
    """Outcome of the call under test."""
    reason: Reason | None = None
    """Why the test does not pass; None: it passes."""
    detail: str = ""
    """Details of the failure."""


@contextlib.asynccontextmanager
async def open_sandbox(context: StageContext, built: BuiltEnvironment) -> AsyncIterator[ExecutableBackend]:
    """Yield a sandbox that has loaded an environment.

    Raises:
        LoadFault: the environment does not load, and without its methods it does.
        UserError: there is no sandbox.
    """
    async with context.execution() as folder:
        write_environment(folder / "pack", built)
        backend = ExecutableBackend(Pack.load(folder / "pack"), limits=LIMITS)
        try:
            try:
                await backend.start()
            except UserError as error:
                bare = built.model_copy(update={"tools": {}, "tests": []})
                write_environment(folder / "bare", bare)
                empty = ExecutableBackend(Pack.load(folder / "bare"), limits=LIMITS)
                try:
                    await empty.start()
                finally:
                    await empty.close()
                raise LoadFault(str(error)) from None
            yield backend
        finally:
            await backend.close()


class LoadFault(Exception):  # noqa: N818 - a verdict on code
    """The methods of an environment cannot be loaded."""


async def run_tool_tests(
    backend: ExecutableBackend, design: EnvironmentDesign, tests: Sequence[ToolTest]
) -> list[ToolRun]:
    """Run tests in order, each in a new world, up to the first one that exceeds a limit of time or memory."""
    tools = {tool.name: tool for tool in design.tools}
    found = []
    for test in tests:
        try:
            played = await play_test(test, backend)
        except Aborted as error:
            await require_sandbox(backend, error)
            found.append(ToolRun(test, "failure", Reason.UNEXPECTED_FAILURE, error.detail or str(error.code)))
            continue
        run = judge_run(test, played, design, tools[test.call.name])
        if run.reason is None and played.changes and not await is_round(backend, played.after):
            run = replace(run, reason=Reason.STATE_NOT_ROUND, detail=f"the state after {test.call.name}, {NOT_ROUND}")
        found.append(run)
        if played.result.error in LIMIT_CODES:
            break
    return found


async def is_round(backend: ExecutableBackend, state: Any) -> bool:
    """Whether a state stays the same when it is written and read again (EnvFactory §3.2: standardized loading and dumping of states)."""
    try:
        world = await backend.open(Task(id="round", initial={"state": state}))
    except Aborted as error:
        await require_sandbox(backend, error)
        return False
    async with world:
        return diff_states(state, await world.state()) == []


async def require_sandbox(backend: ExecutableBackend, error: Aborted) -> None:
    """Raise the error again if the state of a new episode cannot be read: then the sandbox is at fault, not the tool."""
    if not await backend.is_readable(Task(id="untouched"), 0):
        raise error


def judge_run(test: ToolTest, played: PlayedTest, design: EnvironmentDesign, tool: ToolDesign) -> ToolRun:
    """The outcome of a test, and why it does not pass."""
    result = played.result
    outcome: Outcome = "failure" if result.error in BROKEN else "refusal" if result.error else "success"
    for finding in judge_test(test, played, writes=tool.writes):
        reasons = {Fault.TOOL_FAILED: Reason.UNEXPECTED_FAILURE, Fault.READ_WRITES: Reason.READ_TOOL_WRITES}
        return ToolRun(test, outcome, reasons.get(finding.fault, Reason.TESTS_FAIL), hide_addresses(finding.detail))
    if fault := find_state_breach(design, tool, played.changes, played.after):
        return ToolRun(test, outcome, fault[0], fault[1])
    return ToolRun(test, outcome)


def hide_addresses(text: str) -> str:
    """Remove memory addresses, which differ between runs, from a text for prompts."""
    return ADDRESS.sub("0x…", text)


def find_state_breach(
    design: EnvironmentDesign, tool: ToolDesign, changes: Sequence[Change], after: object
) -> tuple[Reason, str] | None:
    """Return why the state after a call is refused: the call changed a table that the design does not name, or broke the schema."""
    strange = sorted({change["path"][0] for change in changes if change["path"]} - set(tool.tables))
    if strange:
        return Reason.UNDECLARED_TABLE, f"{tool.name} changes {', '.join(strange)}, which its design does not name"
    broken = design.state.find_violations(after) if changes else []
    return (Reason.DANGLING_KEY, f"after {tool.name}: {broken[0]}") if broken else None
