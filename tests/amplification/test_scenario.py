"""Plans are the same on every resume, name tools that can occur together, and lean to what was rare."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

from simia import search_path
from simia.amplification.scenario import (
    CallGraph,
    Scenario,
    ToolCounts,
    hash_scenario_files,
    plan_scenario,
    render_scenario,
)
from simia.pack import Pack
from simia.prompts import read_lines
from simia.tool import ToolSpec
from simia.trajectory import Message, ToolCall, Trajectory

SHOP = Pack.load(search_path.find_resource("seeds", "customer_service")).seeds
GRAPH = CallGraph(SHOP)


def tool(name: str, *arguments: str) -> ToolSpec:
    return ToolSpec(name=name, parameters={"type": "object", "properties": {a: {"type": "string"} for a in arguments}})


def seed(*calls: tuple[str, str]) -> Trajectory:
    """A seed with these calls and results, and tools around it that it does not use."""
    messages = [Message(role="user", content="Please.")]
    for i, (name, result) in enumerate(calls):
        messages.append(Message(role="assistant", calls=[ToolCall(id=f"c{i}", name=name, arguments={})]))
        messages.append(Message(role="tool", call_id=f"c{i}", content=result))
    tools = [
        tool("search", "query"),
        tool("read", "page_id"),
        tool("drop", "ticket_id"),
        tool("lock", "door_id"),
        tool("note"),
    ]
    return Trajectory(tools=tools, messages=[*messages, Message(role="assistant", content="Done.")])


def test_the_same_number_and_counts_give_the_same_plan() -> None:
    counts = ToolCounts()
    first = [plan_scenario(SHOP[0], counts, number, GRAPH) for number in range(50)]
    again = [
        plan_scenario(SHOP[0], pickle.loads(pickle.dumps(counts)), number, CallGraph(SHOP)) for number in range(50)
    ]
    assert first == again
    assert len({scenario.persona for scenario in first}) > 25
    assert len({scenario.tools for scenario in first}) > 10
    assert any(scenario.twist for scenario in first)
    assert not all(scenario.twist for scenario in first)


def test_a_combination_grows_from_a_first_call_along_the_graph() -> None:
    story = seed(("search", '{"hits": [{"ticket_id": "T-1"}]}'), ("read", "text"))
    sets = {frozenset(names) for names in CallGraph([story]).combinations(tuple(t.name for t in story.tools))}
    assert {"search"} in sets
    assert {"search", "read"} in sets  # seen one after another
    assert {"search", "drop"} in sets  # its result holds what the other takes
    assert {"search", "read", "drop"} in sets
    assert {"note"} in sets  # no seed calls it: it may stand alone
    assert {"read"} not in sets
    assert {"read", "drop"} not in sets
    assert {"search", "lock"} not in sets  # nothing in common
    assert all(len(names) <= 4 for names in sets)


def test_every_tool_is_planned_first_after_what_it_needs() -> None:
    for names in GRAPH.combinations(tuple(t.name for t in SHOP[0].tools)):
        for at, name in enumerate(names[1:], start=1):
            assert any(name in GRAPH.after[one] for one in names[:at]), names
    assert {name for number in range(400) for name in plan_scenario(SHOP[0], ToolCounts(), number, GRAPH).tools} == {
        t.name for t in SHOP[0].tools
    }


def test_what_was_accepted_often_is_planned_less_often() -> None:
    common = ("find_customer", "list_orders")
    counts = ToolCounts()
    for _ in range(60):
        counts.add([*common, "list_orders"])
    assert (counts.tools["list_orders"], counts.sets[common], counts.pairs[common]) == (60, 60, 60)

    def planned(given: ToolCounts) -> Counter[frozenset[str]]:
        return Counter(frozenset(plan_scenario(SHOP[0], given, number, GRAPH).tools) for number in range(4000))

    before, after = planned(ToolCounts()), planned(counts)
    assert before[frozenset(common)] > 10 * after[frozenset(common)]
    assert len(after) > 50


def test_following_the_plans_evens_out_the_tools() -> None:
    coverage = ToolCounts()
    for number in range(600):
        if number % 50 == 0:
            counts = copy.deepcopy(coverage)
        coverage.add(plan_scenario(SHOP[number % len(SHOP)], counts, number, GRAPH).tools)
    used = coverage.tools
    assert used.keys() == {t.name for t in SHOP[0].tools}
    assert min(used.values()) > 30


def test_large_sets_of_tools_stay_small_plans() -> None:
    names = [f"t{i}" for i in range(80)]
    chain = [(name, '{"ticket_id": "T-1"}') for name in names]
    story = seed(*chain).model_copy(update={"tools": [tool(name, "ticket_id") for name in names]})
    found = CallGraph([story]).combinations(tuple(names))
    assert Counter(map(len, found))[1] == 1
    assert len(found) <= 4 * 1500
    assert plan_scenario(story, ToolCounts(), 7).tools == plan_scenario(story, ToolCounts(), 7).tools != ()


def test_trajectories_without_tools_have_a_scenario_too() -> None:
    bare = Trajectory(messages=[Message(role="user", content="Hi")])
    scenario = plan_scenario(bare, ToolCounts(), 3)
    assert scenario.tools == ()
    assert scenario.persona
    counts = ToolCounts()
    counts.add([])
    assert counts == ToolCounts()


def test_the_line_is_short_and_tells_the_user_side_nothing_of_tools() -> None:
    scenario = Scenario("is in a hurry", ("search", "read"), "The result is empty.")
    assert render_scenario(scenario) == (
        "The user is in a hurry. Calls, in whatever order fits: search, read. The result is empty."
    )
    assert render_scenario(Scenario("is in a hurry", (), "")) == "The user is in a hurry."


def test_personas_are_many_different_and_fit_the_line() -> None:
    personas = read_lines("scenario/personas.txt")
    assert len(personas) == len(set(personas)) >= 60
    assert all(len(persona) < 100 and persona[0].islower() and not persona.endswith(".") for persona in personas)
    assert all(twist.endswith(".") for twist in read_lines("scenario/twists.txt"))
    assert hash_scenario_files().keys() == {"scenario/personas.txt", "scenario/twists.txt"}
