"""Rounds of the dual-agent assessment: a test call, its execution on an evolving state, and its judgement (EnvScaler §2.3).

Faults that execution shows need no agent: an exception that the tool does not declare, a reading tool that writes, a refusal that changes
the state, a state that breaks the schema. The check agent judges everything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from simia.authoring.tool_tests import BROKEN, format_paths
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.envs.worlds.world import ToolResult
from simia.errors import Aborted, Code, UserError
from simia.state import Change, diff_states
from simia.synthesis.design import BuiltEnvironment, ToolDesign
from simia.synthesis.reasons import Refused, Unreadable
from simia.synthesis.reply_reading import read_json
from simia.synthesis.stage import StageContext
from simia.synthesis.stage_errors import is_infrastructure
from simia.task import Task

Outcome = Literal["passed", "failed", "invalid", "unreadable"]
INVALID = {Code.UNKNOWN_TOOL, Code.BAD_ARGUMENTS, Code.UNPARSABLE_ARGUMENTS}
MOST_ARGUMENTS = 10_000  # characters of a test call; a longer one is no useful test, and fills the state
MOST_STATE, MOST_SHOWN, MOST_NOTED = 16_000, 4_000, 600
EARLIER = 12  # calls of the chain that the test agent sees


class TestCall(BaseModel):
    """What the test agent writes."""

    __test__ = False  # otherwise pytest would collect this class as a test

    tool: str
    """Name of the tool."""
    arguments: dict[str, Any]
    """The arguments."""
    expect: str = ""
    """What the test agent expects."""


class CheckVerdict(BaseModel):
    """What the check agent writes."""

    reason: str
    """Why."""
    passed: bool
    """Whether the tool did what it should."""


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """What a round tests, as the seed decides."""

    intent: Literal["positive", "negative"]
    tool: str


@dataclass(slots=True)
class Round:
    """One round and its outcome. The outcome `invalid`: the call broke the schema and was refused before it reached the tool."""

    name: str
    intent: str
    tool: str
    outcome: Outcome
    call: str = ""
    reason: str = ""
    record: dict[str, Any] | None = field(default=None, repr=False)
    """The values that the check agent saw, if it passed the call."""

    def note(self) -> dict[str, Any]:
        """The round as the report shows it."""
        return {"round": self.name, "intent": self.intent, "call": self.call, "reason": self.reason[:MOST_NOTED]}


class RoundChain:
    """Rounds one after another on one state. Chains share nothing, so their results do not depend on timing."""

    def __init__(
        self,
        built: BuiltEnvironment,
        backend: ExecutableBackend,
        context: StageContext,
        number: int,
        *,
        prefix: str,
        check_agent: bool,
    ) -> None:
        self._built, self._backend, self._context = built, backend, context
        self._number, self._prefix, self._check_agent = number, prefix, check_agent
        self._world: ExecutableWorld | None = None
        self._opened = 0
        self._earlier: list[str] = []
        self._designs: Mapping[str, ToolDesign] = {tool.name: tool for tool in built.design.tools}

    async def run(self, planned: Sequence[PlannedRound]) -> list[Round]:
        try:
            return [await self._run_round(number, each) for number, each in enumerate(planned)]
        finally:
            await self._leave()

    async def _enter(self) -> ExecutableWorld:
        """Return the chain's world; if it ended or was lost, open a new one from the example state."""
        if self._world is None:
            seed = 1000 * self._number + self._opened
            self._opened += 1
            self._world = await self._backend.open(Task(id=f"assessment-{seed}"), seed=seed)
        return self._world

    async def _leave(self) -> None:
        world, self._world, self._earlier = self._world, None, []
        if world is not None:
            await world.close()

    async def _run_round(self, number: int, planned: PlannedRound) -> Round:
        name = f"{self._prefix}{self._number}-{number}"
        lost = Round(name, planned.intent, planned.tool, "failed", reason="the state could not be read")
        try:
            world = await self._enter()
            before = await world.state()
        except (Aborted, UserError) as error:
            await self._leave()
            if is_infrastructure(error):
                raise
            lost.reason += f": {error}"
            return lost
        values = {
            **self._describe_system(),
            "tools": "\n".join(write_json(tool.spec.flat()) for tool in self._built.tools.values()),
            "state": show_state(before, MOST_STATE),
            "earlier": self._earlier[-EARLIER:],
            "intent": planned.intent,
            "tool": planned.tool,
        }
        try:
            given = await self._context.ask(
                "synthesis/assess_call.j2", values, read_test_call, label=f"call{name}", role="tester"
            )
        except Refused as refused:
            return Round(name, planned.intent, planned.tool, "unreadable", reason=f"test agent: {refused.detail}")
        shown = f"{clip(given.tool, 80)}({clip(write_json(given.arguments), MOST_NOTED)})"
        found = Round(name, planned.intent, clip(given.tool, 80), "failed", call=shown)
        try:
            result = await world.call_one(given.tool, given.arguments)
            after = before if result.ends and result.error else await world.state()
        except Aborted as error:
            await self._leave()
            if is_infrastructure(error):
                raise
            found.reason = f"unexpected failure: {error.detail}"
            return found
        status = "refused" if result.error else "success"
        self._earlier.append(f"{clip(shown, 200)}: {status}")
        await self._judge(found, given, result, before, after)
        if (
            result.ends or found.outcome == "failed"
        ):  # start again: a damaged state is not the fault of the tools that are called next
            await self._leave()
        return found

    async def _judge(self, found: Round, given: TestCall, result: ToolResult, before: Any, after: Any) -> None:
        """Judge by execution, then by the check agent."""
        changes = diff_states(before, after)
        fault = self._find_fault(given.tool, result, changes, before, after)
        if fault is not None:
            found.reason = fault
        elif result.error in INVALID:
            found.outcome, found.reason = "invalid", clip(result.content, MOST_NOTED)
        elif not self._check_agent:
            found.outcome = "passed"
        else:
            record = self._make_record(found, given, result, changes, before)
            try:
                verdict = await self.check(record, f"check{found.name}")
            except Refused as refused:
                found.outcome, found.reason = "unreadable", f"check agent: {refused.detail}"
                return
            found.outcome, found.reason = "passed" if verdict.passed else "failed", verdict.reason
            if verdict.passed and changes:
                found.record = record

    def _find_fault(self, tool: str, result: ToolResult, changes: list[Change], before: Any, after: Any) -> str | None:
        """Return the fault that execution shows, if any."""
        if result.error in BROKEN:
            return f"unexpected failure: {result.detail or result.content}"
        if not changes:
            return None
        if result.error:
            return f"it refuses, and changes {format_paths(changes)}"
        if tool in self._built.tools and not self._built.tools[tool].writes:
            return f"it is a reading tool, and changes {format_paths(changes)}"
        declared = self._designs[tool].tables if tool in self._designs else []
        other = [each for each in changes if self._built.design.state.find_table(each["path"]) not in declared]
        if declared and other:
            return f"it changes tables that its design does not name: {format_paths(other)}"
        known = set(self._built.design.state.find_violations(before))
        broken = [each for each in self._built.design.state.find_violations(after) if each not in known]
        return f"afterwards the state breaks its schema: {broken[0]}" if broken else None

    def _describe_system(self) -> dict[str, Any]:
        design, how = self._built.design, self._backend.pack.executable
        today = f"{how.clock:%Y-%m-%d %H:%M}" if how and how.clock else "not defined"
        return {"title": design.title, "description": design.description, "rules": design.rules, "today": today}

    def _make_record(
        self, found: Round, given: TestCall, result: ToolResult, changes: list[Change], before: Any
    ) -> dict[str, Any]:
        tool = self._designs[given.tool]
        return {
            **self._describe_system(),
            "tool": tool.model_dump(mode="json"),
            "source": self._built.tools[given.tool].source,
            "intent": found.intent,
            "call": f"{given.tool}({clip(write_json(given.arguments), MOST_SHOWN)})",
            "expect": clip(given.expect, MOST_SHOWN) or "none",
            "before": show_state(before, MOST_STATE),
            "status": "refused" if result.error else "success",
            "result": clip(result.content, MOST_SHOWN),
            "changes": clip(write_json(changes), MOST_STATE),
        }

    async def check(self, record: Mapping[str, Any], label: str) -> CheckVerdict:
        return await self._context.ask("synthesis/assess_check.j2", record, read_check, label=label, role="checker")


