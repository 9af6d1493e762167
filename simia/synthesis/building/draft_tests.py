"""Tests of one tool, which a model writes from the design and the example state without seeing the code (ScaleEnv §3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from simia.reward_spec import StrictModel
from simia.state import merge_patch
from simia.synthesis.building.example_states import find_state_faults
from simia.synthesis.design import EnvironmentDesign, ToolDesign
from simia.synthesis.reasons import Unreadable
from simia.synthesis.reply_reading import read_json
from simia.task import Action
from simia.tool import ToolSpec
from simia.tool_test import Expectation, ToolTest


class DraftTest(StrictModel):
    """One test of a tool."""

    name: str = Field(min_length=1, max_length=100)
    """What is special about the call, in a few words."""
    arguments: dict[str, Any]
    """Arguments of the call under test."""
    before: list[dict[str, Any]] = Field(default_factory=list, max_length=5)
    """Arguments of calls of the same tool that are made first."""
    patch: dict[str, Any] = Field(default_factory=dict)
    """JSON merge patch of the example state, for a situation that it does not have."""
    outcome: Literal["success", "refusal"]
    """The expected outcome of the call."""
    result: Any = None
    """Part of what it returns."""
    changes: dict[str, Any] | None = None
    """Dotted path → new value, of every change of the state."""


def read_tests(
    text: str, design: EnvironmentDesign, tool: ToolDesign, spec: ToolSpec, example: dict[str, Any], most: int
) -> list[ToolTest]:
    """Read the tests of a reply. Raises `Unreadable` for calls that the schema refuses and for expectations that cannot fail."""
    drafts: list[DraftTest] = read_json(text, list[DraftTest])
    if not drafts:
        raise Unreadable("there is no test")
    tests = [finish_test(draft, design, tool, spec, example) for draft in drafts[:most]]
    names = [test.name for test in tests]
    if len(set(names)) < len(names):
        raise Unreadable("two tests have the same name")
    check_outcomes(tests, tool)
    return tests


def check_outcomes(tests: Sequence[ToolTest], tool: ToolDesign) -> None:
    """Raise `Unreadable` unless one test expects success and, if the design names refusals, another one expects a refusal."""
    outcomes = {test.expect.outcome for test in tests}
    if "success" not in outcomes:
        raise Unreadable("no test expects success: at least one must")
    if tool.refusals and "refusal" not in outcomes:
        raise Unreadable("no test expects a refusal, and the tool has conditions under which it refuses")


def finish_test(
    draft: DraftTest, design: EnvironmentDesign, tool: ToolDesign, spec: ToolSpec, example: dict[str, Any]
) -> ToolTest:
    """Return the test in the form of packs. Raises `Unreadable` for a test that cannot be run or cannot fail."""
    where = f"test {draft.name!r}"
    for arguments in (draft.arguments, *draft.before):
        if errors := spec.argument_errors(arguments):
            raise Unreadable(
                f"{where}: arguments: {errors[0][0]} {errors[0][1]}; a call that the schema refuses tests nothing"
            )
    if draft.patch and (faults := find_state_faults(design.state, merge_patch(example, draft.patch))):
        raise Unreadable(f"{where}: patch: {faults[0]}")
    changes = draft.changes or {}
    expect = Expectation(outcome="refusal")
    if draft.outcome == "success":
        if tool.writes and not changes:
            raise Unreadable(f"{where}: `changes` names what the call changes in the state; it is empty")
        if not tool.writes and changes:
            raise Unreadable(f"{where}: {tool.name} reads: `changes` must be empty")
        if not tool.writes and draft.result is None:
            raise Unreadable(f"{where}: `result` is missing, so the test cannot fail")
        expect = Expectation(result=draft.result, changes=changes)
        for path in changes:
            table, _, row = path.partition(".")
            if table not in tool.tables or not row:
                raise Unreadable(
                    f"{where}: {path!r}: a path is table.id or table.id.column, of {', '.join(tool.tables)}"
                )
    return ToolTest(
        name=f"{tool.name}: {draft.name}",
        initial={"patch": draft.patch} if draft.patch else {},
        before=[Action(name=tool.name, arguments=arguments) for arguments in draft.before],
        call=Action(name=tool.name, arguments=draft.arguments),
        expect=expect,
    )
