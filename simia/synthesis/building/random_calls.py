"""Make random calls that the tools' schemas allow, with ids of the state. No call may fail unexpectedly, break the schema of the state, or
return an id that does not exist."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from simia.authoring.tool_tests import BROKEN
from simia.envs.play.random_arguments import Sampler
from simia.envs.worlds.executable import ExecutableBackend
from simia.envs.worlds.executable_world import ExecutableWorld
from simia.errors import Aborted
from simia.state import diff_states
from simia.synthesis.building.returned_ids import find_unknown_id
from simia.synthesis.building.tool_runs import find_state_breach, hide_addresses, require_sandbox
from simia.synthesis.design import BuiltEnvironment, ToolDesign
from simia.synthesis.reasons import Reason
from simia.task import Task
from simia.tool import ToolSpec
from simia.tool_test import ToolTest

EPISODE = 25  # calls in one episode
SHARE_OF_IDS = 0.5


async def make_random_calls(
    backend: ExecutableBackend,
    built: BuiltEnvironment,
    count: int,
    *,
    seed: int = 0,
    state: Mapping[str, Any] | None = None,
) -> tuple[dict[str, tuple[Reason, str]], int]:
    """Call the tools in turn, `count` calls in all, in episodes that begin with the example state, or with `state` if given.

    Returns:
        Tool → (reason why it is refused, detail with the call); and how many calls succeeded. A refused tool is not called again.
    """
    rng = random.Random(f"{built.design.name}/{seed}")
    designs = {tool.name: tool for tool in built.design.tools}
    refused: dict[str, tuple[Reason, str]] = {}
    names = list(built.tools)
    initial = {} if state is None else {"state": dict(state)}
    succeeded, made = 0, 0
    while made < count and names:
        async with await backend.open(Task(id=f"random/{made}", initial=initial), seed=made) as world:
            state = await world.state()
            for _ in range(min(EPISODE, count - made)):
                name = names[made % len(names)]
                made += 1
                arguments = draw_arguments(rng, built.tools[name].spec, state)
                fault, state, done = await try_call(backend, world, designs[name], arguments, state, built)
                succeeded += done
                if fault:
                    refused[name] = (fault[0], f"{name}({arguments}): {fault[1]}")
                    names.remove(name)
                    break
    return refused, succeeded


async def repeat_tests(
    backend: ExecutableBackend, built: BuiltEnvironment, repeats: int
) -> dict[str, tuple[Reason, str]]:
    """Repeat the successful tests of writing tools, each `repeats` times, in episodes in which new ids differ from those of the tests.

    Random calls are not enough: if an argument is a choice without an enumeration, they seldom make a row. Tests with equal states share an
    episode, each time in another order.

    Returns:
        Tool → (reason why it is refused, detail with the call).
    """
    designs = {tool.name: tool for tool in built.design.tools}
    refused: dict[str, tuple[Reason, str]] = {}
    groups: dict[bytes, list[ToolTest]] = {}
    for test in built.tests:
        if test.expect.outcome == "success" and built.tools[test.call.name].writes:
            groups.setdefault(orjson.dumps(test.initial), []).append(test)
    for seed in range(1, 1 + repeats):
        for group in groups.values():
            shuffled = random.Random(seed).sample(group, len(group))
            calls = [call for test in shuffled for call in (*test.before, test.call)]
            async with await backend.open(Task(id=f"repeated/{seed}", initial=group[0].initial), seed=seed) as world:
                state = await world.state()
                for call in (call for call in calls if call.name in built.tools and call.name not in refused):
                    arguments = dict(call.arguments)
                    fault, state, _ = await try_call(backend, world, designs[call.name], arguments, state, built)
                    if fault:
                        refused[call.name] = (fault[0], f"{call.name}({arguments}): {fault[1]}")
                        break
    return refused


async def try_call(
    backend: ExecutableBackend,
    world: ExecutableWorld,
    tool: ToolDesign,
    arguments: dict[str, Any],
    before: Any,
    built: BuiltEnvironment,
) -> tuple[tuple[Reason, str] | None, Any, bool]:
    """Make one call. If it ends its sandbox, the tool is at fault; raises `Aborted` if the sandbox itself does not work."""
    try:
        return await make_call(world, tool, arguments, before, built)
    except Aborted as error:
        await require_sandbox(backend, error)
        return (Reason.UNEXPECTED_FAILURE, error.detail or str(error.code)), before, False


async def make_call(
    world: ExecutableWorld, tool: ToolDesign, arguments: dict[str, Any], before: Any, built: BuiltEnvironment
) -> tuple[tuple[Reason, str] | None, Any, bool]:
    """Make one call. Returns what is wrong with it, the state after it, and whether it succeeded."""
    result = await world.call_one(tool.name, arguments)
    if result.error in BROKEN:
        return (Reason.UNEXPECTED_FAILURE, hide_addresses(result.detail or result.content)), before, False
    after = await world.state()
    changes = diff_states(before, after)
    if changes and (result.error or not tool.writes):
        return (Reason.READ_TOOL_WRITES, "it changes the state, and it reads or refuses"), after, False
    fault = find_state_breach(built.design, tool, changes, after)
    if fault is None and result.error is None:
        unknown = await find_unknown_id(world, built, result.data, arguments, before, after)
        fault = (Reason.UNKNOWN_ID, unknown) if unknown else None
    return fault, after, result.error is None


def draw_arguments(rng: random.Random, spec: ToolSpec, state: Any) -> dict[str, Any]:
    """Arguments that the schema allows; half of the texts are ids of the state."""
    drawn = Sampler(rng).object(spec.parameters)
    for name, value in drawn.items():
        schema = spec.parameters["properties"][name]
        if isinstance(value, str) and "enum" not in schema and rng.random() < SHARE_OF_IDS:
            drawn[name] = draw_id(rng, name, state) or value
        elif isinstance(value, list):
            drawn[name] = [
                (draw_id(rng, name, state) or each) if isinstance(each, str) and rng.random() < SHARE_OF_IDS else each
                for each in value
            ]
    return drawn if not spec.argument_errors(drawn) else Sampler(rng).object(spec.parameters)


def draw_id(rng: random.Random, argument: str, state: Mapping[str, Mapping[str, Any]]) -> str | None:
    """An id of the table that the argument is named after, or of any table."""
    stem = argument.removesuffix("s").removesuffix("_id")
    near = [table for table in state if table.startswith(stem) or stem.endswith(table.removesuffix("s"))]
    tables: Sequence[str] = [table for table in near or state if state[table]]
    return rng.choice(list(state[rng.choice(tables)])) if tables else None