def read_test_call(text: str) -> TestCall:
    found: TestCall = read_json(text, TestCall)
    if (size := len(write_json(found.arguments))) > MOST_ARGUMENTS:
        raise Unreadable(f"the arguments have {size:,} characters; write at most {MOST_ARGUMENTS:,}")
    return found


def read_check(text: str) -> CheckVerdict:
    found: CheckVerdict = read_json(text, CheckVerdict)
    return found


def write_json(value: Any) -> str:
    """A JSON value as readable text, in which half a Unicode character is replaced."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()


def clip(text: str, most: int) -> str:
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def show_state(state: Any, most: int) -> str:
    """Write the state as JSON, one line for each table; if it is too large, only the first rows of each table, as many as fit."""
    tables = state if isinstance(state, dict) else {"state": state}
    rows = max((len(table) for table in tables.values() if isinstance(table, dict | list)), default=0)
    while True:
        text = "\n".join(f"{name}: {show_rows(table, rows)}" for name, table in tables.items())
        if len(text) <= most or rows <= 1:
            return clip(text, most)
        rows = min(rows - 1, rows * 3 // 4)


def show_rows(table: Any, rows: int) -> str:
    if not isinstance(table, dict | list) or len(table) <= rows:
        return write_json(table)
    some: Any = dict(list(table.items())[:rows]) if isinstance(table, dict) else table[:rows]
    return f"{write_json(some)} … and {len(table) - rows:,} more"
