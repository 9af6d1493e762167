"""Interaction completeness of the shipped synthesized packs (ScaleEnv §4.2): a call that the schemas allow is answered or refused.

No call fails unexpectedly, a refused call and a call of a reading tool change nothing, no call leaves a key without its row, and none returns an
id that no row has.
"""

from __future__ import annotations

import random
from itertools import cycle, islice

import pytest

from simia.authoring.tool_tests import BROKEN
from simia.envs.play.random_arguments import Sampler
from simia.envs.worlds.executable import ExecutableBackend
from simia.pack import Pack
from simia.search_path import data_root, list_names
from simia.state import diff_states
from simia.synthesis.building.random_calls import EPISODE, draw_arguments
from simia.synthesis.building.returned_ids import list_unknown_ids
from simia.trajectory import ToolCall

HOTEL, GYM = 1_000, 200
SYNTHESIZED = [name for name in list_names("seeds", [data_root()]) if name not in ("customer_service", "office")]


async def play_random_calls(name: str, count: int) -> tuple[list[str], dict[str, int]]:
    """Call the tools in turn, in the initial states of the tasks in turn. Returns what is wrong, and tool → calls that succeeded."""
    pack, rng, made = Pack.load(name), random.Random(name), 0
    tools = cycle(pack.tools)
    faults: list[str] = []
    succeeded = {tool.name: 0 for tool in pack.tools}
    backend = ExecutableBackend(pack)
    try:
        await backend.start()
        declared = (await backend.declared())["agent"]
        writes = {tool for tool, each in declared.items() if each["writes"]}
        for task in cycle(pack.tasks):
            if made >= count:
                break
            world = await backend.open(task, seed=made)
            state = await world.state()
            for tool in islice(tools, min(EPISODE, count - made)):
                made += 1
                tables = pack.state_schema is not None
                arguments = draw_arguments(rng, tool, state) if tables else Sampler(rng).object(tool.parameters)
                assert not tool.argument_errors(arguments), "the schema allows the call"
                result = (await world.call([ToolCall(id="", name=tool.name, arguments=arguments)]))[0]
                call = f"{task.id}: {tool.name}({arguments})"
                if result.error in BROKEN:
                    faults.append(f"{call}: {result.error}: {result.detail or result.content}")
                    break
                succeeded[tool.name] += result.error is None
                before, state = state, await world.state()
                changes = diff_states(before, state)
                if changes and (result.error or tool.name not in writes):
                    faults.append(f"{call}: it refuses or reads, and changes {changes[:2]}")
                if tables and not result.error:
                    faults += [
                        f"{call}: unknown {each}" for each in list_unknown_ids(result.data, arguments, before, state)
                    ]
                if changes and pack.state_schema is not None:
                    faults += [f"{call}: {each}" for each in pack.state_schema.find_violations(state)]
            await world.close()
    finally:
        await backend.close()
    return faults, succeeded


async def check_pack(name: str, count: int) -> None:
    faults, succeeded = await play_random_calls(name, count)
    assert faults == []
    assert sum(succeeded.values()) > count / 20, "most tools can be called with success"


@pytest.mark.parametrize(("name", "count"), [("hotel_front_desk", 100), ("gyms/cold-cells", 50)])
async def test_some_random_calls_break_nothing(name: str, count: int) -> None:
    await check_pack(name, count)


@pytest.mark.all
@pytest.mark.parametrize("name", SYNTHESIZED)
async def test_random_calls_break_nothing_in_any_synthesized_pack(name: str) -> None:
    await check_pack(name, GYM if name.startswith("gyms/") else HOTEL)
