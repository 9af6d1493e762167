"""What is said before an environment is played: events that cannot be made there, and tools that do not exist."""

from __future__ import annotations

from typing import Any

import pytest

from simia.envs.opening import open_environment
from simia.envs.perturbation.settings import TOOL_EVENTS
from simia.errors import UserError
from simia.llm.engine import Engine, EngineLimits
from simia.llm.journals import MemoryJournal
from simia.pack import Pack
from simia.task import Task
from simia.tool import ToolSpec
from tests.envs.worlds.test_simulated import Scripted

ID = {"type": "object", "properties": {"item_id": {"type": "string"}}, "required": ["item_id"]}
BARE = Pack(
    name="library",
    policy="Help.",
    tools=[
        ToolSpec(name="find_items", description="Finds."),
        ToolSpec(name="lend_item", description="Lends.", parameters=ID, writes=["loans"]),
    ],
)


async def list_lines(pack: Pack | str, perturb: dict[str, Any], **settings: Any) -> list[str]:
    """What is said while an environment is opened."""
    said: list[str] = []
    async with Engine(Scripted(lambda _: "{}"), MemoryJournal(), EngineLimits(retries=0)) as engine:
        how = {"engine": engine, "user": "none", "say": said.append, **settings}
        async with await open_environment(pack, perturb=perturb, **how):
            return said


async def test_what_a_steered_simulator_cannot_make_is_named_in_one_line_each() -> None:
    settings = {"backend": "simulated", "knowledge": "schema"}
    kinds = ["missing_field", "changed_policy", "partial_result", "rate_limit", "ambiguous_match"]
    planned = [{"kind": kind, "tool": "lend_item"} for kind in kinds]
    fields = "neither a schema of results nor a recorded result tells the simulator's prompt the fields"
    assert await list_lines(BARE, {"schedule": planned}, **settings) == [
        f"perturb: pack library: missing_field of lend_item cannot happen here: {fields}",
        "perturb: pack library: partial_result of lend_item cannot happen here: it is not known to be a look-up",
        "perturb: pack library: ambiguous_match of lend_item cannot happen here: it is not known to be a look-up",
    ]
    assert await list_lines(BARE, {"kinds": list(TOOL_EVENTS)}, **settings) == [
        f"perturb: pack library: renamed_field cannot happen here: {fields}",
        f"perturb: pack library: missing_field cannot happen here: {fields}",
        "perturb: pack library: ambiguous_match cannot happen here: no tool is a look-up with arguments",
    ]
    reads = BARE.model_copy(update={"tools": BARE.tools[:1]})
    assert await list_lines(reads, {"kinds": ["changed_policy", "stale_data", "slow_result"]}, **settings) == [
        "perturb: pack library: changed_policy cannot happen here: no tool is known to change anything",
        "perturb: pack library: stale_data cannot happen here: no tool changes anything",
    ]


async def test_what_a_screen_cannot_show_is_named() -> None:
    typed = BARE.model_copy(update={"tools": BARE.tools[1:]})
    settings = {"backend": "simulated", "knowledge": "schema", "dialect": "agentworld-terminal"}
    screen = "the simulator answers with a terminal's screen, which has neither errors nor fields"
    assert await list_lines(typed, {"kinds": ["rate_limit", "partial_result", "injected_instruction"]}, **settings) == [
        f"perturb: pack library: rate_limit cannot happen here: {screen}",
        f"perturb: pack library: partial_result cannot happen here: {screen}",
    ]


async def test_every_kind_can_be_made_in_the_executable_world() -> None:
    assert await list_lines("customer_service", {"kinds": list(TOOL_EVENTS)}) == []


async def test_events_of_users_are_named_where_tasks_or_limits_leave_them_out() -> None:
    goals = [{"query": "Lend me a drill.", "calls": [{"name": "lend_item", "arguments": {"item_id": "I-1"}}]}]
    pack = BARE.model_copy(update={"tools": BARE.tools})
    pack.__dict__["tasks"] = [Task.model_validate({"id": "g", "goals": goals}), Task(id="t", instruction="A drill.")]
    planned = [{"kind": "wrong_id"}, {"kind": "impatience"}, {"kind": "impatience", "at": 99}]
    assert await list_lines(pack, {"schedule": planned}, backend="simulated", knowledge="schema") == [
        "perturb: pack library: wrong_id cannot happen in 1 of 2 tasks: they have goals, tools that are revealed later, or withheld facts",
        "perturb: pack library: impatience cannot happen at message 99: the user has at most 31 messages",
    ]


@pytest.mark.parametrize(("perturb", "why"), [({"schedule": []}, "schedule is empty"), ({"share": 0}, "share is 0")])
async def test_one_line_says_that_nothing_is_disturbed(perturb: dict[str, Any], why: str) -> None:
    assert await list_lines("customer_service", perturb) == [f"perturb: nothing is disturbed: {why}"]


async def test_a_tool_that_does_not_exist_is_refused_with_near_names() -> None:
    with pytest.raises(
        UserError,
        match=r"^perturb.schedule: no tool named 'get_ordre' in pack customer_service; did you mean get_order",
    ):
        await list_lines("customer_service", {"schedule": [{"kind": "rate_limit", "tool": "get_ordre"}]})
    with pytest.raises(UserError, match=r"there are: find_items, lend_item$"):
        await list_lines(
            BARE, {"schedule": [{"kind": "rate_limit", "tool": "zzz"}]}, backend="simulated", knowledge="schema"
        )


async def test_with_several_packs_a_tool_is_one_of_any() -> None:
    packs = [{"pack": "customer_service"}, {"pack": "hotel_front_desk"}]
    perturb = {"schedule": [{"kind": "rate_limit", "tool": "get_order"}]}
    said: list[str] = []
    async with await open_environment({"packs": packs, "user": "scripted", "perturb": perturb}, say=said.append):
        assert said == [
            "perturb: pack hotel_front_desk: rate_limit of get_order cannot happen here: the pack has no such tool"
        ]
    perturb["schedule"][0]["tool"] = "get_ordr"
    with pytest.raises(UserError, match="no tool named 'get_ordr' in the packs; did you mean get_order"):
        await open_environment({"packs": packs, "user": "scripted", "perturb": perturb})
