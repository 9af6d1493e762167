"""The debug loop: a model sees the failures and repairs the tool, a test, or the state of a test (ScaleEnv §3.2).

A reply with a Python block repairs the tool. A reply with a JSON block repairs tests; if the example state is at fault, a test gets a patch
of it. No test can be removed, and every repaired test is executed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import orjson

from simia.reward_spec import StrictModel
from simia.synthesis.building.draft_tests import DraftTest, check_outcomes, finish_test
from simia.synthesis.building.example_states import CLOCK, write_tool_data, write_tool_design
from simia.synthesis.building.method_lint import CheckedMethod, MethodReader
from simia.synthesis.building.state_model import name_row_classes, write_state_model
from simia.synthesis.building.tool_runs import LoadFault, ToolRun, open_sandbox, run_tool_tests
from simia.synthesis.design import BuiltEnvironment, BuiltTool, EnvironmentDesign, ToolDesign
from simia.synthesis.reasons import Reason, Refused, Unreadable, name_refusal
from simia.synthesis.reply_reading import list_blocks, read_json
from simia.synthesis.stage import StageContext
from simia.tool_test import ToolTest

PROMPT = "synthesis/debug.j2"


class RepairedTests(StrictModel):
    """A verdict that tests, or the state that they run in, are at fault."""

    at_fault: Literal["test", "state"]
    """What is wrong: what a test expects, or the state that it runs in."""
    tests: list[DraftTest]
    """The repaired tests, by the names that they had."""


@dataclass(frozen=True, slots=True)
class ToolDraft:
    """A tool with its tests, which it may not pass yet."""

    method: CheckedMethod
    """The tool."""
    tests: list[ToolTest]
    """Its tests."""


@dataclass(slots=True)
class DebugRecord:
    """Figures of one tool's debug loop."""

    rounds: int = 0
    """Repairs that were asked for."""
    repaired: Counter[str] = field(default_factory=Counter)
    """What was repaired: `tool`, `test`, `state`."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Outcomes of the last run of the tests."""


class ToolDebugger:
    """Runs and repairs one tool."""

    def __init__(
        self,
        context: StageContext,
        design: EnvironmentDesign,
        tool: ToolDesign,
        example: dict[str, Any],
        *,
        formats: bool = True,
    ) -> None:
        """`formats`: see `MethodReader`."""
        self._context, self._design, self._tool, self._example = context, design, tool, example
        self.reader = MethodReader(tool, name_row_classes(design.state).values(), formats=formats)

    async def run(self, draft: ToolDraft) -> list[ToolRun]:
        """Run the tests of a draft in a sandbox with this tool alone."""
        built = make_single(self._design, self._tool, self._example, draft)
        try:
            async with open_sandbox(self._context, built) as backend:
                return await run_tool_tests(backend, self._design, draft.tests)
        except LoadFault as fault:
            return [ToolRun(test, "failure", Reason.UNEXPECTED_FAILURE, str(fault)) for test in draft.tests]

    async def repair(self, draft: ToolDraft, rounds: int, record: DebugRecord) -> ToolDraft:
        """Return a draft whose tests pass.

        Raises:
            Refused: after `rounds` repairs a test still fails; or no reply could be used.
        """
        for number in range(rounds + 1):
            runs = await self.run(draft)
            record.outcomes = Counter(run.outcome for run in runs)
            failing = [run for run in runs if run.reason is not None]
            if not failing:
                return draft
            if number == rounds:
                raise Refused(failing[0].reason or Reason.TESTS_FAIL, f"{failing[0].test.name}: {failing[0].detail}")
            record.rounds += 1
            failures = [f"{run.test.name.partition(': ')[2]}: {run.detail}" for run in failing]
            with name_refusal(failing[0].reason or Reason.TESTS_FAIL):
                draft, at_fault = await self.ask_repair(draft, failures, label=f"repair{number + 1}", tests=True)
            record.repaired[at_fault] += 1
        raise AssertionError

    async def ask_repair(
        self, draft: ToolDraft, failures: Sequence[str], *, label: str, tests: bool
    ) -> tuple[ToolDraft, str]:
        """Ask for a repair. `tests`: whether tests may be repaired too. Returns the repaired draft, and what was at fault."""
        values = {
            "clock": CLOCK,
            "rules": self._design.rules,
            "state_model": write_state_model(self._design.state),
            "example": write_tool_data(self._design, self._tool, self._example),
            "tool": write_tool_design(self._tool),
            "source": draft.method.source,
            "tests": [write_test(test) for test in draft.tests] if tests else [],
            "failures": failures,
        }
        read = self._reader_of_repairs(draft, tests)
        return await self._context.ask(PROMPT, values, read, label=label)

    def _reader_of_repairs(self, draft: ToolDraft, tests: bool) -> Callable[[str], tuple[ToolDraft, str]]:
        def read(text: str) -> tuple[ToolDraft, str]:
            blocks = list_blocks(text)
            if blocks and blocks[-1][0] == "json":
                if not tests:
                    raise Unreadable("only the method can be repaired here: reply with a block of Python")
                repair: RepairedTests = read_json(text, RepairedTests)
                return replace(draft, tests=self._replace_tests(draft, repair)), repair.at_fault
            method = self.reader.read(text)
            if method.source == draft.method.source:
                raise Unreadable("the method is the same as before")
            return replace(draft, method=method), "tool"

        return read

    def _replace_tests(self, draft: ToolDraft, repair: RepairedTests) -> list[ToolTest]:
        """Return the tests, each replaced by the repaired test of the same name, if any. Raises `Unreadable`."""
        spec = draft.method.spec
        drafts = [
            each.model_copy(update={"name": each.name.removeprefix(f"{self._tool.name}: ")}) for each in repair.tests
        ]
        if repair.at_fault == "state" and not any(each.patch for each in drafts):
            raise Unreadable("`at_fault` is state, and no test has a `patch` of the example")
        repaired = {
            test.name: test
            for test in (finish_test(each, self._design, self._tool, spec, self._example) for each in drafts)
        }
        names = [test.name for test in draft.tests]
        if unknown := [name for name in repaired if name not in names]:
            raise Unreadable(f"there is no test {unknown[0].partition(': ')[2]!r}: keep the names of the tests")
        found = [repaired.get(test.name, test) for test in draft.tests]
        if found == draft.tests:
            raise Unreadable("no test was changed")
        check_outcomes(found, self._tool)
        return found


def make_single(
    design: EnvironmentDesign, tool: ToolDesign, example: dict[str, Any], draft: ToolDraft
) -> BuiltEnvironment:
    """An environment that has one tool."""
    made = BuiltTool(source=draft.method.source, spec=draft.method.spec, writes=tool.writes)
    return BuiltEnvironment(
        design=design, state_model=write_state_model(design.state), example=example, tools={tool.name: made}
    )


def write_test(test: ToolTest) -> str:
    """A test as a line of JSON in the form that prompts ask for."""
    row: dict[str, Any] = {"name": test.name.partition(": ")[2]}
    if test.before:
        row["before"] = [action.arguments for action in test.before]
    if test.initial:
        row["patch"] = test.initial["patch"]
    row |= {"arguments": test.call.arguments, "outcome": test.expect.outcome}
    if test.expect.outcome == "success":
        row |= {"result": test.expect.result, "changes": test.expect.changes or {}}
    return orjson.dumps(row).decode()
