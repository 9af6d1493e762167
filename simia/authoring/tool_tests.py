"""Run the tools' own tests (ScaleEnv §3.2) in a worker, like any episode.

There are three outcomes: success (result and changes as expected), an expected refusal (with its message), and an unexpected
error: an exception that the tool does not declare, a crash, a timeout. Each test also checks that a tool marked as reading, and
a call that is refused, do not change the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simia.authoring.findings import Fault, Finding
from simia.envs.rewards.compare_values import find_policy
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.world import ToolResult
from simia.errors import Code
from simia.pack import Pack
from simia.reward_spec import Match
from simia.state import Change, diff_states
from simia.task import Task
from simia.tool_test import ToolTest
from simia.trajectory import ToolCall

BROKEN = {Code.TOOL_FAILED, Code.TOOL_TIMEOUT, Code.TOOL_CRASHED, Code.RESOURCE_LIMIT}


async def run_tests(pack: Pack, backend: ExecutableBackend) -> list[Finding]:
    """Return the findings of all tests of the pack, and one for each tool without a test."""
    declared = await backend.declared()
    found: list[Finding] = []
    for test in pack.tests:
        found += await run_test(test, backend, declared, pack.match)
    tested = {(test.call.by, test.call.name) for test in pack.tests}
    for by, tools in declared.items():
        found += [Finding(Fault.UNTESTED_TOOL, name) for name in tools if (by, name) not in tested]
    return found


@dataclass(frozen=True, slots=True)
class PlayedTest:
    """The outcome of a test's calls."""

    result: ToolResult
    """Result of the call under test, or of the first call before it that failed."""
    changes: list[Change]
    """What the call under test changed."""
    after: Any
    """The state after the call; None if a call before it failed."""


async def run_test(
    test: ToolTest, backend: ExecutableBackend, declared: dict[str, Any], policies: Mapping[str, Match]
) -> list[Finding]:
    """Return the findings of one test. `policies`: how values are compared, by dotted path: the pack's `match`."""
    writes = declared.get(test.call.by, {}).get(test.call.name, {}).get("writes", True)
    return judge_test(test, await play_test(test, backend), writes=writes, policies=policies)


async def play_test(test: ToolTest, backend: ExecutableBackend) -> PlayedTest:
    """Make the calls of a test in a world of its own."""
    world = await backend.open(Task(id=f"test/{test.name}", initial=test.initial), seed=0)
    try:
        for action in test.before:
            done = (
                await world.call([ToolCall(id=action.name, name=action.name, arguments=action.arguments)], action.by)
            )[0]
            if done.error in BROKEN:
                return PlayedTest(done, [], None)
        before = await world.state()
        call = test.call
        result = (await world.call([ToolCall(id=call.name, name=call.name, arguments=call.arguments)], call.by))[0]
        after = await world.state()
    finally:
        await world.close()
    return PlayedTest(result, diff_states(before, after), after)


def judge_test(
    test: ToolTest, played: PlayedTest, *, writes: bool, policies: Mapping[str, Match] | None = None
) -> list[Finding]:
    """Return findings about the outcome of a test. `writes`: whether the tool may change the state. `policies`: how values are compared, by
    dotted path; the values of exempt paths are not compared."""
    call, expect, result, changes = test.call, test.expect, played.result, played.changes
    if result.error in BROKEN:
        return [Finding(Fault.TOOL_FAILED, test.name, f"{result.call_id}: {result.detail or result.content}")]
    found = []
    if changes and (result.error or not writes):
        how = "refuses and writes" if result.error else "is marked as reading, and writes"
        found.append(Finding(Fault.READ_WRITES, test.name, f"{call.name} {how}: {format_paths(changes)}"))
    wrong = None
    if expect.outcome == "refusal":
        if not result.error:
            wrong = f"expected a refusal, got {result.content[:200]}"
        elif expect.error and expect.error.casefold() not in result.content.casefold():
            wrong = f"expected the words {expect.error!r}, got {result.content[:200]!r}"
    elif result.error:
        wrong = f"expected success, got {result.content[:200]!r}"
    else:
        value = result.data if result.data is not None else result.content
        if expect.result is not None and (lack := find_missing_value(expect.result, value)):
            wrong = f"result: {lack}"
        elif expect.changes is not None and (lack := find_unexpected_change(expect.changes, changes, policies or {})):
            wrong = f"changes: {lack}"
    if wrong:
        found.append(Finding(Fault.TEST_FAILED, test.name, wrong))
    return found


def find_missing_value(expected: Any, value: Any, at: str = "") -> str | None:
    """Describe the first part of `expected` that `value` lacks: objects may have more keys, everything else must be equal."""
    if isinstance(expected, dict) and isinstance(value, dict):
        for key, inner in expected.items():
            if key not in value:
                return f"{at}{key} is missing"
            lack = find_missing_value(inner, value[key], f"{at}{key}.")
            if lack:
                return lack
        return None
    if isinstance(expected, list) and isinstance(value, list) and len(expected) == len(value):
        for i, (a, b) in enumerate(zip(expected, value, strict=True)):
            if lack := find_missing_value(a, b, f"{at}{i}."):
                return lack
        return None
    same = expected == value and isinstance(expected, bool) is isinstance(value, bool)
    return None if same else f"{at.rstrip('.') or 'it'} is {value!r}, expected {expected!r}"


def find_unexpected_change(
    expected: dict[str, Any], changes: list[Change], policies: Mapping[str, Match]
) -> str | None:
    """Describe the first difference from the expected changes: path → new value (null: removed); `*` in a path stands for one key. A change
    of an exempt path may have any value, and need not be expected."""
    left = dict(expected)
    for change in changes:
        match = next((path for path in left if path_matches(path, change["path"])), None)
        if find_policy(change["path"], policies) == "exempt":
            if match is not None and "*" not in match:
                left.pop(match)
            continue
        if match is None:
            return f"{'.'.join(change['path'])} changes too, to {change.get('new')!r}"
        wanted = left[match]
        if "*" not in match:
            left.pop(match)
        lack = find_missing_value(wanted, change.get("new"))
        if lack:
            return f"{'.'.join(change['path'])}: {lack}"
    missing = next((path for path in left if "*" not in path), None)
    return f"{missing} does not change" if missing else None


def path_matches(pattern: str, path: list[str]) -> bool:
    steps = pattern.split(".")
    return len(steps) == len(path) and all(a in ("*", b) for a, b in zip(steps, path, strict=True))


def format_paths(changes: list[Change]) -> str:
    return ", ".join(".".join(change["path"]) for change in changes[:5])
